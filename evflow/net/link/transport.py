"""What carries messages: sockets in a node, a simulated network in the tests."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

from evflow.codgen.express import Express
from evflow.events.gather import Place

Connection = Hashable
"""A connection, as the transport names it: one that was dialled, or one that somebody else did."""


class Transport(Protocol):
    """Connections between nodes. Messages of one arrive in order, or not at all from some point on."""

    def dial(self, peer: str, contact: str) -> Connection:
        """A new connection to a peer; whether it comes about shows only when something arrives.

        Raises:
            LinkError: the contact is wrong, or there is no key for the peer.
        """

    def send(self, connection: Connection, header: bytes, body: memoryview | None = None) -> bool:
        """Sends a message; False if the connection is known to be gone."""

    def hang_up(self, connection: Connection) -> None:
        """Forgets a connection, with what was not sent yet."""

    def proven_name(self, connection: Connection) -> str | None:
        """The name that the other side has proven by its key; None where keys are not used."""

    def room(self, length: int) -> Place | None:
        """Memory from which so many bytes can be sent without another copy; None if there is none."""

    def share(self, connection: Connection) -> tuple[str, int, bytes] | None:
        """A new file of shared memory for what is sent: its name, size and nonce; None if there is none."""

    def shared(self, connection: Connection, opened: bool) -> None:
        """The other side could open the file, or could not."""

    def place(self, connection: Connection, body: memoryview) -> list[int] | None:
        """Puts bytes into shared memory: block, offset, length; None if they have to be sent."""

    def release(self, connection: Connection, blocks: list[int]) -> None:
        """The other side does not use these blocks any more."""

    def open_share(self, connection: Connection, name: str, size: int, nonce: bytes) -> bool:
        """Opens the other side's file of shared memory.

        Raises:
            LinkError: it is none that may be opened.
        """

    def view(self, connection: Connection, place: list[int]) -> Any:
        """The bytes that the other side has placed: uint8, 1-D, not writeable here, but over there.

        Raises:
            LinkError: there is no such place.
        """

    def keep(self, connection: Connection, block: int, start: int, stop: int) -> None:
        """From now on the other side cannot change a part of a block that is viewed, from one offset in the
        block to another.

        Raises:
            OSError: the system refuses.
        """

    def released(self, connection: Connection) -> list[int]:
        """Blocks of the other side that are no longer used here, each once."""

    def offer_shortcut(self, connection: Connection) -> tuple[str, bytes] | None:
        """A new shortcut, for both directions: its name and token; None if there is none. The next message
        that is sent tells of it."""

    def open_shortcut(self, connection: Connection, name: str, token: bytes) -> bool:
        """Opens what the other side offers; if that comes about, the next message that is sent tells so.

        Raises:
            LinkError: it is none that may be opened.
        """

    def joined(self, connection: Connection, opened: bool) -> None:
        """The other side has opened what was offered to it, or could not."""

    def lend(self, connection: Connection, express: Express) -> bytes | None:
        """Has what sends by itself use the socket over which small messages go, as long as that is open.

        Returns:
            What each message begins with, until another way is taken; None if there is no such socket.
        """

    def leave_shortcut(self, connection: Connection) -> None:
        """From now on all goes over the connection itself."""
