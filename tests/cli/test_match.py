"""``evflow match explain``: why an event satisfies subscriptions, or why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evflow.matching import Matcher
from evflow.tools.cli import main

TEXT = "delay > 45\n7: delay > 45 and carrier == 'UA'\n8: within(0, 0, 1)\n"


def explain(path: Path, event: Any, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["match", "explain", str(path), json.dumps(event), *options])
    return done.exit_code, done.output


@pytest.fixture(params=["text", "folder"])
def subscriptions(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "subscriptions"
    if request.param == "text":
        path.write_text(TEXT)
    else:
        matcher = Matcher("reference", lookup=True)
        texts = ["delay > 45", "delay > 45 and carrier == 'UA'", "within(0, 0, 1)"]
        matcher.subscribe_many(texts, ids=[0, 7, 8])
        matcher.save(path)
    return path


def test_what_matches_is_explained(subscriptions: Path) -> None:
    code, output = explain(subscriptions, {"delay": 50, "x": 0, "y": 0.5})
    assert code == 0
    assert output.splitlines() == [
        "subscription 0 matches",
        "  filter 0 holds: delay > 45",
        "    delay > 45: holds, delay is 50",
        "subscription 8 matches",
        "  filter 0 holds: within(0, 0, 1)",
        "    within(0, 0, 1): holds, the event is at (0, 0.5), 0.5 from the centre",
    ]


def test_what_does_not_match_is_explained_when_asked_for(subscriptions: Path) -> None:
    code, output = explain(subscriptions, {"delay": 50}, "--id", "7", "--id", "0")
    assert code == 1
    assert "    carrier == 'UA': fails, the event has no carrier" in output
    assert "subscription 0 matches" in output


def test_an_event_that_satisfies_nothing_is_told_what_to_ask(subscriptions: Path) -> None:
    assert explain(subscriptions, {}) == (
        1,
        "the event satisfies none of 3 subscriptions; --id ID says why not\n",
    )


def test_ids_may_be_texts(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions"
    named = [
        {"subscription": f"delay > {delay}", "id": id} for delay, id in ((1, "taxi-7"), (2, "9"), (3, 9))
    ]
    path.write_text("\n".join(map(json.dumps, named)))
    code, output = explain(path, {"delay": 0}, "--id", "9", "--id", "taxi-7", "--id", "1")
    assert code == 1
    told = [line.split(" does")[0] for line in output.splitlines() if line.startswith("sub")]
    assert told == ["subscription '9'", "subscription 'taxi-7'", "subscription '9'"]
    assert "there is no subscription '99999999999'" in explain(path, {}, "--id", "9" * 11)[1]


@pytest.mark.parametrize(
    ("event", "options", "expected"),
    [
        ({}, ["--id", "1"], "there is no subscription 1"),
        ([1], [], "expected a JSON object"),
    ],
)
def test_what_is_wrong_is_an_error(
    subscriptions: Path, event: Any, options: list[str], expected: str
) -> None:
    code, output = explain(subscriptions, event, *options)
    assert code != 0
    assert expected in output


def test_a_file_of_text_may_be_on_the_globe(tmp_path: Path) -> None:
    path = tmp_path / "globe.txt"
    path.write_text("within(40.64, -73.78, 50 km)\n")
    globe = ["--space", "globe", "--location", "lat", "lon"]
    assert explain(path, {"lat": 40.64, "lon": -73.78}, *globe)[0] == 0
    assert explain(path, {"lat": 0.0, "lon": 0.0}, *globe, "--id", "0")[0] == 1
