"""The store: all or none, whenever the process dies; one process at a time; damage is named."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from evflow.deploy.store import FileStore
from evflow.disk import Store
from evflow.errors import DeployError
from tests import preloaded
from tests.flow.test_full_disk import full_disk

ROOT = Path(__file__).parents[2]

WRITER = """
import sys
from evflow.deploy.store import FileStore
store = FileStore(sys.argv[1])
number = int.from_bytes(store.load().get("a", b""), "big")
while True:
    number += 1
    value = number.to_bytes(4, "big")
    store.save({"a": value, "b": value * 50000, f"only {number}": value, f"only {number - 1}": None})
    print(number, flush=True)
"""
"""Its value "b" is large, and has a file of its own."""

LARGE = 64 << 10


def test_values_come_back(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "new" / "folder")
    store.save({"a": b"1", "b": b"2"})
    store.save({"a": None, "c": b"3", "never": None})
    assert store.load() == {"b": b"2", "c": b"3"}
    store.close()
    store = FileStore(tmp_path / "new" / "folder")
    assert store.load() == {"b": b"2", "c": b"3"}
    store.close()


def test_folder_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    with pytest.raises(DeployError, match=r"is used by another process; give each node a folder of its own"):
        FileStore(tmp_path)
    store.close()
    FileStore(tmp_path).close()


def test_nothing_is_saved_in_a_folder_that_was_deleted(tmp_path: Path) -> None:
    """The file goes on where no start would find it; once the folder is back, all is well."""
    folder, away = tmp_path / "folder", tmp_path / "away"
    store = FileStore(folder)
    store.save({"a": b"1"})
    folder.rename(away)
    with pytest.raises(
        DeployError, match=r"cannot be written: .*deployments.db .*was deleted, moved or replaced"
    ):
        store.save({"a": b"2"})
    away.rename(folder)
    store.save({"b": b"3"})
    store.close()
    store = FileStore(folder)
    assert store.load() == {"a": b"1", "b": b"3"}
    store.close()


@pytest.mark.parametrize("at", [0, 1 << 16, 3 << 16])
def test_damaged_file_is_named(tmp_path: Path, at: int) -> None:
    store = FileStore(tmp_path)
    store.save({f"key {n}": os.urandom(5000) for n in range(100)})
    store.close()
    path = tmp_path / "deployments.db"
    data = bytearray(path.read_bytes())
    data[at : at + 2000] = b"\xff" * 2000
    path.write_bytes(data)
    with (
        pytest.raises(DeployError, match=rf"deployments\.db is damaged.*move {tmp_path}/deployments.\* away"),
        closing(FileStore(tmp_path)) as store,
    ):
        store.load()


def test_file_of_other_things_is_refused(tmp_path: Path) -> None:
    FileStore(tmp_path).close()
    with closing(Store(tmp_path / "deployments.db", "file", "deployments 1", own=False)) as other:
        other.save({1: "text"})
    with pytest.raises(DeployError, match="1 is not a key of bytes"):
        FileStore(tmp_path)


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeployError, match=r"storage folder .*file/folder cannot be used: Not a directory"):
        FileStore(tmp_path / "file" / "folder")


def test_store_that_cannot_be_written_keeps_what_it_had(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.save({"a": b"1"})
    with (
        full_disk(2 * LARGE),
        pytest.raises(DeployError, match=r"cannot be written: .*too large; make room on its disk"),
    ):
        store.save({"a": b"2", **{f"b{n}": bytes(LARGE - 1) for n in range(20)}, "c": bytes(LARGE)})
    assert store.load() == {"a": b"1"}
    assert files(tmp_path) == []
    store.close()


def files(folder: Path) -> list[Path]:
    """The files of large values."""
    return sorted((folder / "values").glob("*"))


@pytest.mark.parametrize("size", [LARGE - 1, LARGE, 3_000_000])
def test_large_value_comes_back_under_the_name_that_it_has_by_then(tmp_path: Path, size: int) -> None:
    value, other = os.urandom(size), os.urandom(size)
    store = FileStore(tmp_path)
    store.save({"a": value, "b": other, "c": other})
    store.save({"c": None}, {"a": "b"})
    store.tidy()
    assert store.load() == {"b": value}
    store.close()
    store = FileStore(tmp_path)
    assert store.load() == {"b": value}
    assert len(files(tmp_path)) == (size >= LARGE)
    store.save({"b": b"small"})
    assert (store.load(), files(tmp_path)) == ({"b": b"small"}, [])
    store.close()


def test_large_value_that_is_damaged_or_gone_is_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.save({"a": os.urandom(LARGE)})
    (file,) = files(tmp_path)
    data = file.read_bytes()
    for wrong in (data[:-1], data + b"x", bytes([data[0] ^ 1]) + data[1:]):
        file.write_bytes(wrong)
        with pytest.raises(
            DeployError, match=rf"file {file} is not what was written; move {tmp_path}/deployments.\* away"
        ):
            store.load()
    file.unlink()
    with pytest.raises(
        DeployError, match=rf"No such file or directory: '{file}'; move {tmp_path}/deployments.\* away"
    ):
        store.load()
    store.close()


def test_file_that_was_written_just_before_a_kill_is_removed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.save({"a": bytes(LARGE)})
    (file,) = files(tmp_path)
    (tmp_path / "values" / file.name.replace(file.name[:4], "0000")).write_bytes(b"begun")
    assert store.load() == {"a": bytes(LARGE)}
    assert files(tmp_path) == [file]
    store.close()


def test_folder_of_large_values_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "values").write_text("")
    with pytest.raises(DeployError, match=rf"cannot be used: .*File exists: '{tmp_path}/values'"):
        FileStore(tmp_path)
    (tmp_path / "values").unlink()
    FileStore(tmp_path).close()


def test_large_value_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    (tmp_path / "values").rename(tmp_path / "away")
    with pytest.raises(DeployError, match=r"cannot be written: .*No such file"):
        store.save({"a": b"1", "b": bytes(LARGE)})
    (tmp_path / "away").rename(tmp_path / "values")
    assert store.load() == {}
    store.close()


@pytest.mark.parametrize("size", [0, 10, LARGE - 1, LARGE, 1_000_000])
def test_value_that_grows_comes_back(tmp_path: Path, size: int) -> None:
    value, random = os.urandom(size), Random(size)
    store = FileStore(tmp_path)
    growing = store.growing(size)
    while growing.size < size:
        growing.add(value[growing.size : growing.size + random.randint(1, 1 + size // 5)])
    assert len(files(tmp_path)) == (size >= LARGE)
    store.save({"a": growing})
    store.save({}, {"a": "b"})
    assert bytes(growing.data) == value
    assert store.load() == {"b": value}
    assert len(files(tmp_path)) == (size >= LARGE)
    store.close()


def test_value_that_is_given_up_before_it_is_whole_leaves_no_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    growing = store.growing(LARGE)
    growing.add(b"begun")
    assert len(files(tmp_path)) == 1
    del growing
    assert files(tmp_path) == []
    store.close()


def test_value_that_cannot_be_written_as_it_grows_is_written_when_it_is_saved(tmp_path: Path) -> None:
    value = os.urandom(2 * LARGE)
    store = FileStore(tmp_path)
    (tmp_path / "values").rename(tmp_path / "away")
    never = store.growing(len(value))
    (tmp_path / "away").rename(tmp_path / "values")
    broken = store.growing(len(value))
    with open("/dev/full", "wb", buffering=0) as full:
        for growing in (never, broken):
            growing.add(value[:LARGE])
            if growing._file is not None:
                growing._file = full  # type: ignore[assignment]
            growing.add(value[LARGE:])
            assert growing._file is None
    store.save({"a": never, "b": broken})
    assert store.load() == {"a": value, "b": value}
    assert len(files(tmp_path)) == 2
    store.close()


@pytest.mark.slow
def test_kill_at_any_moment_leaves_all_of_a_save_or_none(tmp_path: Path) -> None:
    random = Random(5)
    told = 0
    program, folder = tmp_path / "writer.py", tmp_path / "folder"
    program.write_text(WRITER)
    for _ in range(12):
        writer = preloaded.start(program, [str(folder)], stdout=subprocess.PIPE, encoding="utf-8")
        assert writer.stdout is not None
        for _ in range(random.randint(1, 60)):
            told = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        told = max([told, *map(int, writer.stdout.read().split())])
        writer.wait()
        writer.stdout.close()
        store = FileStore(folder)
        kept = store.load()
        store.close()
        number = int.from_bytes(kept["a"], "big")
        # What was told is there; of what was not yet told, all or nothing.
        assert number in (told, told + 1)
        assert kept == {"a": kept["a"], "b": kept["a"] * 50000, f"only {number}": kept["a"]}


@pytest.mark.parametrize("name", ["deployments.generation", "loop", "a\0b", "\ud800"])
def test_a_folder_with_odd_files_or_an_odd_name_is_refused(name: str, tmp_path: Path) -> None:
    FileStore(tmp_path / "used").close()
    folder = tmp_path / name
    if name == "loop":
        folder.symlink_to(folder)
    elif name.startswith("deployments"):
        folder = tmp_path / "used"
        (folder / name).unlink()
        os.mkfifo(folder / name)
    with pytest.raises(DeployError, match=r"cannot be used: \S+"):
        FileStore(folder)
