from __future__ import annotations

import click

from evflow.tools.report import stats_table, table


def plain(text: str) -> list[str]:
    return click.unstyle(text).splitlines()


def test_numbers_stand_to_the_right_and_texts_to_the_left() -> None:
    assert plain(table(["name", "n"], [["a", 1], ["long name", 1000], ["b", 2.55]])) == [
        "name           n",
        "a              1",
        "long name  1,000",
        "b            2.5",
    ]


def test_table_without_rows_is_its_header() -> None:
    assert plain(table(["name", "n"], [])) == ["name  n"]


def counts(**given: float) -> dict[str, float]:
    return dict.fromkeys(("in", "out", "dropped", "errors", "unmatched", "queued", "busy"), 0) | given


def test_seldom_counts_are_shown_only_where_there_are_any() -> None:
    quiet = plain(stats_table({"a": counts(**{"in": 5, "out": 5})}, {"a": "source"}))
    assert quiet[0].split() == ["stone", "kind", "in", "out", "busy", "ms"]
    loud = plain(stats_table({"a": counts(errors=2), "b": counts(queued=1)}, {}))
    assert loud[0].split() == ["stone", "kind", "in", "out", "queued", "errors", "busy", "ms"]


def test_rate_is_events_in_a_second() -> None:
    shown = plain(stats_table({"a": counts(**{"in": 3000, "busy": 0.0125})}, {"a": "source"}, seconds=1.5))
    assert shown[1].split() == ["a", "source", "3,000", "0", "12.5", "2,000"]


def test_nodes_are_a_column() -> None:
    stats = {"a": counts(**{"in": 5, "out": 5}), "b": counts(**{"in": 5})}
    shown = plain(stats_table(stats, {"a": "source", "b": "terminal"}, nodes={"a": "edge", "b": "office"}))
    assert shown[0].split()[:3] == ["stone", "kind", "node"]
    assert [line.split()[2] for line in shown[1:]] == ["edge", "office"]
