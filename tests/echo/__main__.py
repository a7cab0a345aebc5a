"""Simulates many runs: ``python -m tests.echo [SEEDS] [FIRST]``."""

from __future__ import annotations

import sys

from tests.echo.test_membership import play


def main() -> None:
    count, first = (int(text) for text in [*sys.argv[1:], "1000", "0"][:2])
    for seed in range(first, first + count):
        for deaths in (False, True):
            try:
                play(seed, deaths)
            except AssertionError as error:
                raise SystemExit(f"seed {seed}, deaths {deaths}: {error}") from error
    print(f"{count} seeds, with and without deaths")


main()
