"""The endpoint, read by Prometheus' own parser."""

from __future__ import annotations

import socket
import sys
import urllib.request
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from evflow.errors import LinkError
from evflow.tools.watch.metrics import registry, serve
from tests.watch.fake import deployment, link, status, stone

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(said: Any) -> Samples:
    return samples(generate_latest(registry(lambda: said)).decode())


def value(found: Samples, name: str, /, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def test_stones_have_counts_queues_and_time() -> None:
    counts = {"in": 10, "out": 4, "dropped": 6, "errors": 1, "queued": 3, "busy": 0.5, "frozen": True}
    found = scraped(status(stones={"trades/high": stone(**counts)}))
    at = {"deployment": "trades", "stone": "high"}
    ways = {"in": 10, "out": 4, "dropped": 6, "error": 1, "unmatched": 0}
    for way, count in ways.items():
        assert value(found, "evflow_stone_events_total", direction=way, **at) == count
    assert value(found, "evflow_stone_queued_events", **at) == 3
    assert value(found, "evflow_stone_busy_seconds_total", **at) == 0.5
    assert value(found, "evflow_stone_frozen", **at) == 1


def test_attributes_that_are_numbers_are_metrics() -> None:
    found = scraped(status(stones={"t/a": stone(attributes={"limit": 5, "mode": "fast"})}))
    assert value(found, "evflow_stone_attribute", deployment="t", stone="a", name="limit") == 5
    assert sum(name == "evflow_stone_attribute" for name, _ in found) == 1


def test_links_tell_whether_they_are_up_and_how_fast() -> None:
    found = scraped(
        status(links={"office": link(waiting=9), "lab": link("down", round_trip=0.0, bandwidth=0.0)})
    )
    assert value(found, "evflow_link_up", peer="office") == 1
    assert value(found, "evflow_link_up", peer="lab") == 0
    assert value(found, "evflow_link_round_trip_seconds", peer="office") == pytest.approx(0.00042)
    assert ("evflow_link_round_trip_seconds", (("peer", "lab"),)) not in found
    assert value(found, "evflow_link_bandwidth_bytes_per_second", peer="office") == 1.5e6
    assert value(found, "evflow_link_waiting_events", peer="office") == 9
    assert value(found, "evflow_link_sessions_total", peer="office") == 1


def test_visitors_who_have_gone_leave_no_time_series() -> None:
    found = scraped(status(links={"desk-77": link("down", contact=""), "desk-78": link(contact="")}))
    peers = {dict(labels)["peer"] for name, labels in found if name == "evflow_link_up"}
    assert peers == {"desk-78"}


def test_node_and_members_are_told() -> None:
    members = {"edge": "alive", "office": "dead for 3 s", "lab": "unknown"}
    said = status(
        dead_letters=4, refused={"malformed": 2}, deployments={"trades": deployment(members=members)}
    )
    found = scraped(said)
    assert value(found, "evflow_up") == 1
    assert value(found, "evflow_dead_letters_total") == 4
    assert value(found, "evflow_refused_total", kind="malformed") == 2
    assert value(found, "evflow_node_info", node="edge", version="0.1.0", host="lab1") == 1
    assert value(found, "evflow_node_memory_bytes") == 120_000_000
    assert value(found, "evflow_node_events_bytes", of="most") == 268_435_456
    assert value(found, "evflow_deployment_version", deployment="trades") == 3
    assert value(found, "evflow_member_up", deployment="trades", member="edge") == 1
    assert value(found, "evflow_member_up", deployment="trades", member="office") == 0
    assert not any(("member", "lab") in labels for _, labels in found)


def test_names_keep_to_the_conventions() -> None:
    for family in text_string_to_metric_families(generate_latest(registry(status)).decode()):
        assert family.name.startswith("evflow_")
        assert family.documentation.endswith(".")
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)


def test_labels_may_be_any_text() -> None:
    names = ['a"b', "a\\b", "a\nb", "ä→", "\ud800"]
    found = scraped(status(stones={f"t/{name}": stone() for name in names}))
    shown = {dict(labels)["stone"] for name, labels in found if name == "evflow_stone_queued_events"}
    assert shown == {'a"b', "a\\b", "a\nb", "ä→", "?"}


def test_node_that_cannot_say_its_status_is_not_up() -> None:
    def closed() -> Any:
        raise LinkError("the flow is closed")

    assert samples(generate_latest(registry(closed)).decode()) == {("evflow_up", ()): 0.0}


def test_endpoint_is_scraped_over_http_until_it_is_closed() -> None:
    said = status()
    with serve(lambda: said, port=0) as endpoint:
        with urllib.request.urlopen(endpoint.url, timeout=10) as answer:
            found = samples(answer.read().decode())
        said["dead_letters"] = 5
        with urllib.request.urlopen(endpoint.url, timeout=10) as answer:
            assert value(samples(answer.read().decode()), "evflow_dead_letters_total") == 5
    assert value(found, "evflow_dead_letters_total") == 0
    with pytest.raises(OSError):
        urllib.request.urlopen(endpoint.url, timeout=10)


def test_taken_port_is_told_with_what_to_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(LinkError, match=f"metrics at 127.0.0.1:{port}: this node cannot listen there"):
            serve(status, port=port)


def test_without_the_library_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(LinkError, match=r"pip install 'evflow\[metrics\]'"):
        registry(status)
