"""Hosts for tests: network namespaces joined by a switch, whose cables a test cuts; and keys for them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evflow.net.node.keyfile import generate

__all__ = ["Network", "hosts", "keys_for"]

_QUIET: dict[str, Any] = {"capture_output": True, "encoding": "utf-8"}


class Network:
    """Hosts with one address each, 10.83.0.1 and so on, on one network."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        # Names that no other run has, within the 15 characters of an interface.
        self._tag = f"ev{os.getpid() % 1_000_000}"
        self._hosts = hosts

    def build(self) -> None:
        """Makes the hosts."""
        names = ("hub", *self._hosts)
        self._in("", *(f"netns add {self.space(host)}" for host in names))
        plugged = (
            f"link add port{number} type veth peer name cable netns {self.space(host)}\n"
            f"link set port{number} master bridge up"
            for number, host in enumerate(self._hosts)
        )
        self._in("hub", "link add bridge type bridge", "link set bridge up", *plugged)
        for host in self._hosts:
            self._in(
                host, f"address add {self.address(host)}/24 dev cable", "link set cable up", "link set lo up"
            )

    def remove(self) -> None:
        """Takes all of it away, however much there is."""
        made = [f"netns delete {self.space(host)}" for host in ("hub", *self._hosts)]
        subprocess.run(["ip", "-force", "-batch", "-"], input="\n".join(made), **_QUIET)

    def address(self, host: str) -> str:
        """A host's address."""
        return f"10.83.0.{self._hosts.index(host) + 1}"

    def space(self, host: str) -> str:
        """The name of a host's namespace."""
        return f"{self._tag}{host}"

    def cut(self, host: str) -> None:
        """Pulls a host's cable out."""
        self._in("hub", f"link set port{self._hosts.index(host)} down")

    def mend(self, host: str) -> None:
        """Plugs it in again."""
        self._in("hub", f"link set port{self._hosts.index(host)} up")

    def rename(self, host: str, address: str) -> None:
        """Gives a host another address beside its own."""
        self._in(host, f"address add {address}/24 dev cable")

    def _in(self, host: str, *commands: str) -> None:
        """Has ``ip`` do what it is told, on a host."""
        within = ["-netns", self.space(host)] if host else []
        subprocess.run(["ip", *within, "-batch", "-"], input="\n".join(commands), check=True, **_QUIET)


@contextmanager
def hosts(names: tuple[str, ...]) -> Iterator[Network]:
    """Hosts on one network; skips where they cannot be made."""
    if shutil.which("ip") is None:
        pytest.skip("no network namespaces: there is no program ip (iproute2)")
    made = Network(names)
    try:
        try:
            made.build()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces: {error.stderr.strip()}")
        yield made
    finally:
        made.remove()


def keys_for(folder: Path, names: Sequence[str]) -> Path:
    """A folder with a folder of keys for each, all known to all."""
    for name in names:
        generate(folder / name, name)
    for name in names:
        for other in names:
            if name != other:
                shutil.copy(folder / other / f"{other}.pub", folder / name)
    return folder
