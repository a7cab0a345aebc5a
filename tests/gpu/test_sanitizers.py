"""The same source under ThreadSanitizer and AddressSanitizer, one CPU thread for each GPU thread."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.gpu.conftest import had
from tests.gpu.nvrtc import KERNELS
from tests.gpu.toolchain import compiled

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).parent / "driver"
BLOCKS = 3
EXPECTED = 2 * "ccm 15 clcb 15 grid 30 left 0\n" + "scattered 96\n"
SANITIZERS = {
    "thread": ["-fsanitize=thread"],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover"],
}

RACES = {
    "a counter without an atomic": (
        "ccm",
        "atomicAdd(&counts[filter], 1u) + 1 ==",
        "(counts[filter] += 1) ==",
    ),
    "no barrier": ("ccm", "    __syncthreads();\n", ""),
    "bits without an atomic": (
        "ccm",
        "atomicOr(&found[subscription >> 5], 1u << (subscription & 31))",
        "found[subscription >> 5] |= 1u << (subscription & 31)",
    ),
    "positions without an atomic": ("clcb", "atomicAdd(result, 1u)", "(result[0]++)"),
    "pairs without an atomic": ("grid", "atomicAdd(result, 1u)", "(result[0]++)"),
}
BOUNDS = {
    "a filter too many": ("clcb", "if (id >= filters)", "if (id > filters)"),
    "a change too many": ("scatter", "if (i < count * words)", "if (i <= count * words)"),
    "a byte too many": ("values", "at + size <= length", "at < length"),
}


def program(kind: str, file: str = "", old: str = "", new: str = "") -> Path:
    """The kernels, once for each block, and what runs them; with an edit of one file."""
    texts = {"values": (KERNELS / "values.cuh").read_text()}
    texts |= {path.stem: path.read_text() for path in sorted(KERNELS.glob("*.cu"))}
    if file:
        assert texts[file].count(old) == 1
        texts[file] = texts[file].replace(old, new)
    values, body = texts.pop("values"), "".join(texts.values())
    body = body.replace('#include "values.cuh"', "").replace('extern "C" __global__ ', "static ")
    body = re.sub(r"#define (CCM|LOC|MATCH)\(", r"#undef \1\n#define \1(", body)
    parts = ['#include "host.h"', values]
    parts += [f"namespace block_{block} {{\n{body}\n}}" for block in range(BLOCKS)]
    parts.append((DRIVER / "race.cpp").read_text())
    options = ["-std=c++20", "-O1", "-g", "-w", "-ffp-contract=off", "-pthread"]
    return compiled([DRIVER / "host.h"], [*options, *SANITIZERS[kind]], ".run", "\n".join(parts))


def run(path: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([path], capture_output=True, encoding="utf-8", timeout=100)
    if "unexpected memory mapping" in done.stderr:
        # ThreadSanitizer cannot work where addresses are as random as some kernels make them.
        done = subprocess.run(["setarch", "-R", path], capture_output=True, encoding="utf-8", timeout=100)
    return done


@pytest.mark.parametrize("kind", SANITIZERS)
def test_kernels_have_no_race_and_touch_nothing_else(kind: str) -> None:
    done = run(had(lambda: program(kind)))
    assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr[:3000]


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_reported(name: str) -> None:
    done = run(had(lambda: program("thread", *RACES[name])))
    assert done.returncode == 66 and "data race" in done.stderr, done.stderr[:2000]


@pytest.mark.parametrize("name", BOUNDS)
def test_an_access_beyond_an_array_is_reported(name: str) -> None:
    done = run(had(lambda: program("address", *BOUNDS[name])))
    assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr, done.stderr[:2000]
