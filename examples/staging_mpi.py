"""The plate of ``staging_heat.py`` over MPI: ``mpirun -n 2 python examples/staging_mpi.py``, with mpi4py.

Without mpi4py, or started by itself, it does what ``staging_heat.py`` does. The staging node is in the first
process, and needs no MPI.
"""

from __future__ import annotations

from typing import Any

import staging_heat


def mpi() -> Any:
    """What two processes speak over that ``mpirun`` has started; None if there are no two."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as missing:
        print(f"without MPI: {missing}")
        return None
    return MPI.COMM_WORLD if MPI.COMM_WORLD.size == 2 else None


def main() -> None:
    world = mpi()
    if world is None:
        staging_heat.main()
        return
    rank, other = world.rank, 1 - world.rank

    def solved(socket: str) -> None:
        socket = world.bcast(socket)
        staging_heat.solve(rank, lambda row: world.sendrecv(row, other, source=other), socket)
        # Both have heard by now that their steps are safe, so the staging node may end.
        world.barrier()

    if rank == 0:
        staging_heat.main(solved)
    else:
        solved("")


if __name__ == "__main__":
    main()
