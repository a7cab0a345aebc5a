"""One of the demo's processes: runs the stones that are placed on its node.

It talks with the process that started it in lines of JSON: it gets its peers' contacts and tells its own, and
when it is asked it tells what its stones counted. It ends when its input does, so it does not outlive
whoever started it.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import evflow as ev
from evflow.demo.graph import build
from evflow.demo.result import dead_of, fastest

__all__ = ["main"]


def main(name: str, processes: int) -> None:
    """Runs a node of the demo until the standard input ends.

    Args:
        name: the node.
        processes: the number of nodes.
    """
    # Ctrl-C reaches every process of the terminal; the first one ends the others in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = sys.stdin.readline()
    if not line:
        return
    node = ev.Node(name, listen="tcp://127.0.0.1:0", peers=json.loads(line))
    averages: list[ev.EventBatch] = []
    with build(averages.append, processes).run(node=node) as flow:
        _tell(node.contact)
        # It is asked when all is handled, so the counts are exact.
        while sys.stdin.readline():
            _tell(
                {
                    "stats": flow.stats(),
                    "fastest": fastest(averages),
                    "dead": dead_of(flow),
                }
            )


def _tell(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
