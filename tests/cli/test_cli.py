from __future__ import annotations

import contextlib
import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import evflow as ev
from evflow.tools.cli import main
from tests import preloaded

Run = Callable[..., Result]
File = Callable[..., Path]

TRADES = """
import evflow as ev

class Trade(ev.Event):
    symbol: ev.Str[8]
    price: float

g = ev.Graph("trades")
high = g.source("trades", Trade) >> ev.Filter("input.price > 78.5", name="high")
high >> ev.Terminal(lambda trade: print("got", trade.symbol), name="end")
"""

FEED = """
def feed(flow):
    for price in (70.0, 80.0, 90.0):
        flow["trades"].submit(Trade("IBM", price))
"""


@pytest.fixture
def run() -> Run:
    """Runs the command in this process."""
    return lambda *arguments: CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def file(tmp_path: Path) -> File:
    """Writes a graph file."""

    def write(text: str, name: str = "trades.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def started(*arguments: object) -> preloaded.Process:
    """The command in a process of its own."""
    return preloaded.start(
        "evflow.tools.cli:main", list(map(str, arguments)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        encoding="utf-8",
    )  # fmt: skip


def rows(output: str) -> dict[str, list[str]]:
    """A printed table by its first column."""
    return {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.strip()}


def test_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version").output == f"evflow {ev.__version__}\n"


@pytest.mark.parametrize("command", ["demo", "run", "draw", "validate"])
def test_every_command_has_a_help_text(run: Run, command: str) -> None:
    done = run(command, "--help")
    assert done.exit_code == 0
    assert len(done.output.splitlines()) > 5


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands beneath one, by what is typed for them."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


def test_no_command_has_two_parameters_of_one_name() -> None:
    for path, command in commands(main):
        names = [parameter.name for parameter in command.params]
        assert len(names) == len(set(names)), path


@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evflow", "--version"], capture_output=True, encoding="utf-8"
    )
    assert done.stdout == f"evflow {ev.__version__}\n"


def test_run_feeds_the_graph_and_prints_its_counts(run: Run, file: File) -> None:
    done = run("run", file(TRADES + FEED))
    assert done.exit_code == 0, done.output
    assert done.output.count("got IBM") == 2
    table = rows(done.output)
    assert table["stone"][:4] == ["kind", "in", "out", "dropped"]
    assert table["trades"][:3] == ["source", "3", "3"]
    assert table["high"][:4] == ["filter", "3", "2", "1"]
    assert "dead letter" not in done.output


def test_run_prints_dead_letters(run: Run, file: File) -> None:
    done = run("run", file(TRADES.replace('print("got", trade.symbol)', "1 / 0") + FEED))
    assert done.exit_code == 1
    assert "2 dead letters" in done.output
    assert "end: ZeroDivisionError: division by zero" in done.output
    assert "price=80.0" in done.output


def test_errors_speak_of_flags(run: Run, file: File, tmp_path: Path) -> None:
    """Not of arguments of Python's functions, where the command line has flags for them."""
    far = "tcp://192.0.2.1:7000"
    bridged = TRADES + 'high >> ev.Bridge("office", "desk", name="out")\n'
    placed = TRADES + 'for name in g.stones:\n    g.move(name, "edge")\n'
    wanted = "--keys FOLDER, or say --plain if"
    for arguments, told in (
        (["node", "edge", "--listen", far, "--storage", tmp_path / "edge"], wanted),
        (["run", file(placed, "placed.py"), "--node", "edge", "--listen", far], wanted),
        (["run", file(bridged + FEED)], "give --node NAME --peer office=CONTACT"),
    ):
        done = run(*arguments)
        assert done.exit_code == 1 and told in done.output, done.output
        assert not re.search(r"\b\w+=([A-Z]+\b|True|ev\.)", done.output.replace("office=CONTACT", "")), (
            done.output
        )


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "validate"])
def test_output_that_cannot_be_written_is_an_error(command: str, file: File) -> None:
    quiet = TRADES.replace('print("got", trade.symbol)', "None")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "evflow", command, file(quiet + FEED)],
            stdout=full, stderr=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
    told = "Error: the output cannot be written: No space left on device; make room on its disk\n"
    assert (done.returncode, done.stderr) == (1, told)


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        ("raise ValueError", "ValueError"),
        ("raise ev.EvflowError", "EvflowError"),
        ("class Bad(Exception):\n    __str__ = 5\nraise Bad", "Bad, which cannot be shown: its own code "
         "raised TypeError"),
    ],
)  # fmt: skip
def test_an_error_without_a_text_is_named(fails: str, told: str, run: Run, file: File) -> None:
    text = f"import evflow as ev\n{fails}\n"
    path = file(text)
    done = run("validate", path)
    assert (done.exit_code, done.output) == (1, f"Error: {path}:{len(text.splitlines())}: {told}\n")


def test_run_keeps_going(run: Run, file: File) -> None:
    """Where failures are expected they do not change the exit code."""
    failing = file(TRADES.replace('print("got", trade.symbol)', "1 / 0") + FEED)
    assert run("run", failing, "--keep-going").exit_code == 0


def test_run_groups_dead_letters_when_there_are_many(run: Run, file: File) -> None:
    many = FEED.replace("(70.0, 80.0, 90.0)", "range(60, 120)")
    done = run("run", file(TRADES.replace('print("got", trade.symbol)', "1 / 0") + many))
    assert done.output.count("ZeroDivisionError") == 10
    assert "41 at end" in done.output


def test_run_draws_the_counts(run: Run, file: File, tmp_path: Path) -> None:
    picture = tmp_path / "out.svg"
    assert run("run", file(TRADES + FEED), "--draw", picture).exit_code == 0
    assert "3 in" in picture.read_text().replace("\xa0", " ").replace("&#160;", " ")


def test_run_needs_something_that_submits(run: Run, file: File) -> None:
    done = run("run", file(TRADES))
    assert done.exit_code == 1
    assert "defines no feed(flow)" in done.output


def test_validate_takes_a_graph_as_json(run: Run, file: File) -> None:
    class Beat(ev.Event):
        number: int

    g = ev.Graph("clock")
    g.add(ev.Generator("output.number = 1; return 1;", output=Beat, period=1)) >> ev.Terminal(
        "builtins:print"
    )
    path = file(json.dumps(g.to_dict()), "clock.json")
    assert run("validate", path).output == "clock: 2 stones, 1 links, nothing wrong\n"


def test_malformed_json_is_refused(run: Run, file: File) -> None:
    for text in ("{", "[]", '{"name": 1}', "\\x00"):
        done = run("validate", file(text, "graph.json"))
        assert (done.exit_code, type(done.exception)) == (1, SystemExit)
        assert done.output.startswith("Error: ")


def test_validate_names_file_line_and_column_of_a_wrong_function(run: Run, file: File) -> None:
    path = file(TRADES.replace("input.price >", "input.prise >"))
    done = run("validate", path)
    assert done.exit_code == 1
    assert f"{path}:9: " in done.output
    assert "stone 'high' (filter)" in done.output
    assert "symbol, price" in done.output
    excerpt, caret = done.output.splitlines()[-2:]
    assert 0 <= caret.index("^") - excerpt.index("input.prise") < len("input.prise")


def test_wrong_function_in_a_file_of_another_encoding_is_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "trades.py"
    text = "# coding: latin-1\n# Börse\n" + TRADES.replace("input.price >", "input.prise >")
    path.write_bytes(text.encode("latin-1"))
    done = run("validate", path)
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    assert f"{path}:11: " in done.output


def test_validate_lists_everything_that_is_wrong(run: Run, file: File) -> None:
    loose = '\ng["trades"] >> ev.Filter("1", name="loose")\n'
    done = run("validate", file(TRADES.replace("input.price >", "input.prise >") + loose))
    assert "2 problems" in done.output
    assert "input.prise" in done.output
    assert "loose" in done.output


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (TRADES + "\nnonsense\n", 12, "NameError: name 'nonsense' is not defined"),
        (TRADES + "\n1 +\n", 12, "SyntaxError: invalid syntax\n"),
        (TRADES + '\ng.source("trades")\n', 12, "two stones are named 'trades'"),
        (TRADES + "\ndef feed(flow):\n    flow['trades'].submit(Trade('IBM', 'x'))\n", 13, "price"),
        (TRADES + "\ndef feed(flow):\n    flow['trade']\n", 13, "no stone 'trade'"),
        (TRADES + "\ndef feed(flow):\n    [][1]\n", 13, "IndexError"),
    ],
)
def test_error_in_the_users_file_names_file_and_line(
    run: Run, file: File, text: str, line: int, message: str
) -> None:
    path = file(text)
    done = run("run", path)
    assert (done.exit_code, type(done.exception)) == (1, SystemExit)
    assert f"{path}:{line}: " in done.output
    assert message in done.output


def test_counts_are_printed_when_feed_fails(run: Run, file: File) -> None:
    done = run("run", file(TRADES + FEED + "    raise ValueError('enough')\n"))
    assert done.exit_code == 1
    assert rows(done.output)["trades"][:3] == ["source", "3", "3"]
    assert "ValueError: enough" in done.output


def test_graph_is_chosen_by_its_name_or_its_variable(run: Run, file: File) -> None:
    path = file(TRADES.replace("g = ", "one = ").replace("g.", "one.") + "\ntwo = ev.Graph('second')\n")
    assert "several graphs" in run("validate", path).output
    assert run("validate", path, "--graph", "one").output.startswith("trades: 3 stones")
    assert run("validate", path, "--graph", "trades").output.startswith("trades: 3 stones")
    assert "has no stones" in run("validate", path, "--graph", "second").output
    assert "no graph 'third'" in run("validate", path, "--graph", "third").output


def test_file_without_a_graph_is_refused(run: Run, file: File) -> None:
    assert "makes no graph" in run("validate", file("x = 1\n")).output
    assert "expected a Python file" in run("validate", file("x = 1\n", "graph.txt")).output


def test_file_may_import_its_neighbours(run: Run, file: File) -> None:
    file("LIMIT = 78.5\n", "neighbour_of_trades.py")
    path = file("from neighbour_of_trades import LIMIT\n" + TRADES)
    assert run("validate", path).exit_code == 0


def test_draw_writes_a_picture(run: Run, file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = file(TRADES)
    assert run("draw", path).output == "trades.svg\n"
    assert (tmp_path / "trades.svg").read_text().startswith("<svg")
    assert run("draw", path, "-o", "other.png").exit_code == 0
    assert (tmp_path / "other.png").read_bytes().startswith(b"\x89PNG")
    assert "ends in .svg" in run("draw", path, "-o", "other.bmp").output


@pytest.mark.slow
def test_interrupt_handles_what_was_submitted_and_exits_with_130(file: File) -> None:
    # In short sleeps, since a signal that comes just before a sleep does not end it.
    wait = "    for _ in range(600):\n        time.sleep(0.1)\n"
    waiting = FEED + "    import time\n    print('waiting', flush=True)\n" + wait
    p = started("run", file(TRADES + waiting))
    assert p.stdout is not None
    printed = ""
    while "waiting" not in printed:
        printed += p.stdout.readline()
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    assert p.returncode == 130
    # Two threads print, and a line may come between the words of another.
    assert (printed + out).count("IBM") == 2
    assert rows(out)["trades"][:3] == ["source", "3", "3"]
    assert "Traceback" not in err
    assert "interrupted" in err


@pytest.mark.parametrize(
    ("failing", "options", "code"), [(False, [], 130), (True, [], 1), (True, ["--keep-going"], 130)]
)
def test_a_failure_counts_for_more_than_the_interrupt(
    failing: bool, options: list[str], code: int, run: Run, file: File
) -> None:
    """Whoever watches over the command learns of a stone that failed however it was ended."""
    text = TRADES.replace('print("got", trade.symbol)', "1 / 0") if failing else TRADES
    done = run("run", file(text + FEED + "    raise KeyboardInterrupt\n"), *options)
    assert done.exit_code == code, done.output
    assert "interrupted" in done.output


@pytest.mark.slow
def test_generator_runs_until_interrupted(file: File) -> None:
    text = """
import evflow as ev

class Beat(ev.Event):
    number: int

g = ev.Graph("clock")
beats = g.add(ev.Generator("output.number = input.count; return 1;", output=Beat, period=0.01, name="beats"))
beats >> ev.Terminal(lambda beat: print("beat", beat.number, flush=True))
"""
    p = started("run", file(text))
    assert p.stdout is not None
    assert p.stdout.readline() == "beat 0\n"
    time.sleep(0.05)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    assert p.returncode == 130
    assert "beats" in out
    assert "Traceback" not in err


def test_readme_shows_an_error_as_it_is() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    ((code, shown),) = re.findall(r"```python\n(g = [^`]*g\.check\(\)[^`]*)```\n+```text\n([^`]*)```", readme)

    class Trade(ev.Event):
        symbol: ev.Str[8]
        trade_price: float
        size: int

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {"ev": ev, "Trade": Trade})
    assert printed.getvalue() == shown
