"""The code in the documents runs.

Of each file the ``python`` blocks run as one script, and a ``text`` block after one is what it prints.
Then its ``sh`` and ``console`` blocks run, in order, in the same temporary folder. A comment before a block
changes that: ``<!-- not run: reason -->`` leaves it out, ``<!-- file: NAME -->`` puts it into the folder
under that name before anything runs. A process that a block leaves in the background writes its number to
a file ``NAME.pid``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import evflow
from evflow import echo, staging, tiles
from evflow.tools.cli import main
from tests import preloaded

CHECKOUT = Path(__file__).parents[2]
DOCUMENTS = [CHECKOUT / "README.md", CHECKOUT / "ARCHITECTURE.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?:^<!-- (?P<rule>not run|file): (?P<value>.+?) -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    line: int
    language: str
    text: str
    rule: str | None
    value: str


def blocks(document: Path) -> list[Block]:
    text = document.read_text()
    return [
        Block(text.count("\n", 0, m.start("text")), m["language"], m["text"], m["rule"], m["value"] or "")
        for m in BLOCK.finditer(text)
    ]


def script(found: list[Block]) -> str:
    """The blocks as one Python file in which each keeps its line numbers of the document."""
    lines: list[str] = []
    for block in found:
        lines += [""] * (block.line - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n"


def commands(block: Block) -> str:
    if block.language == "sh":
        return block.text
    return "".join(line[2:] + "\n" for line in block.text.splitlines() if line.startswith("$ "))


@pytest.fixture
def shell_environment(environment: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment in which ``evflow`` and ``python`` are those under test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    preloaded.program(programs / "evflow", "evflow.tools.cli:main")
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    yield environment | {"PATH": f"{programs}:{environment['PATH']}"}
    # What a document starts in the background ends with it, even if it was not read to the end.
    for file in tmp_path.glob("*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


# Those of Spark share a session: see tests/spark/test_examples.py.
@pytest.mark.slow
@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if not path.name.startswith("spark")], ids=lambda path: path.name
)
def test_code_in_document_runs(
    document: Path, program: Callable[[Path], str], shell_environment: dict[str, str], tmp_path: Path
) -> None:
    found = blocks(document)
    for block in found:
        if block.rule == "file":
            (tmp_path / block.value).write_text(block.text)
    run = [block for block in found if block.rule is None]
    source = tmp_path / f"{document.stem}_md.py"
    source.write_text(script([block for block in run if block.language == "python"]))
    printed = program(source)
    for before, block in pairwise(run):
        if before.language == "python" and block.language == "text":
            assert block.text in printed
    for block in run:
        if block.language in {"sh", "console"}:
            place = f"{document.name}:{block.line}"
            code, shown = _ended(commands(block), tmp_path, shell_environment, place)
            assert code == 0, f"{place}\n{shown}"


def _ended(script: str, folder: Path, environment: dict[str, str], place: str) -> tuple[int, str]:
    """The exit code of a script and what it printed; a script that does not end is killed, with all of its
    processes."""
    shell = ["bash", "-euo", "pipefail", "-c", script]
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(
        shell, cwd=folder, env=environment, encoding="utf-8", start_new_session=True, **out
    ) as process:
        try:
            printed, _ = process.communicate(timeout=200)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"{place} has not ended")
    return process.returncode, printed


def test_readme_has_two_commands_that_set_everything_up() -> None:
    setups = [b.text for b in blocks(CHECKOUT / "README.md") if b.text.startswith("python3 -m venv")]
    assert len(setups) == 2
    assert setups[0].endswith("/evflow demo\n")
    assert setups[1].endswith("/pytest\n")
    assert all(text.count("\n") == 1 for text in setups)


def _commands(command: click.Command, path: str) -> Iterator[str]:
    """All commands beneath one, as they are written, and their long options."""
    context = click.Context(command)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from (text for text in parameter.opts + parameter.secondary_opts if text[:2] == "--")
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield f"{path} {name}"
        yield from _commands(found, f"{path} {name}")


@pytest.mark.slow
def test_every_command_option_and_public_name_is_in_a_document() -> None:
    text = "\n".join(document.read_text() for document in DOCUMENTS)
    wanted = {*_commands(main, "evflow"), *evflow.__all__}.union(
        *(part.__all__ for part in (echo, staging, tiles))
    )
    missing = [word for word in wanted if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)]
    assert sorted(missing) == []


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{document.name}: {target}"
        for document in DOCUMENTS
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert broken == []
