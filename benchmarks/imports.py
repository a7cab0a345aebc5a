"""What ``import evflow`` costs beside ``import numpy``, each in fresh interpreters, alternately.

python benchmarks/imports.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile

import table

PROGRAMS = {"import evflow": "import evflow", "import numpy": "import numpy", "nothing": "pass"}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--quick", action="store_true", help="5 interpreters of each instead of 31")
    runs = 5 if arguments.parse_args().quick else 31
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as bytecode:
        for name in list(PROGRAMS) * (runs + 1):
            times[name].append(table.fresh(PROGRAMS[name], bytecode)[1:])
    costs = [
        table.Row(name, *(statistics.median(column) for column in zip(*warm, strict=True)))
        for name, (_, *warm) in times.items()
    ]
    evflow, numpy, nothing = (row.wall for row in costs)
    ratio = (evflow - nothing) / (numpy - nothing)
    table.show("An interpreter that runs …", costs)
    print(f"\nimport evflow takes {ratio:.2f} times import numpy (each less the empty interpreter)")
    table.save("imports", costs, "An interpreter that runs …", ratio=ratio)


if __name__ == "__main__":
    main()
