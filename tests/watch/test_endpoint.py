"""The endpoint of the metrics under clients that are slow, silent, many, or say too much."""

from __future__ import annotations

import errno
import logging
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from evflow.tools.watch import endpoint as limits
from evflow.tools.watch.endpoint import Endpoint
from evflow.tools.watch.metrics import serve
from tests.node.processes import wait_for
from tests.watch.fake import status, stone

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture
def served() -> Iterator[Endpoint]:
    with serve(status, port=0) as found:
        yield found


@pytest.fixture
def long() -> Iterator[Endpoint]:
    """One that answers with more than any buffer on the way holds."""
    said = status(stones={f"trades/{number}": stone() for number in range(5000)})
    with serve(lambda: said, port=0) as found:
        yield found


def connected(served: Endpoint) -> socket.socket:
    address = urlsplit(served.url)
    return socket.create_connection((str(address.hostname), address.port or 0), timeout=30)


def scrape(served: Endpoint) -> str:
    with urllib.request.urlopen(served.url, timeout=30) as answer:
        assert answer.status == 200
        text: str = answer.read().decode()
    assert "evflow_up 1.0" in text
    return text


def ended(client: socket.socket) -> bool:
    try:
        return client.recv(1 << 16) == b""
    except ConnectionError:
        return True


def threads() -> int:
    return sum("process_request" in thread.name for thread in threading.enumerate())


@pytest.mark.slow
def test_idle_connections_are_bounded_and_a_scraper_is_answered(served: Endpoint) -> None:
    with ExitStack() as opened:
        idle = [opened.enter_context(connected(served)) for _ in range(400)]
        scrape(served)
        wait_for(lambda: threads() <= limits.MOST_CONNECTIONS, "the threads of those that were ended to end")
        # Those that came first had to go.
        assert all(map(ended, idle[: 400 - 2 * limits.MOST_CONNECTIONS]))
        scrape(served)
    wait_for(lambda: threads() == 0, "all threads to end")


@pytest.mark.slow
def test_a_request_that_comes_byte_by_byte_has_its_time(
    served: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(served) as slow, monkeypatch.context() as patched:
        patched.setattr(limits, "PATIENCE", 0.5)
        with pytest.raises(OSError):
            for _ in range(1000):
                slow.sendall(b"G")
                slow.settimeout(0.1)
                try:
                    if not slow.recv(1):
                        raise ConnectionError
                except TimeoutError:
                    pass
    scrape(served)


@pytest.mark.slow
def test_a_client_that_never_reads_has_its_time(long: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    address = urlsplit(long.url)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((str(address.hostname), address.port or 0))
        deaf.sendall(REQUEST)
        wait_for(lambda: threads() == 1, "the request to be taken")
        whole = len(scrape(long))
        monkeypatch.setattr(limits, "PATIENCE", 1.0)
        wait_for(lambda: threads() == 0, "its thread to end")
        deaf.settimeout(30)
        got = 0
        try:
            while part := deaf.recv(1 << 16):
                got += len(part)
        except ConnectionError:
            pass
        assert got < whole


@pytest.mark.parametrize(
    "request_", [b"GET /" + b"a" * (1 << 20), b"GET / HTTP/1.1\r\n" + b"Some: thing\r\n" * 100_000]
)
def test_a_request_that_is_too_large_is_refused(served: Endpoint, request_: bytes) -> None:
    with connected(served) as client:
        try:
            client.sendall(request_)
            assert client.recv(100).startswith(b"HTTP/1.0 431 ")
        except ConnectionError:
            # The answer may be lost, since the server does not read what else has come.
            pass
        scrape(served)


@pytest.mark.parametrize(
    "noise", [b"\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n"]
)
def test_noise_ends_with_its_connection(
    served: Endpoint, noise: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with connected(served) as client:
        client.sendall(noise)
        while not ended(client):
            pass
    scrape(served)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_connection_that_cannot_be_taken_is_told_once_and_taken_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, tried = socket.socket.accept, []

    def scarce(one: socket.socket) -> Any:
        tried.append(one)
        if len(tried) < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(one)

    with caplog.at_level(logging.WARNING, "evflow.watch"), serve(status, port=0) as served:
        monkeypatch.setattr(socket.socket, "accept", scarce)
        scrape(served)
    assert len(tried) == 3
    assert (
        caplog.records[0].getMessage().startswith("metrics: a connection cannot be taken (1 so far): OSError")
    )


def test_a_status_that_fails_costs_its_scrape_only(caplog: pytest.LogCaptureFixture) -> None:
    def failing() -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    with caplog.at_level(logging.WARNING, "evflow.watch"), serve(failing, port=0) as served:
        for _ in range(3):
            with urllib.request.urlopen(served.url, timeout=30) as answer:
                assert b"evflow_up 0.0" in answer.read()
    told = [record.getMessage() for record in caplog.records]
    assert told[0].startswith("metrics: the node's status cannot be had (1 so far): OSError")
