"""``python -m evflow``: the command, where scripts are not on the path."""

from __future__ import annotations

from evflow.tools.cli import main

if __name__ == "__main__":
    main(prog_name="evflow")
