"""Keys: who this node is, who may talk to it, and CurveZMQ on its sockets.

One folder holds them, as with SSH. ``NAME.key`` is a node's secret key and stays on its host; ``NAME.pub`` is
its public key and is copied into the folder of every node that it talks to. A peer is known by its key: the
name of the file that holds it is the peer's name.

A ``KeyRing`` is such a folder, read again when it changes. A ``Gate`` asks it about everyone who connects.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import zmq
from zmq.auth import Authenticator
from zmq.auth.thread import ThreadAuthenticator

from evflow.errors import LinkError
from evflow.net.node.keyfile import (
    checked_name,
    generate,
    key_paths,
    read_public,
    read_secret,
    stamp_of,
    which_name,
)
from evflow.outside import shown

__all__ = ["Gate", "KeyRing", "generate"]

_log = logging.getLogger("evflow.node")

_DOMAIN = "evflow"
_ZAP = "inproc://zeromq.zap.01"
_numbers = itertools.count()


class KeyRing:
    """The keys in a folder, as one node sees them.

    Public keys that are added, changed or removed while the node runs count from the next connection on. A
    file that has become wrong is logged, and its peer not let in.

    Args:
        folder: where the keys are.
        name: this node's name; ``NAME.key`` is its secret key. Without one there is an error that lists those
            that have a key.
        allow: the names of those who may connect; by default everyone whose public key is in the folder.

    Attributes:
        name: this node's name.
        public: its public key, 40 characters of Z85.

    Raises:
        LinkError: a key is missing, malformed or there twice, or others can read the secret one.
    """

    def __init__(
        self, folder: str | os.PathLike[str], name: str | None, allow: Iterable[str] | None = None
    ) -> None:
        if isinstance(allow, str):
            raise LinkError(f"allow={allow!r}: expected a list of names, such as [{allow!r}]")
        if not isinstance(folder, str | os.PathLike):
            raise LinkError(f"keys={shown(folder, 300)}: expected the path of a folder")
        if name is None:
            raise LinkError(f"a node with keys needs a name, that of its key: {which_name(Path(folder))}")
        self.name = checked_name(name)
        self._folder = Path(folder)
        self._allow = None if allow is None else frozenset(checked_name(peer) for peer in allow)
        self._lock = threading.Lock()
        self._secret = read_secret(self._folder, name)
        self.public: str = zmq.curve_public(self._secret.encode()).decode()
        self._stamp = stamp_of(self._folder)
        self._peers, problems = read_public(self._folder, self._stamp)
        self._names = {key: peer for peer, key in self._peers.items()}
        if problems:
            raise LinkError("\n".join(problems))
        if self._peers.get(name, self.public) != self.public:
            secret_path, public_path = key_paths(self._folder, name)
            raise LinkError(f"{public_path} does not belong to {secret_path}; remove both and make new ones")
        for peer in sorted(self._allow or ()):
            self._key_of(peer)

    def serve(self, socket: zmq.Socket[bytes]) -> None:
        """Has a socket let in only whom the context's ``Gate`` lets in; to be called before it is bound."""
        self._identify(socket)
        socket.curve_server = True
        socket.zap_domain = _DOMAIN.encode()
        # Without this ZeroMQ lets everyone in while no gate runs.
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def dial(self, socket: zmq.Socket[bytes], peer: str) -> None:
        """Has a socket talk to that peer and to nobody else; to be called before it is connected.

        ZeroMQ does not try again by itself when a peer has refused: disconnect and connect it then.

        Raises:
            LinkError: the peer's public key is not in the folder.
        """
        self._refresh()
        key = self._key_of(peer)
        self._identify(socket)
        socket.curve_serverkey = key.encode()

    def name_of(self, user_id: str | None) -> str | None:
        """Whose key a ZAP ``User-Id`` is, or None. Who was let in keeps the name until it disconnects."""
        return None if user_id is None else self._names.get(user_id)

    def allows(self, public_key_z85: bytes | str) -> bool:
        """True if the owner of a public key may connect now."""
        self._refresh()
        key = public_key_z85 if isinstance(public_key_z85, str) else public_key_z85.decode("ascii", "replace")
        peer = self._names.get(key)
        if peer is None or self._peers.get(peer) != key:
            return False
        return self._allow is None or peer in self._allow

    def _identify(self, socket: zmq.Socket[bytes]) -> None:
        socket.curve_secretkey = self._secret.encode()
        socket.curve_publickey = self.public.encode()

    def _key_of(self, peer: str) -> str:
        key = self._peers.get(checked_name(peer))
        if key is None:
            path = key_paths(self._folder, peer)[1]
            raise LinkError(f"no public key of {peer!r}: expected {path}; copy it from the host of {peer!r}")
        return key

    def _refresh(self) -> None:
        with self._lock:
            try:
                stamp = stamp_of(self._folder)
            except LinkError as error:
                stamp = ()
                if stamp != self._stamp:
                    _log.error("node %s lets nobody in: %s", self.name, error)
            if stamp == self._stamp:
                return
            peers, problems = read_public(self._folder, stamp)
            for problem in problems:
                _log.error("node %s leaves out a key: %s", self.name, problem)
            # What other threads read meanwhile is replaced as a whole, never changed.
            self._names = self._names | {key: peer for peer, key in peers.items()}
            self._peers = peers
            self._stamp = stamp


class _Freeing(Authenticator):
    def start(self) -> None:
        try:
            super().start()
        except zmq.ZMQError:
            self.zap_socket.close()
            raise

    def stop(self) -> None:
        # A socket that is closed gives up its address some time later: too late for a gate that follows.
        if self.zap_socket is not None and not self.zap_socket.closed:
            self.zap_socket.unbind(_ZAP)
        super().stop()


class _Authenticator(ThreadAuthenticator, _Freeing):
    """What answers ZeroMQ. It stops by ending its thread, then giving up its address, then its socket."""


class Gate:
    """Decides who may connect to the sockets of one context that a ``KeyRing`` serves.

    A thread of its own answers while others shake hands. Sockets without keys are none of its business.

    Args:
        context: whose sockets it guards; a context has one gate.
        keys: whom it lets in.

    Attributes:
        refused: how often somebody with a key was not let in.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: KeyRing) -> None:
        self.refused = 0
        self._context = context
        self._keys = keys
        self._authenticator: _Authenticator | None = None

    def start(self) -> None:
        """Begins to let in; until then nobody is.

        Raises:
            LinkError: the context has a gate already.
        """
        if self._authenticator is not None:
            return
        authenticator = _Authenticator(self._context, log=_log.getChild("gate"))
        # By default it is the object's id, which may be that of one before.
        authenticator.pipe_endpoint = f"inproc://evflow-gate-{next(_numbers)}"
        authenticator.configure_curve_callback(_DOMAIN, self)
        try:
            authenticator.start()
        except zmq.ZMQError as error:
            raise LinkError(f"gate of node {self._keys.name}: {error}; a context has one gate") from error
        authenticator.thread.name = f"evflow {self._keys.name} gate"
        self._authenticator = authenticator

    def stop(self) -> None:
        """Ends its thread, and from now on nobody is let in. It comes before the end of the context."""
        if self._authenticator is not None:
            self._authenticator.stop()
            self._authenticator = None

    def callback(self, domain: str, key: bytes) -> bool:
        """True if a key in Z85 is let in; asked by the authenticator, in its thread."""
        allowed = self._keys.allows(key)
        if not allowed:
            self.refused += 1
            _log.info("node %s refused the key %s", self._keys.name, key.decode("ascii", "replace"))
        return allowed

    def __enter__(self) -> Gate:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
