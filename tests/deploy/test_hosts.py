from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evflow.deploy.hosts import Hosts
from evflow.errors import DeployError

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of hosts."""

    def write(text: str) -> Path:
        path = tmp_path / "hosts.toml"
        path.write_text(text)
        return path

    return write


def test_hosts_are_read_in_order_with_what_else_is_said(write: Write, tmp_path: Path) -> None:
    hosts = Hosts.load(
        write(
            'name = "desk"\nkeys = "my keys"\nplain = true\n'
            '[hosts]\noffice = "tcp://10.0.0.3:7000"\nedge = "ipc:///run/edge"\n'
        )
    )
    assert list(hosts.contacts.items()) == [("office", "tcp://10.0.0.3:7000"), ("edge", "ipc:///run/edge")]
    assert hosts.keys == tmp_path / "my keys"
    assert (hosts.name, hosts.plain) == ("desk", True)


def test_all_but_the_hosts_can_be_left_out(write: Write) -> None:
    hosts = Hosts.load(write('[hosts]\nedge = "tcp://edge.local:7000"'))
    assert (hosts.keys, hosts.name, hosts.plain) == (None, None, False)


def test_keys_are_found_beside_the_file_or_by_their_whole_path(write: Write) -> None:
    whole = Path("/", "etc", "evflow")
    text = f'name = "desk"\nkeys = "{whole}"\n[hosts]\nedge = "tcp://10.0.0.2:7000"'
    assert Hosts.load(write(text)).keys == whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a table of hosts"),
        ("[hosts]", "expected a table of hosts"),
        ("hosts = 7", "expected a table of hosts"),
        ("[hosts", "is not TOML"),
        ('[hosts]\nedge = "10.0.0.2:7000"', "host edge: contact '10.0.0.2:7000'"),
        ("[hosts]\nedge = 7000", "host edge: contact 7000"),
        ('[hosts]\nedge = "tcp://*:7000"', "only to listen on"),
        ('[hosts]\n"a/b" = "tcp://10.0.0.2:7000"', "without '/'"),
        ('[hosts]\n"a=b" = "tcp://10.0.0.2:7000"', "node 'a=b': expected a name"),
        ('[hosts]\na = "tcp://10.0.0.2:7000"\nb = "tcp://10.0.0.2:7000"', "hosts a and b have one contact"),
        ('name = 7\n[hosts]\na = "tcp://10.0.0.2:7000"', "name = 7: expected a name"),
        ('plain = "yes"\n[hosts]\na = "tcp://10.0.0.2:7000"', "expected true or false"),
        ('plane = true\n[hosts]\na = "tcp://10.0.0.2:7000"', "plane: not known; expected hosts, keys, name"),
        ('keys = "keys"\n[hosts]\na = "tcp://10.0.0.2:7000"', "keys without a name"),
        ('name = "a"\n[hosts]\na = "tcp://10.0.0.2:7000"', "name = 'a' is one of the hosts"),
        (
            'name = "b"\nkeys = "k"\n[hosts]\n"a b" = "tcp://10.0.0.2:7000"',
            "with keys a name is that of a file",
        ),
    ],
)
def test_wrong_file_is_refused_with_what_is_wrong(write: Write, text: str, said: str) -> None:
    path = write(text)
    with pytest.raises(DeployError) as refused:
        Hosts.load(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


def test_everything_that_is_wrong_is_told_at_once(write: Write) -> None:
    with pytest.raises(DeployError) as refused:
        Hosts.load(write('plain = 1\n[hosts]\na = "a"\nb = "b"'))
    assert len(str(refused.value).splitlines()) == 3


def test_missing_file_is_told_with_an_example(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match=r"cannot be read: No such file(.|\n)*edge = "):
        Hosts.load(tmp_path / "none.toml")


def test_file_of_other_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DeployError, match="is not TOML"):
        Hosts.load(path)
