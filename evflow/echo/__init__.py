"""ECho event channels: publish and subscribe between processes, without a server.

``Process`` is the place to start; ``docs/echo.md`` tells the rest.
"""

from __future__ import annotations

from evflow.echo.channel import Channel, Member, Subscription
from evflow.echo.process import Process

__all__ = ["Channel", "Member", "Process", "Subscription"]
