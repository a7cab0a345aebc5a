"""``evflow change``, each of its commands, on real daemons in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_watching_daemons import Run, Site, Trade, run, site

__all__ = ["run", "site"]

pytestmark = pytest.mark.slow


def test_each_command_changes_the_deployment(site: Site, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "stones.py"
    file.write_text("import evflow as ev\nend = ev.Terminal('alerts:show', name='second', on='office')\n")
    given = [
        ("insert", "input.price < 90", "--after", "trades", "--before", "high"),
        ("replace", "high", "input.price > 60"),
        ("move", "high", "office"),
        ("freeze", "high"),
        ("unfreeze", "high"),
        ("link", "trades", f"{file}:end"),
        ("unlink", "trades", "second"),
    ]
    outputs = []
    for command, *arguments in given:
        done = run("change", command, "trades", *arguments)
        assert done.exit_code == 0, done.output
        outputs.append(done.output)
    inserted = outputs[0].split()[1]
    done = run("change", "remove", "trades", inserted)
    assert done.exit_code == 0, done.output
    done = run("change", "attributes", "trades", "high", "level=3", "note=x")
    assert json.loads(done.output) == {"level": 3, "note": "x"}
    data = {
        node["status"]["node"]: node["status"] for node in json.loads(run("status", "--json").output)["nodes"]
    }
    assert "trades/high" in data["office"]["stones"] and "trades/high" not in data["edge"]["stones"]
    assert site.handle["trades"].submit(Trade("IBM", 95.0)) is None
    site.handle["trades"].submit(Trade("IBM", 55.0))
    with site.came:
        assert site.came.wait_for(lambda: site.got == [95.0], 20)


def test_a_second_deployment_of_a_name_is_told_of_the_flag(site: Site, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(site.handle.graph.to_dict()))
    done = run("deploy", file)
    assert done.exit_code == 1
    assert "use evflow change or evflow undeploy, or say --replace\n" in done.output
    assert run("deploy", file, "--replace").exit_code == 0
