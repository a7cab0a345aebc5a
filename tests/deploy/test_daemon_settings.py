"""What a daemon is refused before it begins."""

from __future__ import annotations

import shutil
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.deploy.client import Cluster
from evflow.net.node.keyfile import generate


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"storage": 3}, "storage 3: expected the path of a folder"),
        ({"handlers": "al"}, r"handlers 'al': expected a list .*\['alerts'\]"),
        ({"handlers": 3}, "handlers 3: expected a list"),
        ({"control": "desk"}, r"control 'desk': expected a list of names, such as \['desk'\]"),
        ({"control": 3}, "control 3: expected a list of names"),
        ({"dead_after": -1}, "dead_after -1: expected seconds, more than 0"),
        ({"dead_after": 0}, "dead_after 0: expected seconds"),
        ({"dead_after": "5"}, "dead_after '5': expected seconds"),
        ({"dead_after": float("nan")}, "dead_after nan: expected seconds"),
    ],
)
def test_a_wrong_argument_is_named(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ev.DeployError, match=message):
        ev.Daemon("edge", **({"storage": tmp_path} | settings))


@pytest.mark.parametrize("name", ["../x", "a/b", "/a", "a=b", ".", ""])
def test_a_name_that_is_none_leaves_no_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ev.LinkError, match="expected a name of 1 to 255 characters"):
        ev.Daemon(name, storage=Path(f"evflow-{name}"))
    assert [path.name for path in tmp_path.rglob("*")] == ["here"]


def test_a_storage_folder_belongs_to_one_node(tmp_path: Path) -> None:
    """One of another name is refused, and one without a name takes that of the folder."""
    with ev.Daemon("edge", storage=tmp_path):
        pass
    with pytest.raises(ev.DeployError, match=r"is that of node 'edge'; give node 'lab' a folder of its own"):
        ev.Daemon("lab", storage=tmp_path)
    with ev.Daemon(storage=tmp_path) as daemon:
        assert daemon.node.name == "edge"
    with ev.Daemon("edge", storage=tmp_path):
        pass
    with ev.Daemon(storage=tmp_path / "nameless") as daemon:
        name = daemon.node.name
    with ev.Daemon(storage=tmp_path / "nameless") as daemon:
        assert daemon.node.name == name


@pytest.mark.parametrize("content", [b"\xff\xfeedge", b"edge\nlab\n", b"tcp://edge", b"\0" * 5000])
def test_a_storage_folder_whose_owner_is_garbage_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "node").write_bytes(content)
    with pytest.raises(
        ev.DeployError, match=r"file \S+/node: expected the name of the node .*, found .*; write"
    ):
        ev.Daemon(storage=tmp_path)


def test_a_storage_folder_keeps_a_long_name(tmp_path: Path) -> None:
    name = "\N{GRINNING FACE}" * 255
    for _ in range(2):
        with ev.Daemon(name, storage=tmp_path) as daemon:
            assert daemon.node.name == name


def test_a_journal_of_something_else_is_not_blamed_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("hello, this is a text and not a journal")
    with pytest.raises(ev.EvflowError, match=r"/journal.*: it is not a file of evflow: .*; move it away"):
        ev.Daemon("edge", storage=tmp_path)


def test_a_module_of_handlers_that_is_not_there_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = ["nosuchmodule", "json.nosuch:show", "json", "tests.deploy.handlers:keep"]
    with ev.Daemon("edge", storage=tmp_path, handlers=handlers):
        pass
    told = [one.getMessage() for one in caplog.records if "graphs may name" in one.getMessage()]
    assert [message.partition(":")[0] for message in told] == ["node edge"] * 2
    assert "module 'nosuchmodule' cannot be found: is it spelt right" in told[0]
    assert "module 'json.nosuch' cannot be found" in told[1]


def test_a_deployment_is_told_at_once_what_is_wrong_with_keys(tmp_path: Path) -> None:
    """Not after the timeout of a question, which is a day here."""
    for name in ("edge", "boss"):
        generate(tmp_path / "keys", name)
    generate(tmp_path / "strange", "stranger")
    generate(tmp_path / "none", "boss")
    shutil.copy(tmp_path / "keys" / "edge.pub", tmp_path / "strange")
    g = ev.Graph("trades")
    g.source("trades", on="edge") >> ev.Terminal("alerts:show", on="edge")

    def refused(hosts: dict[str, str], message: str, **settings: Any) -> None:
        with pytest.raises(ev.LinkError, match=message):
            ev.Deployment("trades", hosts, timeout=86_400, **settings)
        with pytest.raises(ev.LinkError, match=message):
            g.deploy(hosts, timeout=86_400, **settings)

    listen = "tcp://127.0.0.1:0"
    with ev.Daemon("edge", listen, storage=tmp_path / "edge", keys=tmp_path / "keys") as edge:
        hosts = {"edge": edge.contact}
        refused(hosts, r"^host edge at tcp.*: it speaks only with nodes that have keys.*evflow keygen.*keys=")
        strange = {"name": "stranger", "keys": tmp_path / "strange"}
        refused(
            hosts, r"^host edge at tcp.*: it does not let in the key of stranger.* stranger\.pub", **strange
        )
        lacking = {"name": "boss", "keys": tmp_path / "none"}
        refused(hosts, r"no public key of 'edge': expected .*none/edge\.pub; copy it", **lacking)
    with ev.Daemon("edge", listen, storage=tmp_path / "open") as edge:
        refused({"edge": edge.contact}, "it has no keys", name="boss", keys=tmp_path / "keys")
    generate(tmp_path / "elsewhere", "office")
    with ev.Daemon("office", listen, storage=tmp_path / "office", keys=tmp_path / "elsewhere") as office:
        refused(
            {"edge": office.contact},
            r"^host edge at tcp.*: expected the node 'edge' there, found one .* edge\.pub .*contact.*copy",
            name="boss",
            keys=tmp_path / "keys",
        )


@pytest.mark.slow
def test_a_tunnel_to_nowhere_is_not_taken_for_another_node(tmp_path: Path) -> None:
    """The node may come up behind it, so there is a use in waiting."""
    for name in ("edge", "boss"):
        generate(tmp_path, name)
    with socket.create_server(("127.0.0.1", 0)) as tunnel:
        threading.Thread(target=_accept_and_close, args=(tunnel,), daemon=True).start()
        hosts = {"edge": f"tcp://127.0.0.1:{tunnel.getsockname()[1]}"}
        with (
            Cluster(hosts, name="boss", keys=tmp_path, timeout=0.7) as cluster,
            pytest.raises(ev.LinkError, match=r"no answer to 'name' within 0\.7 s: no answer from"),
        ):
            cluster.ask("edge", "name")
        tunnel.shutdown(socket.SHUT_RDWR)


def _accept_and_close(tunnel: socket.socket) -> None:
    with suppress(OSError):
        while True:
            tunnel.accept()[0].close()


def test_hosts_of_a_deployment_are_a_mapping() -> None:
    g = ev.Graph("trades")
    g.source("trades", on="edge") >> ev.Terminal("alerts:show", on="edge")
    hosts: Any = ["tcp://127.0.0.1:7000"]
    with pytest.raises(ev.DeployError, match="expected hosts as node → contact"):
        g.deploy(hosts)
    with pytest.raises(ev.LinkError, match="expected hosts as node → contact"):
        ev.Deployment("trades", hosts)


def test_graph_whose_name_has_a_slash_is_not_deployed() -> None:
    g = ev.Graph("a/b")
    g.source("trades", on="edge") >> ev.Terminal("alerts:show", on="edge")
    with pytest.raises(ev.DeployError, match="graph 'a/b' cannot be deployed"):
        g.deploy({"edge": "tcp://127.0.0.1:7000"})


def test_status_tells_how_much_memory_peers_may_fill(tmp_path: Path) -> None:
    with ev.Daemon("edge", storage=tmp_path, memory=3 << 20) as edge:
        assert edge.rpc.status()["budget"] == {"used": 0, "most": 3 << 20}
