"""What a version of a deployment changed, in lines for the log of each of its nodes."""

from __future__ import annotations

import logging

from evflow.deploy.record import Record, stones_of

__all__ = ["differences", "say_adopted"]

_log = logging.getLogger("evflow.deploy")

_MOST = 100
"""Lines about stones for one version."""


def say_adopted(node: str, old: Record | None, new: Record) -> None:
    """Says in the log that a version runs here, and what differs from the one before.

    Args:
        node: this node.
        old: what ran here before; None if nothing did.
        new: what runs now.
    """
    head = f"deployment {new.deployment}, version {new.version}"
    if new.graph is None:
        _log.info("%s: it is undeployed", head)
        return
    if old is None:
        _log.info("%s runs here: %d stones on %s", head, len(stones_of(new)), ", ".join(sorted(new.hosts)))
    else:
        _log.info("%s runs here, after version %d", head, old.version)
    lines = differences(node, old, new)
    for line in lines[:_MOST]:
        _log.info("%s: %s", head, line)
    if len(lines) > _MOST:
        _log.info("%s: and %d more differences", head, len(lines) - _MOST)


def differences(node: str, old: Record | None, new: Record) -> list[str]:
    """What differs between two versions on a node: a line for each stone there, and for each host.

    Args:
        node: the node.
        old: the version before; None for all that is frozen from the beginning.
        new: the version after.
    """
    after = stones_of(new)
    before = after if old is None else stones_of(old)
    here = {name for stones in (before, after) for name, stone in stones.items() if stone["on"] == node}
    lines = [f"stone {name!r} is removed" for name in before if name in here and name not in after]
    for name, stone in after.items():
        if name not in here:
            continue
        was = before.get(name)
        if was is None:
            lines.append(f"stone {name!r} comes")
            continue
        if was["on"] != stone["on"]:
            lines.append(f"stone {name!r} is moved from {was['on']} to {stone['on']}")
        if was | {"on": ""} != stone | {"on": ""}:
            lines.append(f"stone {name!r} is replaced")
    was_frozen, frozen = here & set(() if old is None else old.frozen), here & set(new.frozen)
    lines += [f"stone {name!r} is frozen" for name in sorted(frozen - was_frozen)]
    lines += [f"stone {name!r} is unfrozen" for name in sorted(was_frozen - frozen) if name in after]
    if old is not None:
        lines += [f"host {host} joins" for host in new.hosts if host not in old.hosts]
        lines += [f"host {host} leaves" for host in old.hosts if host not in new.hosts]
    return lines
