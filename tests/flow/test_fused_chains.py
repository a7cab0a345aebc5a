from __future__ import annotations

import evflow as ev


class Number(ev.Event):
    value: int


class Double(ev.Event):
    value: int


def test_filter_after_a_transform_drops_what_the_transform_made() -> None:
    got: list[int] = []
    g = ev.Graph()
    doubled = g.source("numbers", Number) >> ev.Transform(
        "output.value = 2 * input.value; return 1;", output=Double
    )
    doubled >> ev.Filter("input.value > 10") >> ev.Terminal(lambda event: got.append(event.value))
    with g.run() as flow:
        flow["numbers"].submit_batch({"value": range(10)})
    assert got == [12, 14, 16, 18]
