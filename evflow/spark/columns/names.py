"""Names of columns, in which Spark by default takes upper and lower case for one."""

from __future__ import annotations

from collections.abc import Sequence


def indices_of(names: Sequence[str], wanted: str) -> list[int]:
    """Where a name stands: as it is, or else written in other cases.

    Args:
        names: of the columns.
        wanted: of a field.

    Returns:
        The places, from the first on; several where a name stands twice, none where it is missing.

    Example:
        >>> indices_of(["Delay", "DELAY", "delay"], "delay"), indices_of(["Delay", "DELAY"], "delay")
        ([2], [0, 1])
    """
    exact = [at for at, name in enumerate(names) if name == wanted]
    if exact:
        return exact
    folded = wanted.lower()
    return [at for at, name in enumerate(names) if name.lower() == folded]


def quoted(name: str) -> str:
    """A column's name as Spark's expressions take it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"
