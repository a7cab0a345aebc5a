from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from evflow.net.node.keys import KeyRing, generate
from evflow.tools.cli import main


def test_keygen_makes_keys_that_a_node_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["keygen", "edge"])
    assert done.exit_code == 0, done.output
    assert KeyRing("keys", "edge").public in Path("keys/edge.pub").read_text()
    assert stat.S_IMODE(Path("keys/edge.key").stat().st_mode) == 0o600


def test_keygen_says_what_each_file_is_for_and_shows_no_key(tmp_path: Path) -> None:
    folder = tmp_path / "my keys"
    done = CliRunner().invoke(main, ["keygen", "edge", "--dir", str(folder)])
    lines = done.output.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"{folder / 'edge.key'}  the secret key of edge: it stays")
    assert lines[1].startswith(f"{folder / 'edge.pub'}  its public key: copy it")
    for path in folder.iterdir():
        assert path.read_text().splitlines()[-1] not in done.output


def test_keygen_keeps_what_is_there(tmp_path: Path) -> None:
    arguments = ["keygen", "edge", "--dir", str(tmp_path)]
    CliRunner().invoke(main, arguments)
    before = (tmp_path / "edge.key").read_text()
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    assert done.output.startswith(f"Error: {tmp_path / 'edge.key'} is there already")
    assert (tmp_path / "edge.key").read_text() == before


@pytest.mark.parametrize("name", ["../edge", ".edge", "a/b", ""])
def test_keygen_refuses_what_is_no_name(tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(main, ["keygen", name, "--dir", str(tmp_path)])
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    assert "Error: node name" in done.output
    assert list(tmp_path.iterdir()) == []


def test_keygen_has_a_help_text() -> None:
    done = CliRunner().invoke(main, ["keygen", "--help"])
    assert done.exit_code == 0
    assert "[default: keys]" in done.output
    assert "keygen" in CliRunner().invoke(main, ["--help"]).output


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("dead-letters edge=tcp://127.0.0.1:1", "--name NAME"),
        ("node --storage storage", "NAME as the first argument"),
    ],
)
def test_keys_without_a_name_are_told_with_what_to_give(
    command: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    generate(tmp_path / "keys", "clerk")
    result = CliRunner().invoke(main, [*command.split(), "--keys", "keys"])
    assert result.exit_code == 1
    assert f"give {flag}; keys has the keys of clerk" in result.output


@pytest.mark.slow
def test_keygen_in_a_shell_ends_without_a_traceback(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        "from evflow.tools.cli import main; main()",
        "keygen",
        "edge",
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    codes = []
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8")
        assert "Traceback" not in done.stderr
        codes.append(done.returncode)
    assert codes == [0, 1]
