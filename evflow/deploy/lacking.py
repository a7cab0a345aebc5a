"""What a flow has and a deployment has not, and what to use in its place."""

from __future__ import annotations

from evflow.errors import DeployError
from evflow.flow.flow import Flow

__all__ = ["missing"]

_IN_PLACE_OF = {
    "extract": "what waits at a stone stays with its node; use transfer or send_stored",
    "failed": "stats() has the errors of each stone, and dead_letters() the events",
    "failure": "status() has the trouble of each node",
    "stop": "undeploy() takes the graph off its nodes at once",
}


class OnlyOfFlowsError(DeployError, AttributeError):
    """A flow has it, a deployment has not; ``hasattr`` says so too."""


def missing(name: str) -> Exception:
    """The error of an attribute that a deployment does not have."""
    if name.startswith("_") or not hasattr(Flow, name):
        return AttributeError(f"'Deployment' object has no attribute {name!r}")
    reason = _IN_PLACE_OF.get(name, "its stones run in other processes")
    return OnlyOfFlowsError(f"a deployment has no {name!r}, which a flow has: {reason}")
