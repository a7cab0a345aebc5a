"""The kernels compile for every card, cost what they may, and round nothing that the CPU does not."""

from __future__ import annotations

import re

import pytest

from tests.gpu.conftest import had
from tests.gpu.nvrtc import BROUGHT, CARDS, KERNELS, compile_kernel, ptx_of, reports
from tests.gpu.toolchain import nvdisasm

pytestmark = pytest.mark.slow

FILES = sorted(path.stem for path in KERNELS.glob("*.cu"))
MOST_REGISTERS = 40
PARTS = {
    "ld.param", "ld.global", "ld.shared", "ld.volatile", "st.global", "st.shared", "st.volatile",
    "atom.global", "bar.sync",
    "mov", "cvta", "cvt", "setp", "selp", "add", "sub", "mul", "mad", "div", "and", "or", "xor", "not", "neg",
    "shl", "shr", "min", "max", "bfi", "bra", "ret",
}  # fmt: skip
"""All instructions that may be used: none for local memory, none that contracts, none that needs more."""

CONTRACTED = ("FFMA", "DFMA")
LOCAL = ("LDL", "STL")

every_file = pytest.mark.parametrize("name", FILES)


@every_file
def test_ptx_is_read_by_old_drivers_and_cards(nvrtc: None, name: str) -> None:
    assert ".version 8.0\n.target sm_75\n" in ptx_of(name)


@every_file
def test_ptx_has_no_instruction_that_would_round_or_spill(nvrtc: None, name: str) -> None:
    text = ptx_of(name)
    opcodes = re.findall(r"^\t(?:@!?%p\d+ )?([a-z][\w.:]*)", text, re.MULTILINE)
    found = {".".join(op.split(".")[: 2 if op[:2] in ("ld", "st", "at", "ba") else 1]) for op in opcodes}
    assert found <= PARTS
    rounded = {
        op for op in opcodes if op.split(".")[0] in ("add", "sub", "mul") and op[-3:] in ("f32", "f64")
    }
    assert all(".rn." in op for op in rounded)
    assert "fma" not in text and "div.f" not in text and ".ftz" not in text


@pytest.fixture(scope="module")
def disassembler() -> None:
    had(nvdisasm)


@every_file
def test_every_card_gets_machine_code_that_spills_and_contracts_nothing(
    nvrtc: None, disassembler: None, name: str
) -> None:
    found = reports((KERNELS / f"{name}.cu").read_text())
    assert list(found) == [f"sm_{card}" for card in CARDS]
    for card, report in found.items():
        assert report.registers and max(report.registers) <= MOST_REGISTERS, f"{card}: {report.registers}"
        assert report.spilled == 0, card
        assert "EXIT" in report.instructions, card
        wrong = [one for one in report.instructions if one.split(".")[0] in CONTRACTED + LOCAL]
        # A subnormal number is not flushed to zero, whatever is done with it; integers are divided by floats.
        wrong += [one for one in report.instructions if ".FTZ" in one and not one.startswith(("F2I", "MUFU"))]
        assert wrong == [], card


@pytest.mark.parametrize(
    ("body", "contracts", "spills"),
    [
        ("x[0] = x[1] * x[2] + x[3];", False, False),
        ("x[0] = __fmaf_rn(x[1], x[2], x[3]);", True, False),
        (
            "float a[32] = {}; for (int i = 0; i < 32; i++) a[(int)x[i]] += x[i]; x[0] = a[(int)x[1]];",
            False,
            True,
        ),
    ],
)
def test_machine_code_that_contracts_or_spills_is_seen(
    nvrtc: None, disassembler: None, body: str, contracts: bool, spills: bool
) -> None:
    for report in reports(f'extern "C" __global__ void f(float *x) {{ {body} }}', (75, 90, 120)).values():
        roots = {one.split(".")[0] for one in report.instructions}
        assert (not roots.isdisjoint(CONTRACTED), not roots.isdisjoint(LOCAL)) == (contracts, spills)
        assert bool(report.spilled) == spills


def test_a_warning_is_an_error(nvrtc: None) -> None:
    with pytest.raises(RuntimeError, match=r"never referenced|never used"):
        compile_kernel('extern "C" __global__ void f() { int a = 1; }', BROUGHT[1], BROUGHT[0])
