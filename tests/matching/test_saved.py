from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evflow
from evflow.errors import SubscriptionError
from evflow.matching.matcher import Matcher
from evflow.matching.model import Filter, Subscription
from evflow.matching.outlines import Polygon
from tests.matching.engines import Case, every_engine

SUBSCRIPTIONS: list[Any] = [
    "kind == 'é𝄞' and `odd name` != ''",
    "within(40, 50, 10 km) or size > 3",
    Subscription(()),
    "size > 5 or within(0, 180, 1 m) or exists kind",
]
EVENTS = [
    {"kind": "é𝄞", "odd name": "x", "size": 4},
    {"latitude": 40.01, "longitude": 50},
    {"latitude": 0, "longitude": -180, "kind": 1},
    {},
]
EXPECTED = [[0, 1, 3], [1], [3], []]


def filled(case: Case) -> Matcher:
    matcher = Matcher(case.engine, space="globe", threads=2, **case.options)
    matcher.subscribe_many(SUBSCRIPTIONS)
    matcher.subscribe("size > 0", 5000)
    matcher.unsubscribe(5000)
    return matcher


def results(matcher: Matcher) -> list[list[int]]:
    return [sorted(matcher.match(event).tolist()) for event in EVENTS]


@every_engine
def test_what_is_loaded_is_what_was_saved_and_goes_its_own_way(case: Case, tmp_path: Path) -> None:
    matcher = filled(case)
    matcher.save(tmp_path / "deep" / "folder")
    one, other = (Matcher.load(tmp_path / "deep" / "folder") for _ in range(2))
    for loaded in (one, other):
        assert results(loaded) == EXPECTED
        assert (loaded.engine, loaded.options) == (case.engine, case.options)
        assert (loaded.space, loaded.threads, len(loaded)) == ("globe", 2, 4)
        assert loaded.location == ("latitude", "longitude")
        assert (loaded.stats().filters, loaded.stats().constraints) == (6, 5)
    one.unsubscribe(1)
    one.move(3, 40, 50, 100_000, filter=1)
    with pytest.raises(SubscriptionError, match="no area"):
        one.move(3, 40, 50, filter=0)
    assert one.subscribe_many(["kind == 'new'", "kind == 'é𝄞'"]).tolist() == [1, 4]
    assert results(one) == [[0, 3, 4], [3], [3], []]
    assert results(other) == results(Matcher.load(tmp_path / "deep" / "folder")) == EXPECTED


def test_saving_again_replaces_what_was_there_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    matcher = filled(Case("reference"))
    matcher.save(path)
    first = Matcher.load(path)
    matcher.unsubscribe(0)
    (path / "arrays-left-by-a-kill").mkdir()
    matcher.save(str(path))
    assert sorted(entry.name.partition("-")[0] for entry in path.iterdir()) == ["arrays", "matcher.json"]
    assert (len(Matcher.load(path)), results(first)) == (3, EXPECTED)


def test_an_interrupted_save_leaves_the_old_matcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = filled(Case("reference"))
    matcher.save(tmp_path)
    matcher.unsubscribe(0)

    def fail(folder: Path) -> None:
        (folder / "half.npy").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(matcher._engine, "save", fail)
    with pytest.raises(KeyboardInterrupt):
        matcher.save(tmp_path)
    assert results(Matcher.load(tmp_path)) == EXPECTED
    monkeypatch.undo()
    matcher.save(tmp_path)
    assert len(Matcher.load(tmp_path)) == 3 and len(list(tmp_path.iterdir())) == 2


def described(path: Path, **changes: Any) -> None:
    content = json.loads((path / "matcher.json").read_text())
    (path / "matcher.json").write_text(json.dumps({**content, **changes}))


def arrays(path: Path) -> Path:
    return path / json.loads((path / "matcher.json").read_text())["arrays"]


def cut(path: Path) -> None:
    file = arrays(path) / "engine" / "held_name.npy"
    file.write_bytes(file.read_bytes()[:-1])


def spoil(path: Path) -> None:
    file = arrays(path) / "engine" / "held_name.npy"
    file.write_bytes(b"x" * file.stat().st_size)


DAMAGE: list[tuple[Any, str]] = [
    (lambda path: (path / "matcher.json").unlink(), "holds no saved matcher"),
    (lambda path: (path / "matcher.json").write_text("{"), "cannot be read"),
    (lambda path: (path / "matcher.json").write_bytes(b"\xff"), "cannot be read"),
    (lambda path: (path / "matcher.json").write_text("[1]"), "describes no matcher"),
    (lambda path: described(path, kind="flow"), "describes no matcher"),
    (lambda path: described(path, format=8), "format 8, this evflow reads 7; load it with the evflow that"),
    (lambda path: described(path, engine="later"), "engine 'later'"),
    (lambda path: described(path, options={"depth": 1}), "depth"),
    (lambda path: described(path, names=None), "damaged"),
    (lambda path: described(path, arrays="../elsewhere"), "describes no matcher"),
    (lambda path: described(path, files=[]), "describes no matcher"),
    (lambda path: (arrays(path) / "id_areas.npy").unlink(), "id_areas.npy is missing"),
    (cut, "name.npy has .* bytes instead of"),
    (spoil, "name.npy has another header"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE, ids=range(len(DAMAGE)))
def test_a_folder_that_is_not_whole_is_refused(damage: Any, message: str, tmp_path: Path) -> None:
    filled(Case("reference")).save(tmp_path)
    damage(tmp_path)
    with pytest.raises(SubscriptionError, match=message):
        Matcher.load(tmp_path)


@pytest.mark.parametrize("name", ["heads", "next", "owner", "first", "last", "rings"])
@pytest.mark.parametrize("value", [-9, 1 << 30])
def test_shapes_that_lead_out_of_arrays_are_refused(name: str, value: int, tmp_path: Path) -> None:
    matcher = Matcher("reference")
    matcher.subscribe_many([Filter(area=Polygon([(0, 0), (n + 1, 0), (0, 3)])) for n in range(40)])
    matcher.unsubscribe(20)
    matcher.save(tmp_path)
    assert Matcher.load(tmp_path).match({"x": 0, "y": 0}).size == 39
    file = arrays(tmp_path) / "shaped" / f"{name}.npy"
    held = np.load(file)
    held[-1] = value
    # The header, and the numbers behind it of which a sum is kept, are as they were.
    np.save(file, held)
    with pytest.raises(SubscriptionError, match="boxes and polygons do not fit each other"):
        Matcher.load(tmp_path)


@pytest.mark.parametrize("at", [0, 7, 9, 20, 30, 60, 127])
def test_a_damaged_header_is_refused_by_the_name_of_its_file(at: int, tmp_path: Path) -> None:
    filled(Case("reference")).save(tmp_path)
    file = arrays(tmp_path) / "id_areas.npy"
    data = bytearray(file.read_bytes())
    data[at] ^= 0x55
    file.write_bytes(data)
    with pytest.raises(SubscriptionError, match=r"id_areas\.npy has another header than was saved"):
        Matcher.load(tmp_path)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SubscriptionError, match="not a saved matcher, and not empty"):
        filled(Case("reference")).save(tmp_path)
    with pytest.raises(SubscriptionError, match="cannot save"):
        filled(Case("reference")).save(tmp_path / "notes.txt")
    with pytest.raises(SubscriptionError, match="holds no saved matcher"):
        Matcher.load(tmp_path / "nowhere")
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


def test_options_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    matcher = filled(Case("reference"))
    matcher.options = {"depth": object()}
    with pytest.raises(SubscriptionError, match=r"cannot save a matcher of options .*depth"):
        matcher.save(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_arrays_are_mapped_and_the_files_stay_as_they_are(tmp_path: Path) -> None:
    matcher = filled(Case("reference"))
    matcher.save(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.npy")}
    loaded = Matcher.load(tmp_path)
    base: Any = loaded._ids.areas
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap) and base.mode == "c"
    loaded.unsubscribe(0)
    loaded.move(1, 1, 1, 5)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.npy")} == before


@pytest.mark.slow
def test_another_process_loads_what_was_saved(tmp_path: Path) -> None:
    filled(Case("reference")).save(tmp_path)
    load = f"from evflow.matching import Matcher; m = Matcher.load({str(tmp_path)!r})"
    code = f"{load}; print(m.match({EVENTS[0]!r}))"
    root = Path(evflow.__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.strip() == "[0 1 3]"
