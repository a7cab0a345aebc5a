"""How long a function runs until its fuel is spent, for functions that were written to take long.

    python benchmarks/fuel.py [--mixed N] [--seed N]

For each body of a loop it prints the seconds of processor time that 100 million units of fuel take, the most
that a node admits; the slowest come first. It measures a hundredth of that. Each function runs as it does for
a single event: in code that is not optimised. None should take three times the documented second.
"""

from __future__ import annotations

import argparse
import time
from random import Random

import numpy as np

from evflow import Array, Schema, Str
from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Port, Stage, kernel
from evflow.codgen.runtime import new_state
from evflow.codgen.tree import Fault
from evflow.events.encode import encode_dict

MOST = 100_000_000

SCHEMA = Schema(
    "Rec",
    {
        "n": int,
        "x": float,
        "floats": Array[float, 16],
        "padded": Str[64],
        "empty": Str[1000],
        "items": list[str],
        "nested": list[list[str]],
        "text": str,
        "blob": bytes,
    },
)
EVENT = {
    "n": 7,
    "x": 1.7,
    "floats": [0.5] * 16,
    "padded": "a" * 64,
    "empty": "",
    "items": ["x"] * 10_000,
    "nested": [[""] * 1_000] * 10,
    "text": "a" * 1_000_000,
    "blob": "é".encode() * 100_000,
}
ARGUMENTS = ("y", "i", "1e300 + i", "5e-324", "-708.4 - y", "1e-5 * i", "0.999")
PAIRS = ("i, y", "1e-300, 1.07", "1.0000001, i", "1e308, 0.3", "1.7e308, 1e-300", "y, i", "5e-324, 5e-320")
ONE = "sin cos tan asin acos atan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p sqrt cbrt floor round"
TWO = "pow fmod atan2 hypot copysign fmin"
OTHERS = {
    "nothing": "",
    "numbers": "n += i; n *= 3; n ^= i; x = x * y + n;",
    "division": "n /= (i | 1); n = (n + 7) % (i | 1);",
    "slow multiplications": "x = 5e-320 * y; y = x / 3;" * 5,
    "conversions": "n = x; x = n;" * 10,
    "fields": "n += input.n; x += input.x;" * 10,
    "elements": "x += input.floats[i & 15]; local[i & 63] += x;" * 5,
    "branches": "if (i & 1) { if (i & 2) x = sin(i); else x = cos(i); } else x = tan(i);" * 5,
    "an array of its own": "double q[8000]; q[i & 15] = 2; x += q[3];",
    "loops in loops": "long j; for (j = 0; j < 10; j++) ;",
    "padded text": "n += input.padded == input.padded;" * 5,
    "padding": "n += input.empty == input.padded;" * 5,
    "equal texts": "n += input.text == input.text;",
    "ordered texts": "n += input.text < input.text;",
    "a long part": 'n += contains(input.text, "' + "a" * 200 + 'b");',
    "a middle part": 'n += contains(input.text, "aaaaaaab");',
    "a letter": 'n += contains(input.text, "b");',
    "texts in a text": "n += contains(input.text, input.padded);",
    "an item far behind": "n += length(input.items[i & 1 ? 9999 : 0]);",
    "items in items": "n += length(input.nested[i & 1 ? 9 : 0]);",
    "what stands behind lists": "n += length(input.text);",
    "an attribute": 'n += attr_ivalue(input.attrs, "a");',
    "a text attribute": 'set_string_attr(input.attrs, "a", input.blob);',
}


def seconds(body: str) -> float:
    """The seconds that the most fuel would take in a loop with this body."""
    head = "long i; long n = 0; double x = 1.5; double y = 0.3; double local[64];"
    text = f"{{ {head} for (i = 0; i >= 0; i++) {{ {body} }} return n > 0; }}"
    function = build(text, "filter", [Input("input", SCHEMA)], fuel=MOST // 100)
    compiled = kernel((Stage(function, 0, (Port((), 0),)),), SCHEMA)
    event = np.frombuffer(encode_dict(SCHEMA, EVENT), np.uint8)
    offsets, states = np.array([0, len(event)]), [new_state(function)]
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        (fault,) = compiled.run(event, offsets, None, 1, None, states, [{}], {}).faults
        best = min(best, time.thread_time() - began)
        assert fault.fault in (Fault.FUEL, Fault.TEXT), fault
    return best * 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mixed", type=int, default=50, help="bodies that mix the others at random")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    bodies = {
        f"{name}({argument})": f"x = {name}({argument});" * 10
        for name in ONE.split()
        for argument in ARGUMENTS
    }
    bodies |= {f"{name}({pair})": f"x = {name}({pair});" * 10 for name in TWO.split() for pair in PAIRS}
    bodies |= OTHERS
    random, names = Random(given.seed), sorted(bodies)
    for number in range(given.mixed):
        chosen = random.sample(names, 4)
        bodies[f"mix {number}: {', '.join(chosen)}"] = "\n".join(f"{{ {bodies[name]} }}" for name in chosen)
    found = sorted(((seconds(body), name) for name, body in bodies.items()), reverse=True)
    for one, name in found:
        print(f"{one:6.2f} s  {name}")
    print(f"slowest {found[0][0]:.2f} s, median {found[len(found) // 2][0]:.2f} s")


if __name__ == "__main__":
    main()
