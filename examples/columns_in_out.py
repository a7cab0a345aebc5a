"""Columns in and columns out: numpy, pandas and Arrow without a loop over events."""

from __future__ import annotations

import numpy as np
import pandas
import pyarrow

import evflow as ev


class Sample(ev.Event):
    sensor: ev.i32
    value: float


received: list[ev.EventBatch] = []
g = ev.Graph("columns")
g.source("samples", Sample) >> ev.Filter("input.value > 0.5") >> ev.Terminal(received.append, batch=True)

random = np.random.default_rng(1)
columns = {"sensor": np.arange(1000, dtype=np.int32) % 4, "value": random.random(1000)}

with g.run() as flow:
    samples = flow["samples"]
    samples.submit_batch(columns)
    samples.submit_batch(pandas.DataFrame(columns))
    samples.submit_batch(pyarrow.table(columns))
    flow.drain()

batch = ev.EventBatch.concat(received)
print(f"{len(batch)} of 3000 samples")
print("column:", batch["value"][:3].round(3))
print("structured array:", batch.to_numpy()["sensor"][:5])
print(batch.to_pandas().groupby("sensor")["value"].mean().round(2).to_dict())
print(batch.to_arrow().schema.to_string(show_field_metadata=False))
