"""Figure 7 of the EVPath paper: a large array comes in, one number goes out."""

from __future__ import annotations

import numpy as np

import evflow as ev


class Wind(ev.Event):
    wind_velocity: ev.Array[ev.f64, 253, 37]


class Average(ev.Event):
    average_velocity: float


AVERAGE = """
{
    int i, j;
    double sum = 0.0;
    for(i = 0; i<37; i= i+1) {
        for(j = 0; j<253; j=j+1) {
            sum = sum + input.wind_velocity[j][i];
        }
    }
    output.average_velocity = sum / (37 * 253);
    return 1;
}
"""

averages: list[float] = []
g = ev.Graph("wind")
average = g.source("simulation", Wind) >> ev.Transform(AVERAGE, output=Average, name="average")
average >> ev.Terminal(lambda event: averages.append(event.average_velocity))

random = np.random.default_rng(7)
fields = [random.normal(10.0, 4.0, (253, 37)) for _ in range(20)]
with g.run() as flow:
    for field in fields:
        flow["simulation"].submit(Wind(field))
    flow.drain()

print(f"in: {Wind.schema.width:,} bytes an event, out: {Average.schema.width} bytes")
print(f"first average {averages[0]:.4f}, numpy says {fields[0].mean():.4f}")
