"""The staging demo stores what numpy computes for the whole plate at once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from evflow.tools.cli import main
from evflow.tools.demo import staging

xarray = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")


pytestmark = pytest.mark.slow


def test_demo_stores_and_draws_what_the_equations_say(tmp_path: Path) -> None:
    steps, plate = 3, staging.plate(0, staging.SIDE)[:, 1:-1, 1:-1]
    u, v = plate.copy()
    for _ in range(steps * staging.ITERATIONS):
        spread_u, spread_v = (
            sum(np.roll(one, shift, axis) for shift in (-1, 1) for axis in (0, 1)) - 4 * one for one in (u, v)
        )
        reaction = u * v**2
        u = u + 0.16 * spread_u - reaction + 0.0545 * (1 - u)
        v = v + 0.08 * spread_v + reaction - (0.0545 + 0.062) * v
    store = tmp_path / "run.h5"
    outcome = staging.play(quiet=True, processes=2, steps=steps, store=store)
    with xarray.open_dataset(store, engine="h5netcdf") as run:
        assert run.sizes["step"] == steps
        np.testing.assert_allclose(run.u.sel(step=steps - 1), u, rtol=1e-9)
        np.testing.assert_allclose(run.v.sel(step=steps - 1), v, rtol=1e-9, atol=1e-12)
    assert outcome.result["identical"]
    np.testing.assert_allclose(outcome.result["mean"], v.mean())
    assert outcome.result["bytes"] == steps * 2 * v.nbytes
    drawn = outcome.text.splitlines()[:32]
    # A letter is dark where there is much of the second substance.
    dark = np.array([[letter in "#%@" for letter in line] for line in drawn])
    seen = v[::8, ::4]
    assert seen[dark].min() > seen[~dark].max() > 0.2


def test_demo_prints_one_json_object() -> None:
    asked = ["demo", "staging", "--json", "--processes", "1", "--steps", "2"]
    found = json.loads(CliRunner().invoke(main, asked).stdout)
    assert (found["processes"], found["steps"], found["identical"]) == (1, 2, True)


@pytest.mark.parametrize("there", ["run.h5", "run.zarr", "run.steps"])
def test_demo_refuses_a_store_of_an_earlier_run(tmp_path: Path, there: str) -> None:
    (tmp_path / there).mkdir()
    store = str((tmp_path / there).with_suffix(".h5" if there == "run.steps" else Path(there).suffix))
    found = CliRunner().invoke(main, ["demo", "staging", "--quiet", "--steps", "1", "--store", store])
    assert found.exit_code == 1
    assert "there is one already; give another name" in found.output
