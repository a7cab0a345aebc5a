"""A headless Chromium, driven by its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from websockets.sync.client import connect

__all__ = ["Chromium", "found"]

NAMES = ("chromium", "chromium-browser", "google-chrome")


def found() -> str:
    """Where Chromium is; skips where there is none, unless ``EVFLOW_BROWSER_TESTS`` is ``must``."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    if os.environ.get("EVFLOW_BROWSER_TESTS") == "must":
        pytest.fail("no Chromium is here: apt-get install chromium")
    pytest.skip("no Chromium is here: apt-get install chromium")


class Chromium:
    """One page; what it asks for and what its console says is kept.

    Args:
        url: the page.
        size: of the window.

    Attributes:
        requests: addresses that it asked for.
        complaints: errors and warnings of the console, and exceptions.
    """

    def __init__(self, url: str, size: tuple[int, int] = (1280, 800)) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._number = 0
        command = [
            found(), "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
            "--disable-background-networking", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
            "--disable-extensions", "--disable-component-update", f"--window-size={size[0]},{size[1]}",
            f"--user-data-dir={self._folder.name}", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._socket = connect(self._page(), max_size=None, proxy=None).__enter__()
            for domain in ("Network", "Runtime", "Log", "Page"):
                self.ask(f"{domain}.enable")
            self.ask("Page.navigate", url=url)
        except BaseException:
            self._end()
            raise

    def _page(self) -> str:
        file, until = Path(self._folder.name) / "DevToolsActivePort", time.monotonic() + 60
        while not (file.exists() and file.read_text().strip()):
            assert time.monotonic() < until and self._process.poll() is None, "Chromium does not start"
            time.sleep(0.02)
        port = file.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
            return next(
                str(one["webSocketDebuggerUrl"]) for one in json.load(answer) if one["type"] == "page"
            )

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return dict(message["result"])
            self._note(message.get("method"), message.get("params", {}))

    def _note(self, method: str | None, told: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Network.webSocketCreated":
            self.requests.append(told["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str, is_right: Callable[[Any], bool] = bool, seconds: float = 30) -> Any:
        """What an expression is once it is right."""
        until = time.monotonic() + seconds
        while not is_right(value := self.value(expression)):
            assert time.monotonic() < until, f"{expression} is {value!r}"
            time.sleep(0.03)
        return value

    def picture(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close_socket()
        self._end()
