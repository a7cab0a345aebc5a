"""Processes of a siege: its nodes, and the programs that speak to them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests import preloaded
from tests.siege.handlers import NOTES
from tests.siege.handlers import __name__ as handlers
from tests.siege.node import FILES, PLANT

__all__ = ["Node", "Program", "Sample"]


class Sample(NamedTuple):
    """What a node has in use at a time.

    Attributes:
        at: when, of ``time.monotonic``.
        memory: resident bytes.
        most: the most that they were since the process began.
        descriptors: open files and sockets.
    """

    at: float
    memory: int
    most: int
    descriptors: int


class Node:
    """A process of ``evflow node`` on a host of its own, which is killed and started again.

    Args:
        name: its name.
        folder: its storage folder is ``folder/name``; its log, notes and naps lie beside it.
        listen: where it listens.
        contact: what others are told.
        host: the network namespace that it runs in; "" for that of this process.
        control: who may deploy.
        descriptors: how many files and sockets it may have open.
        plant: a fault to plant into it, or "".

    Attributes:
        is_down: whether it was killed, and not started again.
        samples: what it had in use over time.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        listen: str,
        contact: str,
        host: str,
        control: Sequence[str],
        descriptors: int,
        plant: str,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.notes = folder / f"{name}.notes"
        self.naps = folder / f"{name}.notes.naps"
        self.is_down = False
        self.samples: list[Sample] = []
        self._folder = folder
        self._host = host
        self._arguments = [
            "node", name, "--listen", listen, "--advertise", contact, "--storage", str(folder / name),
            "--allow", handlers, "--keys", str(folder / "keys" / name),
            *[option for peer in control for option in ("--control", peer)],
        ]  # fmt: skip
        self._environment = os.environ | {
            NOTES: str(self.notes),
            FILES: str(descriptors),
            PLANT: plant,
        }
        self.start()

    def start(self) -> None:
        """Starts it, also after ``kill``."""
        self._began = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = preloaded.start(
                "tests.siege.node:main", self._arguments, host=self._host, stdout=log, stderr=log,
                cwd=self._folder, env=self._environment,
            )  # fmt: skip
        self.is_down = False

    @property
    def is_ready(self) -> bool:
        """Whether it listens."""
        with self.log.open("rb") as log:
            log.seek(self._began)
            return b"listens at" in log.read(1 << 16)

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def tail(self, lines: int = 12) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace")[-20_000:].splitlines()[-lines:])

    def kill(self) -> None:
        """Kills it as ``kill -9`` does."""
        self.is_down = True
        self._process.kill()
        self._process.wait()

    def signal(self, number: int) -> None:
        """Sends it a signal."""
        self._process.send_signal(number)

    def dump(self) -> None:
        """Has it write to its log where its threads are."""
        if self.code is None:
            self.signal(signal.SIGUSR1)

    def sample(self) -> None:
        """Notes what it has in use."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
            memory, most = (int(status.split(f"{key}:")[1].split()[0]) << 10 for key in ("VmRSS", "VmHWM"))
            files = len(os.listdir(f"/proc/{self._process.pid}/fd"))
        except (OSError, IndexError):
            return
        self.samples.append(Sample(time.monotonic(), memory, most, files))


class Program:
    """A program that is told what to do by lines of JSON, or just runs; it writes its answers as such lines.

    Args:
        module: what is run.
        arguments: of the program.
        host: the network namespace that it runs in; "" for that of this process.
        log: where its standard error goes.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        host: str,
        log: Path,
    ) -> None:
        self.log = log
        with log.open("ab") as errors:
            self._process = preloaded.start(
                f"{module}:main", arguments, host=host, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors,
            )  # fmt: skip
        self._pending = b""

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def tell(self, what: str, **arguments: Any) -> None:
        """Has it do something."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([what, arguments]).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self, within: float = 0.0) -> Any:
        """Its next answer; None if there is none within so many seconds."""
        assert self._process.stdout is not None
        until = time.monotonic() + within
        while b"\n" not in self._pending:
            left = max(0.0, until - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                return None
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                return None
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    def kill(self) -> None:
        """Ends it at once."""
        # Not by its number: the system gives that to others once the process was waited for.
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
