from __future__ import annotations

from itertools import groupby

import pytest

from tests.turns import in_turns

Test = tuple[str, str, int]
"""File, speed, number."""

TESTS = [(file, "slow", number) for file in "abcdef" for number in range(7)]
TESTS += [(file, "quick", number) for file in "abcdef" for number in range(30)]


def is_slow(test: Test) -> bool:
    return test[1] == "slow"


def shares(tests: list[Test], processes: int) -> list[list[Test]]:
    """What each process gets to begin with, as pytest-xdist deals it out with ``worksteal``."""
    given, rest = [], list(tests)
    for left in range(processes, 0, -1):
        given.append(rest[: len(rest) // left])
        del rest[: len(rest) // left]
    return given


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 5])
def test_each_process_begins_with_a_group_or_with_slow_tests(processes: int) -> None:
    def in_b(test: Test) -> bool:
        return test[0] == "b"

    def is_slow_of_e(test: Test) -> bool:
        return test[:2] == ("e", "slow")

    ordered = in_turns(TESTS, processes, [in_b, is_slow_of_e], is_slow, lambda test: test[0])
    assert sorted(ordered) == sorted(TESTS)
    given = shares(ordered, processes)
    for group, share in zip((in_b, is_slow_of_e), given[:-1], strict=False):
        tests = [test for test in TESTS if group(test)]
        assert share[: len(tests)] == tests
    for share in given[2:] or given[-1:]:
        slow = [is_slow(test) for test in share]
        assert slow[0] and slow == sorted(slow, reverse=True)
        files = [file for file, _ in groupby(test[0] for test in share if is_slow(test))]
        assert len(files) == len(set(files))
