"""Daemons that are processes, ``evflow node``, to be killed and started again; none outlives its test."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from tests import preloaded
from tests.deploy.handlers import FILE
from tests.node.processes import ROOT, ProcessError, free_port, wait_for

BEAT = 0.1
HANDLERS = "tests.deploy.handlers"


class DaemonProcess:
    """A process of ``evflow node``.

    Args:
        name: the node's name.
        folder: its storage folder is ``folder/name``; its handlers write to ``folder/name.notes``.
        options: more of ``evflow node``.
        listen: where it listens; a free port by default, the same after each restart.
        host: the network namespace that it runs in; see ``tests.preloaded.start``.
        dead_after: seconds of silence after which it takes a node for dead.
        packages: a folder of packages that only it has.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *options: str,
        listen: str = "",
        host: str = "",
        dead_after: float = 1.0,
        packages: Path | None = None,
    ) -> None:
        self.name = name
        self.contact = listen or f"tcp://127.0.0.1:{free_port()}"
        self._folder = folder
        self._path = os.pathsep.join(map(str, (ROOT, *([packages] if packages else ()))))
        self._host = host
        self._arguments = [
            "node", name, "--listen", self.contact, "--storage", str(folder / name), "--allow", HANDLERS,
            "--heartbeat", str(BEAT), "--dead-after", str(dead_after), *options,
        ]  # fmt: skip
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by __exit__
        self._start()

    def _start(self) -> None:
        self._began = len(self.log)
        environment = os.environ | {"PYTHONPATH": self._path, FILE: str(self._notes)}
        self._process = preloaded.start(
            "evflow.tools.cli:main", self._arguments, env=environment, cwd=self._folder, host=self._host,
            stdout=self._log, stderr=self._log,
        )  # fmt: skip

    def wait_ready(self) -> None:
        """Returns when it listens."""
        wait_for(lambda: "listens at" in self.log[self._began :] or not self.is_running, f"node {self.name}")
        if not self.is_running:
            raise ProcessError(f"node {self.name} ended\n{self.log}")

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has written, over all its restarts."""
        return os.pread(self._log.fileno(), 1 << 24, 0).decode()

    @property
    def _notes(self) -> Path:
        return self._folder / f"{self.name}.notes"

    @property
    def noted(self) -> list[int]:
        """What its handler has noted."""
        if not self._notes.exists():
            return []
        return [int(line) for line in self._notes.read_text().split()]

    def kill(self) -> None:
        """Kills it as ``kill -9`` does."""
        self._process.kill()
        self._process.wait()

    def restart(self, ready: bool = True) -> None:
        """Starts it again on the same folder and contact, after ``kill`` or ``end``."""
        self._start()
        if ready:
            self.wait_ready()

    def stop(self) -> None:
        """Stops it (SIGSTOP) until ``resume``."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self, timeout: float = 20.0) -> int:
        """Ends it in good order; returns its exit code."""
        self._process.terminate()
        return self._process.wait(timeout)

    def __enter__(self) -> DaemonProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self.kill()
        if error is not None:
            sys.stderr.write(f"--- node {self.name}\n{self.log[-4000:]}\n")
        self._log.close()


def hosts_of(*daemons: DaemonProcess) -> dict[str, str]:
    """Where they are, once all of them listen."""
    for daemon in daemons:
        daemon.wait_ready()
    return {daemon.name: daemon.contact for daemon in daemons}
