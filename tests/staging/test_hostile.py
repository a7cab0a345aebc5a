"""Peers that lie, flood or hang up at a bad moment: whatever they send, the writers beside them go on."""

from __future__ import annotations

import os
import resource
import socket
import time
from pathlib import Path

import pytest

from evflow.staging.messages import VERSION, Hello, Ready, encode
from tests.node.processes import wait_for
from tests.staging.application import HEAT, PLENTY
from tests.staging.test_stage import Writer, staged, write, writers

__all__ = ["writers"]

HELLO = encode(Hello(VERSION, 0, 2, (HEAT,), -1, (), 1))


def connected(folder: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # With a timeout it would fail at once where many others wait to be let in.
    made.connect(str(folder / "socket"))
    made.settimeout(20)
    return made


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def goes_on(made: list[Writer]) -> None:
    for rank, writer in enumerate(made):
        write(writer, rank, 1)
    for writer in made:
        writer.drain(20)
        assert writer.fates() == [(1, "")]


def test_a_flood_of_hellos_without_a_rank_disturbs_nobody(tmp_path: Path, writers: list[Writer]) -> None:
    nobody = encode(Hello(VERSION, -1, 2, (HEAT,), -1, ()))
    with staged(tmp_path)[0].run(), open(os.devnull) as null:
        for _ in range(3):
            with connected(tmp_path) as made, pytest.raises(OSError, match=r"Broken pipe|reset"):
                for _ in range(5000):
                    socket.send_fds(made, [nobody], [null.fileno()])
        goes_on(writers)


def test_a_hello_beside_a_connection_of_its_rank_that_hangs_up(tmp_path: Path, writers: list[Writer]) -> None:
    for writer in writers:
        writer.close(timeout=0)
    with staged(tmp_path)[0].run(), open(os.devnull) as null:
        for turn in range(60):
            with connected(tmp_path) as late, connected(tmp_path) as early:
                socket.send_fds(early, [HELLO], [null.fileno()])
                time.sleep(0.001 * (turn % 2))
                early.close()
                socket.send_fds(late, [HELLO], [null.fileno()])
        made = [Writer(tmp_path / "socket", rank, 2, [HEAT], budget=PLENTY) for rank in range(2)]
        goes_on(made)
        for writer in made:
            writer.close()


def test_files_that_come_with_an_empty_packet_are_closed(tmp_path: Path, writers: list[Writer]) -> None:
    with staged(tmp_path)[0].run(), open(os.devnull) as null:
        goes_on(writers)
        before = open_files()
        for _ in range(5):
            with connected(tmp_path) as made:
                socket.send_fds(made, [b""], [null.fileno()] * 4)
                assert made.recv(1) == b""
        wait_for(lambda: open_files() == before, "the files to be closed")


def test_more_files_than_a_process_may_open_cost_their_connection_only(
    tmp_path: Path, writers: list[Writer]
) -> None:
    ready = [encode(Ready(step, 0.0, (HEAT.block((1, 1)),), 0, -1, 0)) for step in range(2, 100)]
    for writer in writers:
        writer.close(timeout=0)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with staged(tmp_path)[0].run(), open(tmp_path / "bytes", "w+b") as file:
        file.truncate(4096)
        with connected(tmp_path) as made:
            socket.send_fds(made, [HELLO], [file.fileno()])
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 30, before[1]))
            try:
                with pytest.raises(OSError, match=r"Broken pipe|reset"):
                    for message in ready * 2:
                        socket.send_fds(made, [message], [file.fileno()])
                        time.sleep(0.001)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
        made_now = [Writer(tmp_path / "socket", rank, 2, [HEAT], budget=PLENTY) for rank in range(2)]
        for rank, writer in enumerate(made_now):
            write(writer, rank, 200)
        for writer in made_now:
            writer.close(20)
            assert writer.fates() == [(200, "")]


def test_connections_that_say_nothing_are_bounded(tmp_path: Path, writers: list[Writer]) -> None:
    before = open_files()
    with staged(tmp_path)[0].run():
        silent = [connected(tmp_path) for _ in range(400)]
        goes_on(writers)
        # Both ends of each connection are here; those that were ended have one.
        assert open_files() - before < len(silent) + 200
        for made in silent:
            made.close()
