"""The log and the store on it: a kill loses nothing that was acknowledged; damage is refused."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.disk import Log, OwnFile, Store
from evflow.disk import log as log_module
from evflow.errors import FlowError, UnwrittenError
from tests import preloaded
from tests.examples import tried

ROOT = Path(__file__).parents[2]


def opened(path: Path, kind: str = "numbers 1") -> Log:
    return Log(path, "file of numbers", kind)


def read(log: Log) -> list[tuple[Any, bytes]]:
    return [(piece.meta[0], log.body(piece)) for piece in log.pieces()]


def filled(path: Path) -> list[tuple[Any, bytes]]:
    """A log of three files, and what is in it."""
    with closing(opened(path)) as log:
        log.begin([[([0], b"")]])
        log.append([1], b"one" * 100)
        log.roll([[2]])
        log.append([3], b"three")
        log.roll([[4], [5]])
        log.append([6])
        log.append([7], b"seven")
        return read(log)


def test_what_was_written_is_read_again_and_goes_with_its_files(tmp_path: Path) -> None:
    expected = filled(tmp_path / "log")
    assert [number for number, _ in expected] == list(range(8))
    assert {body for _, body in expected} == {b"", b"one" * 100, b"three", b"seven"}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log", "log.00000000", "log.00000001"]
    with closing(opened(tmp_path / "log")) as log:
        assert read(log) == expected
        places = list(log.pieces())
        third = places[3]
        assert [piece.meta[0] for piece in log.pieces(third.segment, third.at)] == [3, 4, 5, 6, 7]
        assert [piece.meta[0] for piece in log.pieces(third.segment, third.end)] == [4, 5, 6, 7]
        log.drop(2)
        assert read(log) == expected[4:]
        log.begin([[([9], b"anew")]])
        assert read(log) == [(9, b"anew")]
    with closing(opened(tmp_path / "log")) as log:
        assert read(log) == [(9, b"anew")]
    assert [file.name for file in tmp_path.iterdir()] == ["log"]


def test_a_log_that_was_thrown_away_begins_anew(tmp_path: Path) -> None:
    filled(tmp_path / "log")
    (tmp_path / "log").unlink()
    with closing(opened(tmp_path / "log")) as log:
        assert not log.begun and read(log) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("gone", ["log.00000000", "log.00000001"])
def test_a_file_that_is_missing_between_others_is_damage(tmp_path: Path, gone: str) -> None:
    expected = filled(tmp_path / "log")
    (tmp_path / gone).unlink()
    if gone.endswith("0"):
        # The owner has deleted it; whether too much is gone only the owner can say.
        with closing(opened(tmp_path / "log")) as log:
            assert read(log) == expected[2:]
    else:
        with pytest.raises(FlowError, match=r"log cannot be used: its file 1 is missing; bring back a copy"):
            opened(tmp_path / "log")


def test_a_file_that_is_cut_anywhere_has_a_whole_beginning_of_what_was_written(tmp_path: Path) -> None:
    expected = filled(tmp_path / "first" / "log") if (tmp_path / "first").mkdir() is None else []
    content = (tmp_path / "first" / "log").read_bytes()
    counts = []
    for length in [*range(0, len(content), 3), len(content)]:
        folder = tmp_path / "cut"
        shutil.copytree(tmp_path / "first", folder)
        (folder / "log").write_bytes(content[:length])
        with closing(opened(folder / "log")) as log:
            found = read(log)
            assert found == expected[: len(found)]
            log.append(["more"], b"more")
        with closing(opened(folder / "log")) as log:
            assert read(log) == [*found, ("more", b"more")]
        counts.append(len(found))
        shutil.rmtree(folder)
    assert counts == sorted(counts) and (counts[0], counts[-1]) == (4, 8)


@pytest.mark.parametrize("name", ["log", "log.00000001"])
def test_a_byte_that_is_damaged_is_refused_or_costs_the_last_piece(tmp_path: Path, name: str) -> None:
    (tmp_path / "first").mkdir()
    expected = filled(tmp_path / "first" / "log")
    content = (tmp_path / "first" / name).read_bytes()
    refused, folder = 0, tmp_path / "first"
    for at in range(len(content)):
        (folder / name).write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        try:
            with closing(opened(folder / "log")) as log:
                found = read(log)
        except FlowError as error:
            refused += 1
            assert ("log cannot be used: " in str(error) and " away" in str(error)) or "another" in str(error)
        else:
            assert found == expected[:-1] and name == "log"
    assert refused >= len(content) - 40


def test_zeros_behind_the_end_are_left_by_a_power_cut_and_no_more_of_them_are_read(tmp_path: Path) -> None:
    expected = filled(tmp_path / "log")
    size = (tmp_path / "log").stat().st_size
    os.truncate(tmp_path / "log", size + 5000)
    with closing(opened(tmp_path / "log")) as log:
        assert read(log) == expected
        log.append(["more"])
        assert log.end == (tmp_path / "log").stat().st_size
    os.truncate(tmp_path / "log", 1 << 40)
    with closing(opened(tmp_path / "log")) as log, pytest.raises(FlowError, match="no piece begins there"):
        read(log)


FOREIGN = {
    "text": (lambda path: path.write_text("hello, this is a text"), "not a file of evflow.*take another"),
    "database": (
        lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(4080)),
        "SQLite database, which an earlier evflow or another program wrote; use up .* or move it away",
    ),
    "fifo": (os.mkfifo, "it is not a regular file"),
    "socket": (lambda path: socket.socket(socket.AF_UNIX).bind(str(path)), "No such device"),
    "folder": (Path.mkdir, "Is a directory"),
    "loop": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    "sparse": (lambda path: (path.touch(), os.truncate(path, 1 << 40)), "it is not a file of evflow"),
    "other kind": (
        lambda path: _begun(path, "letters 1"),
        r"expected numbers 1, found 'letters 1', .*another version of evflow; take another file",
    ),
}  # fmt: skip


def _begun(path: Path, kind: str) -> None:
    with closing(opened(path, kind)) as log:
        log.begin([[([0], b"")]])


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_is_not_such_a_file_is_refused_and_stays_as_it_is(tmp_path: Path, what: str) -> None:
    make, said = FOREIGN[what]
    make(tmp_path / "log")  # type: ignore[no-untyped-call]
    before = os.lstat(tmp_path / "log")
    with pytest.raises(FlowError, match=f"file of numbers .*log cannot be used: .*{said}"):
        opened(tmp_path / "log")
    after = os.lstat(tmp_path / "log")
    assert (before.st_ino, before.st_size, before.st_mtime) == (after.st_ino, after.st_size, after.st_mtime)
    assert [file.name for file in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300, "none/log"])
def test_a_name_that_no_file_has_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FlowError, match=r"file of numbers .* cannot be used: "):
        opened(tmp_path / name)


@pytest.mark.usefixtures("impatient")
def test_one_at_a_time_has_a_log(tmp_path: Path) -> None:
    (tmp_path / "same").symlink_to(tmp_path / "log")
    with (
        closing(opened(tmp_path / "log")),
        pytest.raises(UnwrittenError, match="another stone, flow, node or process has it open"),
    ):
        opened(tmp_path / "same")
    assert [file.name for file in tmp_path.iterdir()] == ["same"]
    with closing(opened(tmp_path / "same")) as log:
        log.begin([[([1], b"")]])
    assert (tmp_path / "same").is_symlink() and (tmp_path / "log").exists()


def test_what_is_appended_late_is_there_unless_another_has_had_the_file(tmp_path: Path) -> None:
    first = opened(tmp_path / "log")
    first.begin([[([0], b"")]])
    first.close()
    first.append_late([1])
    first.append_late([2])
    with closing(opened(tmp_path / "log")) as second:
        first.append_late(["open"])
        assert [number for number, _ in read(second)] == [0, 1, 2]
        second.append([3])
    first.append_late(["changed"])
    (tmp_path / "log").rename(tmp_path / "away")
    second.append_late(["gone"])
    with closing(opened(tmp_path / "away")) as log:
        assert [number for number, _ in read(log)] == [0, 1, 2, 3]


def test_what_could_not_be_written_is_not_there_and_is_written_when_it_can_be(tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(opened(tmp_path / "log")) as log:
        log.begin([[([0], b"")]])
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.end + 100, before[1]))
        try:
            with pytest.raises(UnwrittenError, match="File too large; make room on its disk"):
                log.append([1], bytes(1000))
            assert [number for number, _ in read(log)] == [0]
            shutil.copy(tmp_path / "log", tmp_path / "killed")
            log.append([2])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.append([3])
    for name, expected in (("log", [0, 2, 3]), ("killed", [0])):
        with closing(opened(tmp_path / name)) as log:
            assert [number for number, _ in read(log)] == expected


def test_nothing_is_written_to_a_file_that_is_elsewhere(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "log")) as log:
        log.begin([[([0], b"")]])
        (tmp_path / "log").rename(tmp_path / "away")
        for write in (lambda: log.append([1]), lambda: log.roll([[1]]), log.sync):
            with pytest.raises(
                UnwrittenError, match="moved or replaced while it was open; create its folder"
            ):
                write()
        (tmp_path / "away").rename(tmp_path / "log")
        log.append([1])
        assert [number for number, _ in read(log)] == [0, 1]


class Killed(BaseException):
    """Stands for the end of the process."""


def _dying(steps: int) -> Any:
    """Ends what runs before one of its changes of the disk, after so many; half of a write is made."""
    left = [steps]

    def limited(call: Any, half: Any = None) -> Any:
        def step(*args: Any, **settings: Any) -> Any:
            if left[0] == 0:
                if half is not None:
                    half(*args)
                raise Killed
            left[0] -= 1
            return call(*args, **settings)

        return step

    write = log_module._write

    def torn(file: int, parts: list[Any], at: int) -> None:
        whole = b"".join(parts)
        write(file, [whole[: len(whole) // 2]], at)

    return (
        patch.object(log_module, "_write", limited(write, torn)),
        patch.object(Path, "rename", limited(Path.rename)),
        patch.object(Path, "unlink", limited(Path.unlink)),
    )


steps = st.one_of(
    st.tuples(st.just("save"), st.dictionaries(st.integers(0, 5), st.none() | st.integers(0, 99))),
    st.tuples(st.just("replace"), st.dictionaries(st.integers(0, 5), st.integers(0, 99))),
    st.tuples(st.just("reopen"), st.just({})),
)


@settings(max_examples=tried(50), deadline=None)
@given(st.lists(steps, max_size=12), st.lists(st.integers(0, 12), max_size=6))
def test_a_store_has_what_was_saved_whenever_it_is_killed(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, dict[int, Any]]], kills: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = Store(folder / "kept", "store", "tests 1", own=False)
    expected: dict[int, int] = {}
    for what, values in changes:
        wanted = {} if what == "replace" else dict(expected)
        for key, value in values.items():
            wanted.pop(key, None)
            if value is not None:
                wanted[key] = value
        writes, renames, unlinks = _dying(kills.pop() if kills else 1000)
        try:
            with writes, renames, unlinks:
                if what == "reopen":
                    store.close()
                    store = Store(folder / "kept", "store", "tests 1", own=False)
                else:
                    (store.save if what == "save" else store.replace)(values)
        except Killed:
            store.close()
            store = Store(folder / "kept", "store", "tests 1", own=False)
            assert store.load() in (expected, wanted)
            wanted = store.load()
        expected = wanted
        assert store.load() == expected
    store.close()
    shutil.rmtree(folder)


@settings(max_examples=tried(50), deadline=None)
@given(
    st.lists(st.sampled_from(["append", "roll", "drop", "begin"]), max_size=10), st.lists(st.integers(0, 9))
)
def test_a_log_has_all_pieces_whenever_it_is_killed(
    tmp_path_factory: pytest.TempPathFactory, changes: list[str], kills: list[int]
) -> None:
    """Each file begins with the pieces that were before, so the last such and what follows says all."""
    folder = tmp_path_factory.mktemp("log")

    def unlocked() -> Log:
        return Log(folder / "log", "file of numbers", "numbers 1", own=False)

    log = unlocked()
    numbers: list[int] = []

    def known() -> list[int]:
        found: list[int] = []
        for piece in log.pieces():
            found = list(piece.meta[1:]) if piece.meta[0] == "all" else [*found, piece.meta[1]]
        return found

    for number, change in enumerate(["begin", *changes]):
        wanted = [*numbers, number] if change == "append" else [number] if change == "begin" else numbers
        writes, renames, unlinks = _dying(kills.pop() if kills else 1000)
        try:
            with writes, renames, unlinks:
                if change == "append" and log.begun:
                    log.append(["one", number])
                elif change == "roll" and log.begun:
                    log.roll([["all", *numbers]])
                elif change == "drop":
                    log.drop(log.segment)
                else:
                    wanted = [number]
                    log.begin([[(["old", 0], b"")], [(["all", number], b"")]])
        except Killed:
            log.close()
            log = unlocked()
            assert known() in (numbers, wanted)
            wanted = known()
        numbers = wanted
        assert known() == numbers
    log.close()
    shutil.rmtree(folder)


def test_a_log_that_cannot_be_written_anew_costs_no_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evflow.disk.store._SLACK", 100)
    with closing(Store(tmp_path / "kept", "store", "tests 1")) as store:
        store.save({"a": 0})
        (tmp_path / "kept.new").mkdir()
        for number in range(100):
            store.save({"a": number})
        (tmp_path / "kept.new").rmdir()
        assert store.load() == {"a": 99} and (tmp_path / "kept").stat().st_size > 1000
        for number in range(100):
            store.save({"a": number})
        assert store.load() == {"a": 99} and (tmp_path / "kept").stat().st_size < 1000


def test_a_store_does_not_grow_beyond_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evflow.disk.store._SLACK", 1000)
    path = tmp_path / "kept"
    for start in (0, 500):
        with closing(Store(path, "store", "tests 1")) as store:
            store.save({("key", n): "x" * 100 for n in range(20)})
            for number in range(start, start + 500):
                store.save({("key", number % 10): number})
                assert path.stat().st_size < 10_000
            assert store.load()[("key", 9)] == start + 499 and len(store.load()) == 20
    # Keys that were set last stand behind the others.
    with closing(Store(path, "store", "tests 1")) as store:
        assert list(store.load())[-1] == ("key", 9)


WRITER = """
import sys
from pathlib import Path
from evflow.disk import Store
from tests.examples import tried
import evflow.disk.store
evflow.disk.store._SLACK = 5000
store = Store(Path(sys.argv[1]), "store", "tests 1")
number = store.load().get("number", 0)
while True:
    number += 1
    store.save({"number": number, f"only {number}": number, f"only {number - 1}": None})
    print(number, flush=True)
"""


@pytest.mark.slow
def test_a_kill_of_the_process_at_any_moment_leaves_all_of_a_save_or_nothing(tmp_path: Path) -> None:
    random = Random(5)
    path, program, told = tmp_path / "kept", tmp_path / "writer.py", 0
    program.write_text(WRITER)
    for _ in range(12):
        writer = preloaded.start(program, [str(path)], stdout=subprocess.PIPE, encoding="utf-8")
        assert writer.stdout is not None
        for _ in range(random.randint(1, 500)):
            told = int(writer.stdout.readline())
        writer.kill()
        told = max([told, *map(int, writer.communicate(60)[0].split())])
        with closing(Store(path, "store", "tests 1")) as store:
            kept = store.load()
        assert kept["number"] in (told, told + 1)
        assert kept == {"number": kept["number"], f"only {kept['number']}": kept["number"]}


def test_random_bytes_are_refused_or_read(tmp_path: Path) -> None:
    random, path = Random(7), tmp_path / "log"
    filled(path)
    content = path.read_bytes()
    for _ in range(300):
        at = random.randrange(len(content))
        path.write_bytes(content[:at] + random.randbytes(random.choice([1, 4, 100])) + content[at + 1 :])
        with suppress(FlowError), closing(opened(path)) as log:
            read(log)
    assert OwnFile(path, patience=0).close() is None
