"""What ``--allow`` lets graphs of others name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import evflow as ev
from evflow.deploy.admission import Admission

MODULE = """
import os, functools, subprocess
from os import _exit
from json import dumps, dumps as listed
from evflow import Graph

__all__ = ["listed", "Graph"]

def show(event): pass

class Desk:
    system = os
    run = subprocess.run
    def __call__(self, event): pass
    def take(self, event): pass
    @staticmethod
    def note(event): pass

class Borrowed(Graph): pass

desk = Desk()
quiet = lambda event: None
later = functools.partial(show)
wrapped = functools.partial(_exit)
"""

ADMITTED = [
    "show",
    "Desk",
    "desk",
    "desk.take",
    "Desk.take",
    "Desk.note",
    "quiet",
    "Borrowed",
    "listed",
    "Graph",
]
REFUSED = [
    "os", "os._exit", "_exit", "dumps", "functools.partial", "Desk.system", "Desk.system._exit", "Desk.run",
    "desk.system.system", "show.__globals__", "show.__class__", "show.__globals__.get", "later", "wrapped",
    "later.func", "wrapped.func", "Borrowed.from_dict", "Graph.from_dict", "listed.__globals__", "Desk.mro",
    "desk.__class__.__subclasses__", "__builtins__", "__loader__.load_module", "__spec__", "show.__call__",
    "__dict__", "__class__", "os.path.join", "subprocess.Popen",
]  # fmt: skip


@pytest.fixture
def admitting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Admission:
    (tmp_path / "admitted_alerts.py").write_text(MODULE)
    (tmp_path / "breaking_alerts.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "admitted_alerts", raising=False)
    return Admission(["admitted_alerts", "breaking_alerts", "os:getpid"], tmp_path)


def _refusal(admitting: Admission, text: str) -> str:
    return admitting.refusal(ev.Terminal(text, on="here"))


@pytest.mark.parametrize("path", ADMITTED)
def test_module_admits_what_it_defines_or_lists(admitting: Admission, path: str) -> None:
    assert _refusal(admitting, f"admitted_alerts:{path}") == ""


@pytest.mark.parametrize("path", REFUSED)
def test_module_does_not_admit_what_it_has_imported(admitting: Admission, path: str) -> None:
    text = f"admitted_alerts:{path}"
    refusal = _refusal(admitting, text)
    assert f"handler {text!r}" in refusal
    # It may have no such name at all, or not one of its own.
    assert f"--allow {text}" in refusal or "cannot be imported" in refusal


def test_single_function_admits_just_that(admitting: Admission) -> None:
    assert _refusal(admitting, "os:getpid") == ""
    assert "start it with --allow os" in _refusal(admitting, "os:_exit")
    assert "start it with --allow os.path" in _refusal(admitting, "os.path:join")


def test_module_that_fails_is_refused_and_ends_nothing(admitting: Admission) -> None:
    for text in ("breaking_alerts:show", "admitted_alerts:missing"):
        assert f"handler {text!r} cannot be imported" in _refusal(admitting, text)
    assert "SystemExit: 3" in _refusal(admitting, "breaking_alerts:show")
