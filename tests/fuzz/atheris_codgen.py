"""Coverage-guided: text as functions, which run if the front end accepts them.

The first byte of an input says of what kind the function is and what it sees. Run as
``python tests/fuzz/atheris_codgen.py -runs=100000``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import atheris

sys.path[0] = str(Path(__file__).parents[2])

with atheris.instrument_imports(include=["evflow"]):
    from tests.codgen.programs import random_schema
    from tests.fuzz import differential, hostile, samples
    from tests.fuzz.codprograms import CodProgram
    from tests.fuzz.coverage import fuzz
    from tests.fuzz.pyprograms import PyProgram

KINDS = ("filter", "transform", "router")
SCHEMAS = [random_schema(Random(n), "S") for n in range(20)]


def target(data: bytes) -> None:
    """Builds one text, and runs it if it is a function."""
    if not data:
        return
    code = data[1:].decode("utf-8", "surrogateescape")
    kind, schema = KINDS[data[0] % 3], SCHEMAS[data[0] % len(SCHEMAS)]
    made = hostile.built(code, kind, schema, schema if kind == "transform" else None)
    if made is not None:
        random = Random(len(data))
        differential.check(made, samples.inputs(random, schema, 2), random)


def seeds() -> list[bytes]:
    """Valid functions."""
    found = []
    for number in range(3 * len(SCHEMAS)):
        kind, schema = KINDS[number % 3], SCHEMAS[number % len(SCHEMAS)]
        for language in (CodProgram, PyProgram):
            made = language(Random(number), kind, schema, schema if kind == "transform" else None)
            found.append(bytes([number]) + made.text.encode())
    return found


if __name__ == "__main__":
    fuzz(atheris, target, seeds())
