from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from evflow.tools import report
from evflow.tools.watch.survey import Survey
from evflow.tools.watch.view import frame
from tests.watch.fake import link, status, stone, survey


def shown(before: Survey | None, after: Survey, seconds: float = 0.0, **more: Any) -> str:
    later = replace(after, at=after.at + seconds)
    return click.unstyle(report.text(frame(before, later, **more)))


def row(text: str, first: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(first))


def test_frame_shows_rates_queues_and_links() -> None:
    after = status(
        stones={"trades/high": stone(**{"in": 21000, "out": 4400, "busy": 0.75, "queued": 12})},
        uptime=93785.0,
    )
    text = shown(survey(status()), survey(after), 1.0)
    assert row(text, "trades/high") == [
        "trades/high",
        "filter",
        "edge",
        "20,000",
        "4,000",
        "50%",
        "12",
        "21,000",
        "0",
    ]
    assert row(text, "edge → office") == ["edge", "→", "office", "up", "0.42", "ms", "1.5", "MB/s", "0"]
    assert row(text, "edge ")[:3] == ["edge", "lab1", "alive"]
    assert "2 of 2 alive" in text


def test_first_frame_has_no_rates() -> None:
    assert row(shown(None, survey(status())), "trades/high")[:5] == [
        "trades/high",
        "filter",
        "edge",
        "1,000",
        "0",
    ]


def test_frame_tells_troubles_with_what_to_check() -> None:
    text = shown(None, survey(status(links={"office": link("down", trouble="no answer from x")})))
    assert "check: " in text


def test_of_many_stones_those_are_shown_through_which_most_goes() -> None:
    stones = {f"t/s{number}": stone(**{"in": number}) for number in range(50)}
    after = {name: stone(**{"in": 2 * one["in"]}) for name, one in stones.items()}
    text = shown(survey(status(stones=stones)), survey(status(stones=after)), 1.0, most=3)
    assert [line.split()[0] for line in text.splitlines() if line.startswith("t/")] == [
        "t/s47",
        "t/s48",
        "t/s49",
    ]
    assert "47 more" in text


def test_names_are_no_markup_and_do_nothing_to_the_terminal() -> None:
    text = shown(None, survey(status(stones={"t/[red]x[/red]": stone(), "t/\x1b[2Jy": stone()})))
    assert "t/[red]x[/red]" in text
    assert "\x1b[2J" not in text
