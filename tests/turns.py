"""In which order the processes of the suite take the tests.

pytest-xdist cuts the tests into as many runs as there are processes; who is done with a run takes over
from the end of another. So what makes something costly stands together at the beginning of one run, where
nobody makes it a second time, and every other run begins with its share of the slow tests: the quick ones
fill the gaps at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

__all__ = ["in_turns"]

Test = TypeVar("Test")


def in_turns(
    tests: Iterable[Test],
    processes: int,
    groups: Sequence[Callable[[Test], bool]],
    slow: Callable[[Test], bool],
    file: Callable[[Test], Hashable],
) -> list[Test]:
    """The tests in another order: the run of each process after that of the one before.

    Args:
        tests: as they stand in their files; within a run they stay in this order.
        processes: how many there are.
        groups: say of a test whether it is one of those that one process should begin with.
        slow: whether the other processes should begin with a test.
        file: what it stands in; the slow tests of a file stay together.
    """
    begins: list[list[Test]] = [[] for _ in range(processes)]
    alone = min(len(groups), processes - 1)
    long: dict[Hashable, list[Test]] = {}
    quick = []
    for test in tests:
        chosen = next((number for number in range(alone) if groups[number](test)), None)
        if chosen is not None:
            begins[chosen].append(test)
        elif slow(test):
            long.setdefault(file(test), []).append(test)
        else:
            quick.append(test)
    for together in long.values():
        min(begins[alone:], key=len).extend(together)
    count = sum(map(len, begins)) + len(quick)
    ordered: list[Test] = []
    for number, begin in enumerate(begins):
        # As pytest-xdist cuts them.
        share = (count - len(ordered)) // (processes - number)
        filling = max(0, share - len(begin))
        ordered += begin + quick[:filling]
        del quick[:filling]
    return ordered
