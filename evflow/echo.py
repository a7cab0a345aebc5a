"""ECho event channels: publish and subscribe between processes, without a server.

``Process`` is the place to start; ``docs/echo.md`` tells the rest.
"""

from __future__ import annotations

from evflow.stones.echo.channel import Channel, Member, Subscription
from evflow.stones.echo.process import Process

__all__ = ["Channel", "Member", "Process", "Subscription"]
