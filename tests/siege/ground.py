"""Where a siege takes place: hosts that are network namespaces, or loopback with a proxy before each node."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from tests.node.network import Network
from tests.node.processes import free_port
from tests.siege.proxy import Proxy

__all__ = ["Ground", "ground"]

_DISK = "128m"


class Ground(Protocol):
    """Hosts, and what can be done to them.

    Attributes:
        missing: attack → why it cannot be made here.
    """

    missing: dict[str, str]

    def listen(self, host: str) -> str:
        """Where a node listens."""

    def contact(self, host: str) -> str:
        """Where others dial it."""

    def space(self, host: str) -> str:
        """The network namespace of a host; "" where it is that of this process."""

    def cut(self, host: str) -> None:
        """Pulls a host's cable out."""

    def mend(self, host: str) -> None:
        """Plugs it in again."""

    def disk(self, folder: Path) -> None:
        """Makes a folder a small disk of its own, where that can be had."""


def ground(hosts: Sequence[str], stack: ExitStack) -> Ground:
    """The best ground that can be had; ``stack`` takes it away."""
    if os.geteuid() == 0 and shutil.which("ip") is not None:
        network = Network(tuple(hosts))
        stack.callback(network.remove)
        try:
            network.build()
        except subprocess.CalledProcessError as error:
            network.remove()
            why = f"no network namespaces: {error.stderr.strip()}"
        else:
            return _Namespaces(network, stack)
    else:
        why = "not root, or there is no program ip"
    return _Loopback(hosts, why, stack)


class _Namespaces:
    def __init__(self, network: Network, stack: ExitStack) -> None:
        self.missing: dict[str, str] = {}
        self._network = network
        self._stack = stack

    def listen(self, host: str) -> str:
        return f"tcp://{self._network.address(host)}:7000"

    contact = listen

    def space(self, host: str) -> str:
        return self._network.space(host)

    def cut(self, host: str) -> None:
        self._network.cut(host)

    def mend(self, host: str) -> None:
        self._network.mend(host)

    def disk(self, folder: Path) -> None:
        folder.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "siege", str(folder)],
            capture_output=True,
            check=False,
        )
        if mounted.returncode == 0:
            self._stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)
        else:
            self.missing["fill"] = f"no tmpfs: {mounted.stderr.decode().strip()}"


class _Loopback:
    def __init__(self, hosts: Sequence[str], why: str, stack: ExitStack) -> None:
        self.missing = {"fill": f"no small disks: {why}"}
        self._ports = {host: free_port() for host in hosts}
        self._proxies = {
            host: stack.enter_context(Proxy(free_port(), port)) for host, port in self._ports.items()
        }

    def listen(self, host: str) -> str:
        return f"tcp://127.0.0.1:{self._ports[host]}"

    def contact(self, host: str) -> str:
        return f"tcp://127.0.0.1:{self._proxies[host].port}"

    def space(self, host: str) -> str:
        return ""

    def cut(self, host: str) -> None:
        self._proxies[host].cut()

    def mend(self, host: str) -> None:
        self._proxies[host].mend()

    def disk(self, folder: Path) -> None:
        folder.mkdir()
