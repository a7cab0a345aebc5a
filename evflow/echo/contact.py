"""The contact of a channel: the contact of a process, the process's name and the channel's, as one text.

tcp://10.0.0.1:7000/desk/trades
ipc:///run/desk/desk/trades
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

from evflow.errors import LinkError
from evflow.node.contact import Contact
from evflow.outside import shown

__all__ = ["ChannelContact"]


class ChannelContact(NamedTuple):
    """Where a channel can be had. Made by ``parse``; ``str`` gives the text.

    Attributes:
        address: the contact of a process that takes part in it.
        process: that process's name; with keys nobody else may answer there.
        channel: the channel's name, or its key.
    """

    address: str
    process: str
    channel: str

    @classmethod
    def parse(cls, text: object) -> ChannelContact:
        """The contact that a text says.

        Raises:
            LinkError: it says none.
        """
        right = "expected a text such as 'tcp://10.0.0.1:7000/desk/trades', as channel.contact gives it"
        if not isinstance(text, str):
            raise LinkError(f"contact of a channel {shown(text, 300)}: {right}")
        address, _, channel = text.rpartition("/")
        address, _, process = address.rpartition("/")
        if not address or not process or not channel:
            raise LinkError(f"contact of a channel {shown(text, 300)}: {right}")
        try:
            Contact.parse(address)
        except LinkError as error:
            raise LinkError(f"contact of a channel {shown(text, 300)}: {error}; {right}") from None
        return cls(address, unquote(process), unquote(channel))

    def __str__(self) -> str:
        return f"{self.address}/{quote(self.process, safe='')}/{quote(self.channel, safe='@')}"
