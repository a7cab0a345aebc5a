"""Deployments over hosts with keys: partitions during changes, wrong keys, and who may change what."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import evflow as ev
from evflow.net.node.keyfile import generate
from tests.deploy.boss import Boss
from tests.deploy.daemons import DaemonProcess
from tests.node.network import Network, hosts, keys_for
from tests.node.processes import wait_for

pytestmark = pytest.mark.slow

NAMES = ("a", "b", "c", "d", "e", "boss", "guest")
CONTROL = [option for name in ("boss", "a", "b", "c") for option in ("--control", name)]


@pytest.fixture
def network() -> Iterator[Network]:
    """Seven hosts."""
    with hosts(NAMES) as made:
        yield made


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder of keys for each, all known to all."""
    return keys_for(tmp_path / "keys", NAMES)


class World:
    """Daemons on hosts of their own, and whoever deploys on others.

    Args:
        names: of the daemons, each a letter; the last one has the terminal.
    """

    def __init__(
        self, network: Network, keys: Path, stack: ExitStack, *options: str, names: str = "abc"
    ) -> None:
        self.network = network
        self._keys = keys
        self._stack = stack
        self.hosts = {name: f"tcp://{network.address(name)}:7000" for name in names}
        self.daemons = {
            name: stack.enter_context(
                DaemonProcess(
                    name,
                    keys.parent,
                    "--keys",
                    str(keys / name),
                    *options,
                    listen=contact,
                    host=network.space(name),
                    dead_after=2.0,
                )
            )
            for name, contact in self.hosts.items()
        }
        for daemon in self.daemons.values():
            daemon.wait_ready()

    def boss(self, name: str = "boss", at: str | None = None) -> Boss:
        """Who deploys, with the key of ``name``, on the host ``at``."""
        host = self.network.space(at or name)
        return self._stack.enter_context(Boss(name, self._keys / name, self.hosts, host))

    @property
    def noted(self) -> list[int]:
        """What the terminal noted."""
        return list(self.daemons.values())[-1].noted


@pytest.fixture
def world(network: Network, keys: Path) -> Iterator[World]:
    """Three daemons that obey the boss only."""
    with ExitStack() as stack:
        yield World(network, keys, stack, *CONTROL)


CUTS = int(os.environ.get("EVFLOW_CUTS", "1"))
WAYS = [{"recs": "a", "step1": node, "end": "c"} for node in "abc"]


@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_a_partition_during_a_change_leaves_it_whole_and_heals(world: World, victim: str) -> None:
    """The cable of the node that proposes, that the stone leaves or that it goes to is pulled meanwhile."""
    moments = random.Random(victim)
    boss = world.boss()
    boss.ask("deploy")
    boss.ask("feed")
    boss.ask("more")
    at, to = "b", "c"
    for _ in range(CUTS):
        boss.tell("move", stone="step1", node=to, timeout=2.0)
        time.sleep(moments.random() * 0.06)
        world.network.cut(victim)
        time.sleep(1 + moments.random())
        world.network.mend(victim)
        try:
            boss.answer()
            made = True
        except ev.DeployError:
            made = False
        placed = boss.ask("agreed")
        assert placed in WAYS
        assert placed["step1"] in (at, to)
        assert not made or placed["step1"] == to
        if placed["step1"] == to:
            at, to = to, at
        boss.ask("more")
    boss.ask("move", stone="step1", node="a")
    assert boss.ask("agreed") == WAYS[0]
    count = boss.ask("end")
    assert world.noted == list(range(count))


def test_a_node_that_is_cut_off_changes_nothing_by_itself(world: World) -> None:
    """Nor can the others move what it has; it goes on when it is back."""
    boss = world.boss()
    boss.ask("deploy")
    boss.ask("feed")
    boss.ask("more")
    world.network.cut("b")
    with pytest.raises(ev.DeployError, match="not ready within 2 s; all is as it was\n  node b: "):
        boss.ask("move", stone="step1", node="c", timeout=2.0)
    world.network.mend("b")
    assert boss.ask("agreed") == WAYS[1]
    boss.ask("move", stone="step1", node="c")
    assert boss.ask("agreed") == WAYS[2]
    count = boss.ask("end")
    assert world.noted == list(range(count))


def test_a_stranger_with_a_wrong_key_can_neither_deploy_nor_look(world: World, keys: Path) -> None:
    """It calls itself boss, with a key of its own."""
    boss = world.boss()
    boss.ask("deploy")
    shutil.rmtree(keys / "guest")
    generate(keys / "guest", "boss")
    for name in "abc":
        shutil.copy(keys / name / f"{name}.pub", keys / "guest")
    with (
        Boss("boss", keys / "guest", world.hosts, world.network.space("guest")) as stranger,
        pytest.raises(ev.DeployError, match=r"host a at tcp://10\.83\.0\.1:7000: it does not let in the key"),
    ):
        stranger.ask("deploy", timeout=2.0)
    assert boss.ask("agreed") == WAYS[1]
    boss.ask("feed")
    boss.ask("more")
    count = boss.ask("end")
    assert world.noted == list(range(count))
    refused = boss.ask("status")["a"]["refused"]
    assert refused.get("unauthorised", 0) > 0


def test_nodes_that_do_not_let_each_other_change_deployments_say_what_to_do(
    network: Network, keys: Path
) -> None:
    with ExitStack() as stack:
        boss = World(network, keys, stack, "--control", "boss").boss()
        with pytest.raises(
            ev.DeployError, match=r"node b does not let a change.*start it with --control a too"
        ):
            boss.ask("deploy")


def test_who_may_not_control_is_told_what_to_do_and_may_look(world: World) -> None:
    guest, boss = world.boss("guest"), world.boss()
    with pytest.raises(
        ev.DeployError, match=r"node a: guest may not propose; start the node with --control guest"
    ):
        guest.ask("deploy")
    boss.ask("deploy")
    guest.ask("take")
    assert guest.ask("agreed") == WAYS[1]
    with pytest.raises(ev.DeployError, match=r"guest may not propose; start the node with --control guest"):
        guest.ask("move", stone="step1", node="c")
    assert boss.ask("agreed") == WAYS[1]
    boss.ask("move", stone="step1", node="c")
    wait_for(lambda: guest.ask("agreed") == WAYS[2], "the guest sees it")


SECONDS = float(os.environ.get("EVFLOW_ROAM_SECONDS", "5"))


def test_two_programs_move_stones_while_nodes_are_cut_off_and_killed(network: Network, keys: Path) -> None:
    """Five daemons; the terminal's is not killed, since a terminal may see again what it had in hand."""
    chosen = random.Random(os.environ.get("EVFLOW_SEED", "1"))
    control = [option for name in NAMES for option in ("--control", name)]
    with ExitStack() as stack:
        world = World(network, keys, stack, *control, names="abcde")
        boss, guest = world.boss("boss"), world.boss("guest")
        boss.ask("deploy", nodes="abcde")
        boss.ask("feed")
        guest.ask("take")
        for number, program in enumerate((boss, guest)):
            program.tell("roam", seconds=SECONDS, seed=f"{number}", nodes="bcd")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            victim = chosen.choice("abcde")
            if victim in "bcd" and chosen.random() < 0.5:
                world.daemons[victim].kill()
                time.sleep(chosen.random())
                world.daemons[victim].restart()
            else:
                network.cut(victim)
                time.sleep(chosen.random() * 2)
                network.mend(victim)
            time.sleep(chosen.random() * 2)
        made = sum(program.answer(within=SECONDS + 60)[0] for program in (boss, guest))
        assert made > 0
        placed = boss.ask("agreed")
        assert placed == guest.ask("agreed")
        boss.ask("more")
        count = boss.ask("end")
        assert world.noted == list(range(count))
