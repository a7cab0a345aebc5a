"""The code in the documents runs.

Of each file the ``python`` blocks run as one script, and a ``text`` block after one is what it prints.
Then its ``sh`` and ``console`` blocks run, in order, in the same temporary folder. A comment before a block
changes that: ``<!-- not run: reason -->`` leaves it out, ``<!-- file: NAME -->`` puts it into the folder
under that name before anything runs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

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
def shell_environment(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """An environment in which ``evflow`` and ``python`` are those under test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("evflow", "-c 'from evflow.cli import main; main()'"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    return environment | {"PATH": f"{programs}:{environment['PATH']}"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_code_in_document_runs(
    document: Path, python: Callable[..., str], shell_environment: dict[str, str], tmp_path: Path
) -> None:
    found = blocks(document)
    for block in found:
        if block.rule == "file":
            (tmp_path / block.value).write_text(block.text)
    run = [block for block in found if block.rule is None]
    source = tmp_path / f"{document.stem}_md.py"
    source.write_text(script([block for block in run if block.language == "python"]))
    printed = python(source)
    for before, block in pairwise(run):
        if before.language == "python" and block.language == "text":
            assert block.text in printed
    for block in run:
        if block.language in {"sh", "console"}:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", commands(block)],
                cwd=tmp_path,
                env=shell_environment,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, f"{document.name}:{block.line}\n{done.stdout}{done.stderr}"


def test_readme_has_two_commands_that_set_everything_up() -> None:
    setups = [b.text for b in blocks(CHECKOUT / "README.md") if b.text.startswith("python3 -m venv")]
    assert len(setups) == 2
    assert setups[0].endswith("/evflow demo\n")
    assert setups[1].endswith("/pytest\n")
    assert all(text.count("\n") == 1 for text in setups)


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{document.name}: {target}"
        for document in DOCUMENTS
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert broken == []
