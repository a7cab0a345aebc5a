"""Whatever becomes of one file of a daemon's folder: what was promised is there, or the store is refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from evflow.deploy.store import FileStore
from evflow.errors import DeployError
from tests.examples import tried

CASES = tried(45)
"""Damages of each file anywhere in it."""

HEADS = min(tried(30), 100)
"""Damages of each file where the heads of files stand."""


def written(folder: Path, rng: Random) -> tuple[FileStore, dict[str, bytes]]:
    """A store that has a past, and what it has to have, as kept by a dict."""
    store = FileStore(folder)
    expected: dict[str, bytes] = {}
    for number in range(30):
        values = {f"key {rng.randrange(12)}": rng.randbytes(rng.choice([3, 400, 9000])) for _ in range(3)}
        values["large"] = rng.randbytes(70_000)
        store.save(values)
        expected |= values
        if number % 7 == 6:
            old = rng.choice(sorted(expected))
            store.save({}, {old: f"renamed {number}"})
            expected[f"renamed {number}"] = expected.pop(old)
    return store, expected


def damaged(path: Path, rng: Random) -> Iterator[str]:
    """Damages a file in one way after the other; each time it is as before, but for that."""
    data = path.read_bytes()
    for case in range(CASES):
        at = rng.randrange(len(data))
        if case % 3 == 0:
            path.write_bytes(data[:at])
            yield f"cut at {at}"
        elif case % 3 == 1:
            length = rng.choice([1, 100, 4096])
            path.write_bytes(data[:at] + bytes(length) + data[at + length :])
            yield f"{length} bytes lost at {at}"
        if case % 3 == 2:
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
            yield f"a bit flipped at {at}"
    for at in sorted(rng.sample(range(100), HEADS)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        yield f"a bit flipped at {at}"
    path.unlink()
    yield "gone"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["killed", "closed"])
def test_damage_of_one_file_has_no_effect_or_is_refused(tmp_path: Path, end: str) -> None:
    rng = Random(11)
    store, expected = written(tmp_path / "first", rng)
    if end == "closed":
        store.close()
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "first", kept)
    if end == "killed":
        store.close()
    names = [str(file.relative_to(kept)) for file in sorted(kept.rglob("*")) if file.is_file()]
    names.remove("lock")
    assert {"deployments.db", "deployments.generation"} <= set(names)
    refused = dict.fromkeys(names, 0)
    for name in names:
        source = tmp_path / "source"
        shutil.copy(kept / name, source)
        for what in damaged(source, rng):
            folder = tmp_path / "damaged"
            shutil.copytree(kept, folder)
            (folder / name).unlink()
            if source.exists():
                shutil.copy(source, folder / name)
            found = opened(folder, f"{name}: {what}")
            refused[name] += found is None
            assert found in (None, expected), f"{name}: {what}: {sorted(found)}"
            shutil.rmtree(folder)
    assert all(refused.values()), refused


def opened(folder: Path, what: str) -> dict[str, bytes] | None:
    """What is in a store, also after another has been written to it; None if it is refused."""
    try:
        store = FileStore(folder)
    except DeployError as error:
        assert f"move {folder}/deployments.* away" in str(error), what
        return None
    try:
        found = store.load()
        store.save({"another": b"1"})
    except DeployError:
        return None
    finally:
        store.close()
    again = FileStore(folder)
    assert again.load() == {**found, "another": b"1"}, what
    again.close()
    return found


@pytest.mark.parametrize("cut", [1, 60])
def test_a_file_that_has_lost_its_end_is_refused(tmp_path: Path, cut: int) -> None:
    """As after a kill in the middle of a write; but what it has lost was promised."""
    with closing(FileStore(tmp_path)) as store:
        for number in range(10):
            store.save({"promised": b"%d" % number})
    path = tmp_path / "deployments.db"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(
        DeployError, match=r"latest change that it has is [89], and 10 were made.*move .*deployments"
    ):
        FileStore(tmp_path)


def test_a_kill_before_the_first_save_leaves_a_folder_that_can_be_used(tmp_path: Path) -> None:
    FileStore(tmp_path).close()
    assert not (tmp_path / "deployments.db").exists()
    for _ in range(2):
        store = FileStore(tmp_path)
        store.save({"a": b"1"})
        assert store.load() == {"a": b"1"}
        store.close()


def test_a_guard_that_cannot_be_written_costs_no_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(tmp_path)
    store.save({"a": b"1"})
    os.rename(tmp_path / "deployments.generation", tmp_path / "aside")
    store.save({"a": b"2"})
    assert "deployments.generation cannot be written" in store.trouble.why
    os.rename(tmp_path / "aside", tmp_path / "deployments.generation")
    store.save({"b": b"3"})
    assert store.trouble.why == ""
    store.close()
    with closing(FileStore(tmp_path)) as store:
        assert store.load() == {"a": b"2", "b": b"3"}
