"""The kernels compile for every card, cost what they may, and are shipped as what they compile to."""

from __future__ import annotations

import re

import pytest

from tests.gpu.nvrtc import CARDS, KERNELS, SHIPPED, compile_kernel, reports, shipped

FILES = sorted(path.stem for path in KERNELS.glob("*.cu"))
MOST_REGISTERS = 64
PARTS = {
    "ld.param", "ld.global", "ld.shared", "ld.volatile", "st.global", "st.shared", "st.volatile",
    "atom.global", "bar.sync",
    "mov", "cvta", "cvt", "setp", "selp", "add", "sub", "mul", "mad", "div", "and", "or", "xor", "not", "neg",
    "shl", "shr", "min", "max", "bfi", "bra", "ret",
}  # fmt: skip
"""All instructions that may be used: none for local memory, none that contracts, none that needs more."""

every_file = pytest.mark.parametrize("name", FILES)


@every_file
def test_shipped_ptx_is_what_the_source_compiles_to(nvrtc: None, name: str) -> None:
    assert (KERNELS / f"{name}.ptx").read_text() == shipped(name), "run python -m tests.gpu.nvrtc"


@every_file
def test_shipped_ptx_is_read_by_old_drivers_and_cards(name: str) -> None:
    assert (KERNELS / f"{name}.ptx").read_text().startswith(".version 8.0\n.target sm_75\n")


@every_file
def test_shipped_ptx_has_no_instruction_that_would_round_or_spill(name: str) -> None:
    text = (KERNELS / f"{name}.ptx").read_text()
    opcodes = re.findall(r"^\t(?:@!?%p\d+ )?([a-z][\w.:]*)", text, re.MULTILINE)
    found = {".".join(op.split(".")[: 2 if op[:2] in ("ld", "st", "at", "ba") else 1]) for op in opcodes}
    assert found <= PARTS
    rounded = {
        op for op in opcodes if op.split(".")[0] in ("add", "sub", "mul") and op[-3:] in ("f32", "f64")
    }
    assert all(".rn." in op for op in rounded)
    assert "fma" not in text and "div.f" not in text and ".ftz" not in text


@pytest.mark.slow
@every_file
def test_every_card_gets_machine_code_without_spills(nvrtc: None, name: str) -> None:
    found = reports(name)
    assert list(found) == [f"sm_{card}" for card in CARDS]
    for card, (registers, spilled) in found.items():
        assert registers and max(registers) <= MOST_REGISTERS, f"{card}: {registers}"
        assert spilled == 0, card


def test_a_warning_is_an_error(nvrtc: None) -> None:
    with pytest.raises(RuntimeError, match=r"never referenced|never used"):
        compile_kernel('extern "C" __global__ void f() { int a = 1; }', SHIPPED[1], SHIPPED[0])
