"""PostGIS as a peer of tiles: the same moves to both, and the matches that brute force finds.

A table of points for each side with a GiST index; a batch of moves is a COPY, an UPDATE, and a join with the
other side by ``ST_DWithin`` on the globe. The server writes no log that survives it, and never waits for the
disk. Needs Debian's ``postgresql`` and ``postgresql-15-postgis-3``, and ``pip install 'psycopg[binary]'``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from table import markdown
from tiles import Arrivals, drive, fleet, spent
from tiles_evaluation import system

SIDES = ("pubs", "subs")
METRES = 100.0
"""Between the middles of two circles of 50 m that touch."""

SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "listen_addresses": "",
}
NEEDS = "it needs PostGIS: apt-get install postgresql postgresql-15-postgis-3; pip install 'psycopg[binary]'"


@contextmanager
def server(folder: Path) -> Iterator[Any]:
    """A connection to a server of its own, which ends with the block."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    try:
        import psycopg
    except ModuleNotFoundError:
        sys.exit(NEEDS)
    if not found:
        sys.exit(NEEDS)
    # It does not run as root.
    user = "postgres" if os.getuid() == 0 else None
    if user:
        shutil.chown(folder, user)
    data = str(folder / "data")
    command = [str(found[-1] / "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user, cwd=folder)
    options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    command = [str(found[-1] / "postgres"), "-D", data, "-k", str(folder), *options]
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, user=user, cwd=folder)
    try:
        until = time.monotonic() + 120
        while not (folder / ".s.PGSQL.5432").exists() and time.monotonic() < until:
            time.sleep(0.05)
        with psycopg.connect(
            host=str(folder), user="postgres", dbname="postgres", autocommit=True
        ) as connection:
            try:
                connection.execute("CREATE EXTENSION postgis")
            except psycopg.Error:
                sys.exit(NEEDS)
            yield connection
    finally:
        running.terminate()
        running.wait(30)


class PostGIS:
    """What ``drive`` moves.

    Args:
        connection: to the server.

    Attributes:
        count: matches found.
    """

    def __init__(self, connection: Any) -> None:
        self._run, self.count = connection.execute, 0
        self._connection = connection
        for side in SIDES:
            self._run(f"CREATE UNLOGGED TABLE {side} (id bigint PRIMARY KEY, place geography(point))")
        self._run("CREATE UNLOGGED TABLE moves (id bigint, place geography(point))")

    def put(self, entities: np.ndarray) -> None:
        """Puts all entities there."""
        for flag, side in enumerate(SIDES):
            part = entities[entities["flags"] == flag]
            self._copy(part["id"], part["zone"])
            self._run(f"INSERT INTO {side} SELECT * FROM moves")
            self._run(f"CREATE INDEX ON {side} USING gist (place)")
            self._run(f"ANALYZE {side}")

    def _copy(self, ids: np.ndarray, zones: np.ndarray) -> None:
        self._run("TRUNCATE moves")
        listed = zip(ids.tolist(), zones[:, 0].tolist(), zones[:, 1].tolist(), strict=True)
        with self._connection.cursor().copy("COPY moves FROM STDIN") as copy:
            copy.write("".join(f"{id}\tPOINT({x:.17g} {y:.17g})\n" for id, y, x in listed))

    def move(self, ids: np.ndarray, zones: np.ndarray, *, subscriptions: bool = False) -> int:
        """Moves entities of a side, and counts what they match."""
        own, other = SIDES[::-1] if subscriptions else SIDES
        self._copy(ids, zones)
        self._run(f"UPDATE {own} SET place = moves.place FROM moves WHERE {own}.id = moves.id")
        asked = f"SELECT count(*) FROM moves JOIN {other} o ON ST_DWithin(o.place, moves.place, %s, false)"
        self.count += self._run(asked, [METRES]).fetchone()[0]
        return 0


class Brute:
    """Compares each move with every place of the other side at the same latitude, on the same globe."""

    def __init__(self, entities: np.ndarray) -> None:
        self._rows, self.count = entities.copy(), 0

    def move(self, ids: np.ndarray, zones: np.ndarray, *, subscriptions: bool = False) -> int:
        """As that of ``PostGIS``."""
        self._rows["zone"][ids, :3] = zones
        others = self._rows[self._rows["flags"] != subscriptions]["zone"]
        others = np.radians(others[np.argsort(others[:, 0], kind="stable")][:, :2])
        for latitude, longitude in np.radians(zones[:, :2]):
            near = METRES / 6_371_008.8
            first, last = np.searchsorted(others[:, 0], [latitude - 1.01 * near, latitude + 1.01 * near])
            there = others[first:last]
            chord = np.sin((there[:, 0] - latitude) / 2) ** 2
            chord += np.cos(latitude) * np.cos(there[:, 0]) * np.sin((there[:, 1] - longitude) / 2) ** 2
            self.count += int((chord <= np.sin(near / 2) ** 2).sum())
        return 0


def cpu_below(pid: int) -> float:
    """CPU seconds of a process and of those that it started and that run."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(spent(one)[0] for one in (pid, *listed))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--moves", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=5000)
    parser.add_argument("--k", type=float, default=0.5)
    options = parser.parse_args()
    entities = fleet(options.entities, options.k, np.random.default_rng(1))
    lines = [["", "moves/s", "CPU a move", "matches"]]

    def play(name: str, client: Any, cpu: Any, end: Any = None) -> None:
        before, begin, rows = cpu(), time.monotonic(), entities.copy()
        count = drive(client, Arrivals(), rows, options, np.random.default_rng(2), options.moves)
        matches = end() if end else client.count
        took, used = time.monotonic() - begin, cpu() - before
        lines.append([name, f"{count / took:,.0f}", f"{used / count * 1e6:.1f} µs", f"{matches:,}"])

    options.rate = 0
    play("brute force", Brute(entities), lambda: spent(os.getpid())[0])
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as connection:
        peer = PostGIS(connection)
        peer.put(entities)
        (own,) = connection.execute("SELECT pg_backend_pid()").fetchone()
        parent = int(Path(f"/proc/{own}/stat").read_text().rsplit(")", 1)[1].split()[1])
        play("PostGIS", peer, lambda: cpu_below(parent) + spent(os.getpid())[0])
    with system(1, 1) as (client, arrivals, pids):
        for flag, call in ((0, client.publish), (1, client.subscribe)):
            part = entities[entities["flags"] == flag]
            call(part["id"], part["zone"][:, :3])
        client.drain(60)
        arrivals.settle()
        start = arrivals.count

        def settled() -> int:
            client.drain(60)
            while arrivals.count - start < int(lines[1][3].replace(",", "")) and time.monotonic() < until:
                time.sleep(0.01)
            return arrivals.count - start

        until = time.monotonic() + 60
        play("tiles, one daemon", client, lambda: sum(spent(pid)[0] for pid in pids), settled)
    markdown(f"{options.moves:,} moves of {options.entities:,} entities", lines)
    assert lines[1][3] == lines[2][3] == lines[3][3], "all find the same"


if __name__ == "__main__":
    main()
