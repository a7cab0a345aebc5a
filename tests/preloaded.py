"""Processes of Python that begin with the package loaded: forks of one that has imported it.

To start Python and import the package takes half a second of CPU time, and tests start hundreds of processes.
In every other way these are processes of their own: killed, stopped, waited for, with pipes and an
environment.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

__all__ = ["Process", "printed", "program", "start"]

ROOT = Path(__file__).parents[1]
LOADED = (
    "evflow", "evflow.codgen.reading", "evflow.codgen.rows", "evflow.codgen.source.cod",
    "evflow.codgen.source.pyfunc", "evflow.codgen.validate", "evflow.deploy.daemon", "evflow.deploy.handle",
    "evflow.echo", "evflow.stones.filter", "evflow.stones.generator", "evflow.stones.queue",
    "evflow.stones.router", "evflow.stones.source", "evflow.stones.storage", "evflow.stones.terminal",
    "evflow.tools.cli", "evflow.tools.watch.endpoint", "evflow.tools.watch.view", "importlib.metadata",
    "rich.console", "rich.progress", "rich.table",
    "tests.conformance.bridge_graphs", "tests.deploy.handlers", "tests.echo.processes", "tests.node.graphs",
)  # fmt: skip


class Process:
    """A process, with what tests use of ``subprocess.Popen``.

    Attributes:
        pid: its number.
        returncode: as of ``Popen``, None while it runs.
        stdin: the pipe to it, if it has one.
        stdout, stderr: the pipes from it, if it has them.
    """

    def __init__(self, server: _Server, pid: int, pipes: Sequence[IO[Any] | None]) -> None:
        self._server = server
        self.pid = pid
        self.stdin, self.stdout, self.stderr = pipes

    @property
    def returncode(self) -> int | None:
        return self._server.ended.get(self.pid)

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        if self.returncode is None:
            self._server.look()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended.

        Raises:
            TimeoutExpired: it did not end within ``timeout`` seconds.
        """
        began = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() - began > timeout:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.005)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """What it has written, no more than its pipes hold, once it has ended; None where there is no
        pipe, or not any more.

        Raises:
            TimeoutExpired: it did not end within ``timeout`` seconds.
        """
        self.wait(timeout)
        if self.stdin is not None:
            self.stdin.close()
        return _rest(self.stdout), _rest(self.stderr)

    def kill(self) -> None:
        """Sends it SIGKILL, if it runs."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Sends it SIGTERM, if it runs."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: int) -> None:
        """Sends it a signal, if it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _rest(pipe: IO[Any] | None) -> Any:
    if pipe is None or pipe.closed:
        return None
    with pipe:
        return pipe.read()


def start(
    program: str | Path,
    arguments: Sequence[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    host: str = "",
    stdin: IO[Any] | int = subprocess.DEVNULL,
    stdout: IO[Any] | int = subprocess.DEVNULL,
    stderr: IO[Any] | int = subprocess.DEVNULL,
    encoding: str | None = None,
) -> Process:
    """Starts a process, which leads a group of its own.

    Args:
        program: ``module:function``, or a file that runs as ``python FILE`` does.
        arguments: ``sys.argv`` after its first.
        env: its environment; that of this process by default. What its ``PYTHONPATH`` has it can import.
        cwd: its working directory.
        host: the network namespace that it runs in, by the name that ``ip netns`` knows; "" for this one's.
        stdin: as of ``Popen``: a file, ``DEVNULL`` or ``PIPE``.
        stdout: likewise.
        stderr: likewise.
        encoding: of the pipes; bytes by default.
    """
    ours: list[IO[Any] | None] = [None, None, None]
    given = []
    opened = []
    for number, wanted in enumerate((stdin, stdout, stderr)):
        if wanted == subprocess.DEVNULL:
            opened.append(os.open(os.devnull, os.O_RDWR))
        elif wanted == subprocess.PIPE:
            ends = os.pipe()
            mine, theirs = ends if number else ends[::-1]
            opened.append(theirs)
            mode = ("r" if number else "w") + ("" if encoding else "b")
            ours[number] = open(mine, mode, encoding=encoding)  # noqa: SIM115  the caller closes it
        else:
            given.append(wanted)
            opened.append(os.dup(wanted if isinstance(wanted, int) else wanted.fileno()))
    request = {
        "file": isinstance(program, Path),
        "program": str(program),
        "arguments": list(arguments),
        "env": dict(os.environ if env is None else env),
        "cwd": str(cwd or Path.cwd()),
        "host": host,
    }
    server = _server()
    try:
        pid = server.start(request, opened)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return Process(server, pid, ours)


def printed(
    program: str | Path, arguments: Sequence[str] = (), *, env: Mapping[str, str] | None = None, cwd: Path
) -> str:
    """What a process has printed, once it has ended; see ``start``.

    Raises:
        AssertionError: it did not end with 0, or not within 200 s.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start(program, arguments, env=env, cwd=cwd, stdout=out, stderr=err)
        try:
            code = process.wait(200)
        finally:
            process.kill()
        said = [os.pread(written.fileno(), 1 << 24, 0).decode() for written in (out, err)]
    assert code == 0, f"{program} {arguments} ended with {code}\n{''.join(said)}"
    return said[0]


def program(path: Path, wanted: str) -> None:
    """Makes a file that runs a ``module:function`` when it is started, with its arguments.

    What it is sent reaches the process that it stands for: SIGINT, SIGTERM and, by its end, SIGKILL.
    """
    script = Path(__file__).with_name("standing.py")
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{script}" {_server().pid} {wanted} "$@"\n')
    path.chmod(0o755)


class _Server:
    """The process that forks, as this process has it; it and all its forks end with this process."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self.ended: dict[int, int] = {}
        with theirs:
            command = [
                sys.executable,
                "-c",
                "from tests.preloaded import serve; serve()()",
                str(theirs.fileno()),
            ]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0,
                env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=ROOT,
            )  # fmt: skip
        atexit.register(self._end)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def _end(self) -> None:
        self._control.close()
        self._process.wait(10)

    def start(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Starts a process; gives its number."""
        with self._lock:
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
            while (pid := self._receive()) is None:
                continue
            # A process before it may have had the same number.
            self.ended.pop(pid, None)
            return pid

    def look(self) -> None:
        """Hears of the processes that have ended."""
        with self._lock:
            while select.select([self._control], [], [], 0)[0]:
                self._receive()

    def _receive(self) -> int | None:
        message = self._control.recv(1 << 10)
        if not message:
            raise RuntimeError("the process that starts others has ended")
        pid, code = json.loads(message)
        if code is None:
            return int(pid)
        self.ended[pid] = code
        return None


@cache
def _server() -> _Server:
    return _Server()


def serve() -> Callable[[], Any]:
    """Starts what it is asked to; returns in each fork, with what this should do."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for module in LOADED:
        importlib.import_module(module)
    # numpy has threads, which no fork needs.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    gc.collect()
    gc.freeze()
    others = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    others.bind(f"\0evflow tests preloaded {os.getpid()}")
    others.listen()
    asking = [control]
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready, _, _ = select.select([others, *asking, *running], [], [])
        for one in ready:
            if one in running:
                pid, who = running.pop(one)
                os.close(one)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(OSError):
                    who.send(json.dumps([pid, code]).encode())
                continue
            if one is others:
                asking.append(others.accept()[0])
                continue
            message, descriptors, _, _ = socket.recv_fds(one, 1 << 20, 3)
            if not message:
                for pid, who in running.values():
                    if one in (who, control):
                        os.kill(pid, signal.SIGKILL)
                if one is control:
                    return int
                asking.remove(one)
                one.close()
                continue
            if not (pid := os.fork()):
                for each in (others, *asking):
                    each.close()
                for descriptor in running:
                    os.close(descriptor)
                return partial(_become, json.loads(message), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            running[os.pidfd_open(pid)] = pid, one
            with suppress(OSError):
                one.send(json.dumps([pid, None]).encode())


def _move(host: str) -> None:
    with open(f"/run/netns/{host}") as space:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(space.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"host {host} cannot be entered")


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    os.setpgid(0, 0)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    faulthandler.enable()
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    if request["host"]:
        _move(request["host"])
    if request["env"].get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    for folder in reversed(request["env"].get("PYTHONPATH", "").split(os.pathsep)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    sys.argv = [request["program"], *request["arguments"]]
    if request["file"]:
        sys.path.insert(0, str(Path(request["program"]).parent))
        runpy.run_path(request["program"], run_name="__main__")
    else:
        module, _, function = request["program"].partition(":")
        getattr(importlib.import_module(module), function)()
