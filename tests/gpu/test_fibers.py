"""The kernels and the host's code on the emulation of ``tests/gpu/fibers.py``; and that it finds faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evflow.errors import DeviceError
from evflow.gpu.column import Staging
from evflow.gpu.scenarios import ENGINES
from tests.examples import tried
from tests.gpu import fibers
from tests.gpu.conftest import had
from tests.gpu.fibers import Fibers, Wrong, play

pytestmark = pytest.mark.slow

EXAMPLES = 80
"""How many of the first examples find a planted fault."""

KERNEL_FAULTS = {
    "a block does not wait for the event": ("ccm", "ccm", "    __syncthreads();\n", ""),
    "constraints are counted without an atomic": (
        "ccm",
        "ccm",
        "atomicAdd(&counts[filter], 1u) + 1 ==",
        "(counts[filter] = peek(&counts[filter]) + 1) ==",
    ),
    "ids are put in places that another thread has": (
        "clcb",
        "clcb",
        "result[1 + atomicAdd(result, 1u)] = id;",
        "unsigned at = peek(result); *result = at + 1; result[1 + at] = id;",
    ),
    "bits of what was seen are lost": (
        "clcb-grid",
        "grid",
        "if (atomicOr(&seen[(u64)number * words + (subscription >> 5)], bit) & bit)",
        "unsigned *word = &seen[(u64)number * words + (subscription >> 5)], old = peek(word);\n"
        "*word = old | bit;\nif (old & bit)",
    ),
    "a change too many is scattered": (
        "clcb",
        "scatter",
        "if (i < count * words)",
        "if (i <= count * words)",
    ),
    "a filter too many is tested": ("clcb", "clcb", "if (id >= filters)", "if (id > filters)"),
    "a bit too far is shifted": ("clcb-grid", "grid", ">> (32 - bits)", ">> (64 - bits)"),
}
HOST_FAULTS: dict[str, tuple[str, type, str, Callable[..., None]]] = {
    "an answer is read before its copy is done": (
        "clcb-grid",
        fibers.Mark,
        "synchronize",
        lambda self: None,
    ),
    "an answer is read before its stream is done": ("ccm", fibers.Stream, "synchronize", lambda self: None),
    "a batch does not wait for what has changed": (
        "clcb-grid",
        Staging,
        "wait",
        lambda self: setattr(self, "_used", 0),
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_random_calls_are_answered_as_by_the_oracle(engine: str, tmp_path: Path) -> None:
    for seed in range(tried(15)):
        had(
            lambda seed=seed: play(
                engine, seed, Fibers(seed), tmp_path / str(seed) if seed % 3 == 0 else None
            )
        )


def found(engine: str, edit: fibers.Edit = lambda file, text: text) -> bool:
    """Whether one of the first examples fails."""
    for seed in range(EXAMPLES):
        try:
            had(lambda seed=seed: play(engine, seed, Fibers(seed, edit)))
        except (AssertionError, DeviceError, Wrong):
            return True
    return False


@pytest.mark.parametrize("name", KERNEL_FAULTS)
def test_a_fault_in_a_kernel_is_found(name: str) -> None:
    engine, changed, old, new = KERNEL_FAULTS[name]

    def plant(file: str, text: str) -> str:
        assert file != changed or text.count(old) == 1
        return text.replace(old, new) if file == changed else text

    assert found(engine, plant)


@pytest.mark.parametrize("name", HOST_FAULTS)
def test_a_wait_that_is_left_out_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, owner, method, instead = HOST_FAULTS[name]
    monkeypatch.setattr(owner, method, instead)
    assert found(engine)
