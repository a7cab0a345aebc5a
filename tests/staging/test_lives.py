"""Steps whose numbers come again, of an earlier run or an earlier life, are safe for no other writer."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from evflow.staging import Writer
from evflow.staging.messages import FromWriter, Hello, Ready, decode
from tests.node.processes import wait_for
from tests.staging.application import HEAT, PLENTY, heat, write
from tests.staging.test_stage import check, staged

OTHER = "step 1 is in the store with bytes of another process that was rank 0"


@pytest.mark.parametrize("announced", ["before", "later", "to one that is killed"])
def test_a_step_of_an_earlier_run_is_not_safe_for_a_later_one(tmp_path: Path, announced: str) -> None:
    for run, fate in ((0, ""), (1, OTHER)):
        made = [Writer(tmp_path / "socket", rank, 2, [HEAT], budget=PLENTY) for rank in range(2)]
        graph, _ = staged(tmp_path)
        if announced != "later":
            for rank, writer in enumerate(made):
                write(writer, rank, 1)
        if announced == "to one that is killed":
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as node:
                node.bind(str(tmp_path / "socket"))
                node.listen()
                for connection, _ in [node.accept() for _ in made]:
                    with connection:
                        kinds = {type(decode(connection.recv(1 << 17), FromWriter)) for _ in range(2)}
                    assert kinds == {Hello, Ready}
        with graph.run():
            if announced == "later":
                for rank, writer in enumerate(made):
                    write(writer, rank, 1)
            for rank, writer in enumerate(made):
                write(writer, rank, 2 + run)
            for writer in made:
                writer.close(20)
            assert made[0].fates() == [(1, fate), (2 + run, "")]
    check(tmp_path / "run.h5", [1, 2, 3])


def test_a_step_of_an_earlier_life_is_not_safe_for_a_restarted_writer(tmp_path: Path) -> None:
    at: Any = (tmp_path / "socket", 0, 2, [HEAT])
    graph, _ = staged(tmp_path)
    with graph.run(), Writer(*at[:1], 1, *at[2:], budget=PLENTY) as other:
        earlier = Writer(*at, budget=PLENTY)
        write(earlier, 0, 1)
        wait_for(lambda: "rank 1 has not announced step 1" in earlier.why(), "the step to be pulled")
        earlier.close(timeout=0)
        with Writer(*at, budget=PLENTY) as later:
            later.write(1, {"heat": (heat(5)[:32], (0, 0))}, time=1 / 4)
            wait_for(lambda: "rank 1" in later.why(), "the answer")
            write(other, 1, 1)
            later.drain(20)
            other.drain(20)
            assert later.fates() == [(1, OTHER)]
            assert (later.safe, other.safe) == (-1, 1)
    check(tmp_path / "run.h5", [1])
