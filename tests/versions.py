"""Runs the quick tests with other Pythons and other versions of the dependencies; see ``docs/testing.md``.

Each combination is installed into a temporary virtual environment. Only the standard library is needed here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["main", "newest_of_each", "places", "pythons"]

CHECKOUT = Path(__file__).parents[1]
FIRST = (3, 12)
"""From which Python on ``--pythons`` takes part; the suite itself runs on the oldest that is allowed."""

QUICK = ["-m", "not slow", "--assert=plain", "--showlocals"]
"""What pytest gets by default: a failure shows the variables, and no test file has its assertions rewritten
for a Python that runs it once."""

MISSING = "NOT TESTED, what it needs cannot be installed"
_SAY = "import sys; print(sys.implementation.name, *sys.version_info[:3], *sys.version_info[3:4])"

Version = tuple[int, int, int]
Command = list[str | Path]


def places() -> list[Path]:
    """The programs that may be a Python: those of PATH, pyenv and uv."""
    home = Path.home()
    folders = [Path(folder) for folder in os.get_exec_path()]
    found = [path for folder in folders for path in sorted(folder.glob("python3*"))]
    found += sorted(Path(os.environ.get("PYENV_ROOT") or home / ".pyenv").glob("versions/*/bin/python"))
    shared = os.environ.get("XDG_DATA_HOME") or home / ".local/share"
    uv = os.environ.get("UV_PYTHON_INSTALL_DIR") or Path(shared, "uv", "python")
    return found + sorted(Path(uv).glob("*/bin/python3"))


def pythons(programs: Iterable[Path]) -> list[tuple[Version, Path]]:
    """Those programs that are a released CPython, and not of a virtual environment, with their versions.

    Args:
        programs: their paths.
    """
    found = []
    for path in programs:
        if not path.name.removeprefix("python").replace(".", "").isdecimal() and path.name != "python":
            continue
        if (path.parent.parent / "pyvenv.cfg").exists():
            continue
        try:
            said = subprocess.run([path, "-c", _SAY], capture_output=True, encoding="utf-8", timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        # A shim of pyenv is there for each version, but starts only those that are chosen.
        match said.stdout.split() if said.returncode == 0 else []:
            case ["cpython", major, minor, micro, "final"]:
                found.append(((int(major), int(minor), int(micro)), path))
    return found


def newest_of_each(found: Iterable[tuple[Version, Path]]) -> list[tuple[Version, Path]]:
    """Of each minor version the newest, from ``FIRST`` on."""
    newest: dict[tuple[int, int], tuple[Version, Path]] = {}
    for version, path in found:
        if version[:2] >= FIRST and (version[:2] not in newest or newest[version[:2]][0] < version):
            newest[version[:2]] = (version, path)
    return [newest[minor] for minor in sorted(newest)]


def _uninstalled(python: Path, folder: Path, oldest: bool) -> str:
    """Makes an environment in which the suite runs; why that cannot be, or "".

    Args:
        python: the Python of it.
        folder: where.
        oldest: whether with the oldest version of each dependency that is allowed, or the newest.
    """
    own = folder / "bin" / "python"
    steps: list[Command] = [[python, "-m", "venv", folder]]
    if oldest:
        # pip always takes the newest.
        if (uv := shutil.which("uv")) is None:
            steps.append([own, "-m", "pip", "install", "-q", "uv"])
        install = "pip install -q --compile-bytecode --resolution lowest-direct -e .[test]".split()
        steps.append([uv or folder / "bin" / "uv", *install, "--python", own])
    else:
        steps.append([own, "-m", "pip", "install", "-q", "-e", ".[test]"])
    for step in steps:
        done = subprocess.run(step, cwd=CHECKOUT, capture_output=True, encoding="utf-8")
        if done.returncode:
            return (done.stderr or done.stdout).strip() or f"{step[1]} ended with {done.returncode}"
    return ""


def _tested(python: Path, oldest: bool, arguments: Sequence[str]) -> tuple[str, int | None]:
    """Runs the tests in an environment that is made for that.

    Args:
        python, oldest: see ``_uninstalled``.
        arguments: for pytest.

    Returns:
        What is said of it in a line, and the exit code of pytest, None if there was nothing to start.
    """
    with tempfile.TemporaryDirectory(prefix="evflow-versions-") as folder:
        if why := _uninstalled(python, Path(folder), oldest):
            print(why)
            return f"{MISSING}: {why.splitlines()[-1]}", None
        own = Path(folder, "bin", "python")
        command: Command = [own, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        last = ""
        with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, encoding="utf-8") as tests:
            assert tests.stdout is not None
            for line in tests.stdout:
                print(line, end="", flush=True)
                last = line.strip() or last
    return last, tests.returncode


def main(given: Sequence[str] | None = None) -> int:
    """The command; its exit code is 1 if a test failed, or this Python cannot have the dependencies."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("--pythons", action="store_true", help="with each Python from 3.12 on that is found")
    parser.add_argument("--oldest", action="store_true", help="with the oldest version of each dependency")
    parser.add_argument("--newest", action="store_true", help="with the newest version of each dependency")
    parser.add_argument("arguments", nargs="*", help="of pytest, after --; else the quick tests")
    options = parser.parse_args(given)
    if not (options.pythons or options.oldest or options.newest):
        parser.error("give --pythons, --oldest or --newest")
    runs: list[tuple[str, Path, bool]] = []
    if options.pythons:
        for version, path in newest_of_each(pythons(places())):
            runs.append((f"Python {'.'.join(map(str, version))}", path, False))
        print("found:", ", ".join(f"{name} ({path})" for name, path, _ in runs) or "no Python from 3.12 on")
    others = len(runs)
    if options.oldest:
        runs.append(("oldest dependencies", Path(sys.executable), True))
    if options.newest:
        runs.append(("newest dependencies", Path(sys.executable), False))
    lines, failed = [], False
    for number, (name, path, oldest) in enumerate(runs):
        print(f"\n== {name}: {path}", flush=True)
        said, code = _tested(path, oldest, options.arguments or QUICK)
        lines.append(f"{name}: {said}")
        # What happens to be on this host need not have all packages yet.
        failed |= number >= others if code is None else code != 0
    print("", *lines, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
