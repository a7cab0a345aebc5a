"""The program of a besieged node: ``evflow node``, perhaps with a fault planted into it."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal

PLANT = "EVFLOW_SIEGE_PLANT"
FILES = "EVFLOW_SIEGE_FILES"


def main() -> None:
    """Runs the node."""
    faulthandler.enable()
    # A node that hangs is asked where.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    most = int(os.environ[FILES])
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if plant := os.environ.get(PLANT):
        from tests.siege.plants import PLANTS

        PLANTS[plant].patch()
    from evflow.tools.cli import main as evflow

    evflow()
