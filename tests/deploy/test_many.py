"""Many deployments on the same daemons: all work, none disturbs another, and all can be taken down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import evflow as ev
from evflow.deploy.client import Cluster
from evflow.deploy.record import Record
from evflow.deploy.rollout import roll_out
from tests.deploy.yard import Yard, chain, feeding

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("EVFLOW_DEPLOYMENTS", "30"))


@pytest.mark.timeout(600)
def test_many_deployments_on_two_daemons_beside_one_under_load(tmp_path: Path) -> None:
    graph = chain("a", "b", "b", name="beside")
    with (
        Yard(tmp_path, "ab") as yard,
        graph.deploy(yard.hosts) as handle,
        feeding(handle["recs"], batch=10, pause=0.01) as feeder,
    ):
        with Cluster(yard.hosts) as cluster:
            for number in range(COUNT):
                other = chain("a", "b", name=f"more {number}", handler="desk:one")
                record = Record.first(other.name, other.to_dict(), yard.hosts)
                roll_out(cluster, record, replace=False, timeout=10.0)
        for number in range(0, COUNT, 29):
            with ev.Deployment(f"more {number}", yard.hosts) as other_handle:
                other_handle["recs"].submit_batch({"seq": [number]})
                other_handle.drain(20)
        assert yard.others["one"] == list(range(0, COUNT, 29))
        handle.move("step1", "a")
        for name in "ab":
            deployments = yard.daemons[name].rpc.status()["deployments"]
            assert len(deployments) == COUNT + 1
            yard.daemons[name].close()
            yard.start(name, listen=yard.hosts[name])
        assert len(yard.daemons["a"].rpc.status()["deployments"]) == COUNT + 1
        count = feeder.end()
        handle.drain(30)
        assert yard.seen == list(range(count))
