"""Times, durations, decimals, UUIDs and enumerations: what they take, what they give, and what is refused."""

from __future__ import annotations

import datetime as dt
import enum
import json
import uuid
from decimal import Decimal
from typing import Any

import msgpack
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import some

import evflow as ev
from evflow.codgen.adapt import adapt, check_fit
from evflow.deploy.telling import told
from evflow.errors import SchemaError
from evflow.events.view import View
from evflow.matching import Matcher
from evflow.tools.watch.tap import plain_value
from tests.data.walking import walk

NOON = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)


class Side(enum.Enum):
    buy = 1
    sell = 2


class Quote(ev.Event):
    at: ev.Timestamp
    took: ev.Duration
    price: ev.Decimal[10, 2]
    amount: ev.Decimal[38, 10]
    id: ev.UUID
    side: ev.Enum[Side] = "sell"
    until: ev.Timestamp | None = None


def quote(**changed: Any) -> Quote:
    given = {
        "at": NOON,
        "took": dt.timedelta(seconds=1),
        "price": Decimal("19.90"),
        "amount": 1,
        "id": uuid.UUID(int=7),
    }
    return Quote(**(given | changed))


Sides = ev.Enum["buy", "sell"]


def stored(field: str, value: Any) -> Any:
    """The value of a field after it was encoded."""
    return getattr(ev.EventBatch.from_events([quote(**{field: value})])[0], field)


def of(kind: Any, values: Any) -> ev.EventBatch:
    return ev.EventBatch.from_columns(ev.Schema("t", {"x": kind}), {"x": values})


@some
@given(st.datetimes(dt.datetime(1678, 1, 1), dt.datetime(2262, 1, 1), timezones=st.timezones()))
def test_times_with_a_zone_are_kept_in_utc(time: dt.datetime) -> None:
    expected = pd.Timestamp(time).tz_convert("UTC").tz_localize(None)
    assert pd.Timestamp(stored("at", time)) == expected
    assert stored("at", pd.Timestamp(time)) == np.datetime64(expected)


def test_values_come_back_as_the_types_of_numpy_and_python() -> None:
    batch = ev.EventBatch.from_events([quote(took=np.timedelta64(3, "s"), amount=Decimal("-1e-10"))])
    view = batch[0]
    assert view.at == np.datetime64("2026-11-25T12:00:00", "ns") and view.at.dtype == "M8[ns]"
    assert view.took == np.timedelta64(3_000_000_000, "ns")
    assert (view.price, view.amount) == (Decimal("19.90"), Decimal("-0.0000000001"))
    assert view.price.as_tuple().exponent == -2
    assert (view.id, view.side, view.until) == (uuid.UUID(int=7), "sell", None)
    assert view.to_event() == ev.EventBatch.from_bytes(Quote, batch.to_bytes())[0]
    assert view.to_dict()["price"] == Decimal("19.90")


@pytest.mark.parametrize(
    ("field", "value", "result"),
    [
        ("at", 1_700_000_000_000_000_001, np.datetime64(1_700_000_000_000_000_001, "ns")),
        ("at", "2020-02-01", np.datetime64("2020-02-01T00", "ns")),
        ("at", np.datetime64("2020-02"), np.datetime64("2020-02-01T00", "ns")),
        (
            "at",
            pd.Timestamp("2020-01-01T00:00:00.000000007Z"),
            np.datetime64("2020-01-01T00:00:00.000000007"),
        ),
        ("at", dt.date(2020, 1, 1), np.datetime64("2020-01-01")),
        ("at", "2020-01-01T00:00:00Z", np.datetime64("2020-01-01")),
        ("at", "2020-01-01 01:00:00.000000007+01:00", np.datetime64("2020-01-01T00:00:00.000000007")),
        ("until", np.datetime64("NaT", "ns"), None),
        ("until", pd.NaT, None),
        ("until", pd.NA, None),
        ("price", "-19.9", Decimal("-19.90")),
        ("took", pd.Timedelta(5, "ns"), np.timedelta64(5, "ns")),
        ("took", -(2**63) + 1, np.timedelta64(-(2**63) + 1, "ns")),
        ("price", 5, Decimal("5.00")),
        ("price", np.int32(-5), Decimal("-5.00")),
        ("price", Decimal("1E+7"), Decimal("10000000.00")),
        ("price", Decimal("0E+500"), Decimal("0.00")),
        ("price", Decimal("1.500"), Decimal("1.50")),
        ("amount", Decimal(10**28 - 1), Decimal(10**28 - 1)),
        ("id", "00000000-0000-0000-0000-00000000000a", uuid.UUID(int=10)),
        ("id", bytes(15) + b"\1", uuid.UUID(int=1)),
        ("side", Side.buy, "buy"),
    ],
)
def test_other_forms_of_a_value_are_taken(field: str, value: Any, result: Any) -> None:
    assert stored(field, value) == result


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("at", dt.datetime(2020, 1, 1), "a datetime with a time zone"),
        ("at", "2020-01", "expected a time"),
        ("at", 1.5, "expected a time"),
        ("at", True, "expected a time"),
        ("at", None, "expected a time"),
        ("at", np.datetime64("NaT", "ns"), "the field is not optional"),
        ("at", pd.NaT, "the field is not optional"),
        ("at", "2020-01-01T00:00:00", "expected a time"),
        ("at", "2020-13-01T00:00:00Z", "expected a time"),
        ("at", -(2**63) - 1, "within 292 years"),
        ("at", np.datetime64("3000-01-01"), "within 292 years"),
        ("at", np.datetime64(1, "ps"), "whole nanoseconds"),
        ("at", dt.datetime(3000, 1, 1, tzinfo=dt.UTC), "within 292 years"),
        ("at", 2**63, "within 292 years"),
        ("at", np.timedelta64(1, "s"), "expected a time"),
        ("took", np.timedelta64(1, "M"), "expected a duration"),
        ("took", np.datetime64("2020-01-01"), "expected a duration"),
        ("price", 1.5, "decimal.Decimal, an int or a text of digits .*give the text"),
        ("price", "1.5e1", "a text of digits"),
        ("price", "1" * 100_000, "a text of digits"),
        ("price", 10**2000, "decimal.Decimal, an int"),
        ("price", Decimal("NaN"), "decimal.Decimal, an int"),
        ("price", Decimal("0.001"), "at most 2 digits behind the point"),
        ("price", Decimal(10**8), "at most 8 digits before the point"),
        ("price", Decimal("1E+999999"), "at most 10 digits"),
        ("price", Decimal("1E-999999"), "at most 2 digits behind the point"),
        ("price", Decimal(10**2000), "at most 10 digits"),
        ("amount", Decimal(10**28), "at most 28 digits before the point"),
        ("id", "seven", "the text of a UUID"),
        ("id", b"short", "16 bytes"),
        ("side", "hold", "one of buy, sell"),
        ("side", 1, "one of buy, sell"),
    ],
)
def test_what_is_no_such_value_is_refused(field: str, value: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=f"field {field}: .*{words}"):
        ev.EventBatch.from_events([quote(**{field: value})])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ev.Decimal[0], "a precision of 1 to 38"),
        (lambda: ev.Decimal[39, 2], "a precision of 1 to 38"),
        (lambda: ev.Decimal[4, 5], "a scale of 0 to 4"),
        (lambda: ev.Enum["a", "a"], "different ones"),
        (lambda: ev.Enum["a,b"], "expected a text of 1 to 64"),
        (lambda: ev.Enum[3], "expected a text of 1 to 64"),
        (lambda: ev.Enum[tuple(f"n{i}" for i in range(257))], "1 to 256"),
        (lambda: ev.Array[ev.Timestamp, 3], "expected a number type"),
        (lambda: ev.Schema("t", {"x": dt.datetime}), r"write ev\.Timestamp"),
        (lambda: ev.Schema("t", {"x": Decimal}), r"write ev\.Decimal\["),
        (lambda: ev.Schema("t", {"x": "decimal(40,2)"}), "a precision of 1 to 38"),
        (lambda: ev.Schema("t", {"x": "enum()"}), "expected a text of 1 to 64"),
        (lambda: ev.Schema("t", {"x": ev.Timestamp}, {"x": "soon"}), "default of field x"),
    ],
)
def test_types_that_cannot_be_are_refused(make: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        make()


def test_descriptions_have_the_types_and_defaults() -> None:
    defaults = {
        "at": NOON,
        "took": dt.timedelta(days=-1),
        "price": Decimal("-0.5"),
        "amount": 3,
        "id": uuid.UUID(int=9),
    }
    schema = ev.Schema(
        "q", {f.name: f.type for f in Quote.schema}, {**defaults, "side": "buy", "until": NOON}
    )
    again = ev.Schema.from_description(json.loads(json.dumps(schema.description)))
    assert again == schema
    assert again.event() == schema.event()
    batch = ev.EventBatch.from_events([schema.event()])
    assert batch[0].until == np.datetime64("2026-11-25T12", "ns")
    assert ev.EventBatch.from_columns(again, {"took": [dt.timedelta(days=-1)]}).to_bytes() == batch.to_bytes()


@pytest.mark.parametrize(
    "default",
    [{"stored": "x"}, {"stored": {"hex": "zz"}}, {"stored": 300}, {"stored": 2}, {"stored": None}, 1],
)
def test_defaults_that_no_value_has_are_refused(default: Any) -> None:
    description = {"name": "t", "fields": [["x", "enum(a,b)", default]]}
    with pytest.raises(SchemaError):
        ev.Schema.from_description(description)


UNITS = ("ns", "us", "ms", "s", "m", "h", "D", "M", "Y")


@pytest.mark.parametrize("unit", UNITS)
def test_columns_of_numpy_in_any_unit(unit: str) -> None:
    column = np.array(["1970-01-01", "2024-02-29", "1800-07-14"], f"M8[{unit}]")
    expected = column.astype("M8[ns]")
    batch = of(ev.Timestamp, column)
    assert (batch["x"] == expected).all() and batch["x"].dtype == ">M8[ns]"
    assert (batch.to_columns()["x"] == expected).all() and batch.to_numpy()["x"].tolist() == expected.tolist()
    assert (ev.EventBatch.from_numpy(batch.schema, batch.to_numpy())["x"] == expected).all()
    swapped = column.astype(column.dtype.newbyteorder(">"))
    assert of(ev.Timestamp, swapped).to_bytes() == batch.to_bytes()


def test_structured_arrays_have_objects_where_numpy_has_no_type() -> None:
    """As numbers they would come back as others: a decimal without its point as a whole number."""
    inner = ev.Schema("inner", {"side": ev.Enum["a", "b"], "n": int})
    kinds = {
        "price": ev.Decimal[10, 2],
        "id": ev.UUID,
        "at": ev.Timestamp,
        "inner": inner,
        "blob": ev.Bytes[3],
    }
    schema = ev.Schema("t", kinds)
    values = [
        schema(price=n, id=uuid.UUID(int=n), at=n, inner=inner(side="b", n=n), blob=b"x") for n in range(4)
    ]
    batch = ev.EventBatch.from_events(values)
    rows = batch.select([1, 3]).to_numpy()
    assert rows["price"].tolist() == [Decimal("1.00"), Decimal("3.00")]
    assert (rows["at"].dtype, rows["inner"]["side"].tolist()) == (">M8[ns]", ["b", "b"])
    twice = np.concatenate([rows, rows])
    assert ev.EventBatch.from_numpy(schema, twice).to_bytes() == batch.take([1, 3, 1, 3]).to_bytes()
    stored = np.frombuffer(batch.to_bytes(), schema.dtype)
    assert stored["price"].tolist() == [0, 100, 200, 300]
    assert ev.EventBatch.from_numpy(schema, stored).to_bytes() == batch.to_bytes()


def test_tables_of_pandas() -> None:
    frame = pd.DataFrame(
        {
            "at": pd.to_datetime(["2026-11-25 13:00", "2020-01-01 00:00"]).tz_localize("Europe/Berlin"),
            "took": pd.to_timedelta(["1s", "2ns"]),
            "price": [Decimal("1.25"), Decimal(2)],
            "amount": [1, 2],
            "id": [str(uuid.UUID(int=1)), uuid.UUID(int=2)],
            "side": pd.Categorical(["sell", "buy"]),
            "until": [pd.NaT, pd.Timestamp("2021-01-01")],
        }
    )
    batch = ev.EventBatch.from_pandas(Quote, frame)
    assert [event.at for event in batch] == [np.datetime64("2026-11-25T12"), np.datetime64("2019-12-31T23")]
    assert [event.until for event in batch] == [None, np.datetime64("2021-01-01")]
    assert batch["side"].tolist() == ["sell", "buy"]
    assert (batch.to_pandas()["at"] == frame["at"]).all()
    assert ev.EventBatch.from_pandas(Quote, batch.to_pandas()).to_bytes() == batch.to_bytes()
    with pytest.raises(SchemaError, match=r"column at: row 1: expected a time.*optional.*NaT"):
        ev.EventBatch.from_pandas(Quote, frame.assign(at=[pd.Timestamp("2021-01-01"), pd.NaT]))


def test_tables_of_pyarrow() -> None:
    table = pa.table(
        {
            "at": pa.array([NOON, NOON], pa.timestamp("us", "Asia/Tokyo")),
            "took": pa.array([1, 2], pa.duration("ms")),
            "price": pa.array([Decimal("1.25"), Decimal("-2.50")], pa.decimal128(12, 3)),
            "amount": pa.array([Decimal(10) ** 20, Decimal(-1)], pa.decimal256(60, 2)),
            "id": pa.array([uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes], pa.binary(16)),
            "side": pa.array(["sell", "buy"]).dictionary_encode(),
            "until": pa.array([None, 7], pa.timestamp("ns")),
        }
    )
    batch = ev.EventBatch.from_arrow(Quote, table)
    assert [event.at for event in batch] == [np.datetime64("2026-11-25T12")] * 2
    assert [event.took for event in batch] == [np.timedelta64(1, "ms"), np.timedelta64(2, "ms")]
    assert [event.price for event in batch] == [Decimal("1.25"), Decimal("-2.50")]
    assert [event.until for event in batch] == [None, np.datetime64(7, "ns")]
    written = batch.to_arrow()
    assert written.schema.field("at").type == pa.timestamp("ns", "UTC")
    assert written["until"].to_pylist()[0] is None
    assert written["amount"].to_pylist() == [Decimal(10) ** 20, Decimal(-1)]
    assert ev.EventBatch.from_arrow(Quote, written).to_bytes() == batch.to_bytes()


def test_lists_of_them_go_to_arrow_and_back() -> None:
    schema = ev.Schema("t", {"x": list[ev.Timestamp], "y": list[ev.Decimal[5, 1] | None], "z": list[ev.UUID]})
    event = schema(x=[NOON], y=[None, Decimal("1.5")], z=[uuid.UUID(int=3)])
    batch = ev.EventBatch.from_events([event])
    assert ev.EventBatch.from_arrow(schema, batch.to_arrow()).to_bytes() == batch.to_bytes()


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (ev.Timestamp, np.array(["2020", "NaT"], "M8[s]"), "row 1: .*optional"),
        (ev.Timestamp, np.array(["2020", "5000"], "M8[D]"), "row 1: .*within 292 years"),
        (ev.Timestamp, [NOON, "now"], "row 1: expected a time"),
        (ev.Timestamp, np.array([1.5]), "expected a time"),
        (ev.Duration, np.array(["2020"], "M8[s]"), "expected a duration"),
        (ev.Decimal[4, 1], [1, Decimal("0.05")], "row 1: at most|row 1: expected at most 1 digits"),
        (ev.Enum["a", "b"], ["a", "b", "c"], "row 2: expected one of a, b, found 'c'"),
        (ev.UUID, ["00000000-0000-0000-0000-00000000000a", "x"], "row 1: .*the text of a UUID"),
        (ev.UUID, pa.array([b"\xff" * 3]), "row 0"),
        (ev.Timestamp, ["2020-02-29", "2021-02-29"], "row 1: expected a time.*'2021-02-29'"),
    ],
)
def test_columns_with_a_value_that_does_not_fit_name_the_row(kind: Any, values: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        of(kind, values)


def test_ints_of_times_are_taken_by_machine_code_as_by_python() -> None:
    class Tick(ev.Event):
        at: ev.Timestamp
        n: int

    g, seen = ev.Graph("ticks"), []
    _ = g.source("ticks", Tick) >> ev.Terminal(lambda event: seen.append((event.at, event.n)))
    with g.run() as flow:
        for n in range(2000):
            flow["ticks"].submit(Tick(n if n % 3 else np.datetime64(n, "ns"), n))
        flow.drain(timeout=20)
    assert seen == [(np.datetime64(n, "ns"), n) for n in range(2000)]


class Told(ev.Event):
    at: ev.Timestamp
    price: ev.Decimal[10, 2]
    amount: ev.Decimal[38, 10]
    id: ev.UUID
    side: Sides
    cost: float


def in_python(event: Quote, out: Told) -> bool:
    out.at = event.at + 1
    out.price = event.price
    out.amount = event.amount
    out.id = event.id
    out.side = "buy"
    out.cost = event.price * 2
    return event.side == "sell" and event.price != 2.2


IN_COD = """{
    output.at = input.at + 1; output.price = input.price; output.amount = input.amount; output.id = input.id;
    output.side = "buy"; output.cost = input.price * 2; return input.side == "sell" && input.price != 2.2;
}"""


@pytest.mark.parametrize("code", [in_python, IN_COD], ids=["python", "cod"])
def test_functions_see_what_is_kept(code: Any) -> None:
    g, seen = ev.Graph("functions"), []
    end = ev.Terminal(lambda event: seen.append(event.to_event()))
    _ = g.source("quotes", Quote) >> ev.Transform(code, output=Told) >> end
    given = [("1.10", "sell"), ("2.20", "sell"), ("0.30", "buy"), ("-99999999.99", "sell")]
    with g.run() as flow:
        for price, side in given:
            flow["quotes"].submit(quote(price=Decimal(price), side=side))
        flow.drain(timeout=20)
        assert not flow.dead_letters()
    passed = [Decimal(price) for price, side in given if side == "sell" and price != "2.20"]
    assert [event.price for event in seen] == passed
    assert [event.cost for event in seen] == [float(price) * 2 for price in passed]
    assert {event.at for event in seen} == {np.datetime64("2026-11-25T12:00:00.000000001")}
    assert {(event.side, event.id, event.amount) for event in seen} == {("buy", uuid.UUID(int=7), Decimal(1))}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ('input.side == "hold"', "'hold' is not a name of enum"),
        ('input.id == "x"', "uuid, which functions do not compute with"),
        ("input.amount > 1", r"decimal\(38,10\), which functions do not compute with"),
        ('input.price == "x"', "two numbers or two texts"),
    ],
)
def test_functions_refuse_what_they_cannot_compute_with(code: str, words: str) -> None:
    g = ev.Graph("refused")
    _ = g.source("quotes", Quote) >> ev.Filter(code) >> ev.Terminal(print)
    with pytest.raises(ev.CodeError, match=words), g.run():
        pass


@pytest.mark.parametrize("operator", ["=", "+="])
def test_a_number_without_a_name_is_a_fault_of_its_event(operator: str) -> None:
    class Named(ev.Event):
        side: Sides

    g, seen = ev.Graph("numbers"), []
    _ = (
        g.source("n", ev.Schema("n", {"n": int}))
        >> ev.Transform(f"{{ output.side {operator} input.n; return 1; }}", output=Named)
        >> ev.Terminal(lambda batch: seen.extend(batch["side"].tolist()), batch=True)
    )
    with g.run() as flow:
        flow["n"].submit_batch({"n": [1, 7, 0, -1, 256]})
        flow.drain(timeout=20)
        reasons = [letter.reason for letter in flow.dead_letters()]
    assert seen == ["sell", "buy"]
    assert len(reasons) == 3 and all("does not fit" in reason for reason in reasons)


INVALID = [
    ("enum(buy,sell)", "cc02"),
    ("decimal(4,2)", "d30000000000002710"),
    ("decimal(4,2)", "d3ffffffffffffd8f0"),
    ("uuid", "c41202000102" + "00" * 14),
    ("decimal(20,0)", "c4120100" + "01" + "00" * 15),
]


@pytest.mark.parametrize(("kind", "wire"), INVALID)
@pytest.mark.parametrize("beside", [{}, {"more": str}], ids=["fixed", "varying"])
def test_bytes_from_outside_that_are_no_value_are_refused(
    kind: str, wire: str, beside: dict[str, Any]
) -> None:
    schema = ev.Schema("t", {"x": kind, **beside})
    data = bytes([0x90 + len(schema)]) + bytes.fromhex(wire) + b"\xdb\0\0\0\0" * len(beside)
    for check in (
        lambda: ev.EventBatch.from_bytes(schema, data),
        lambda: ev.EventBatch.from_bytes(schema, data * 20_000),
        lambda: walk(schema, np.frombuffer(data, np.uint8)),
    ):
        with pytest.raises(
            SchemaError, match=r"bytes of t: event 0, field x, byte [23]: expected a (value|length) of"
        ):
            check()


def test_events_of_other_types_do_not_fit() -> None:
    for kind in (ev.i64, ev.Duration, ev.Decimal[10, 3]):
        with pytest.raises(SchemaError, match="field x is"):
            check_fit(ev.Schema("t", {"x": kind}), ev.Schema("t", {"x": ev.Timestamp}))
    longer = ev.Schema("t", {"n": int, "x": ev.Decimal[20], "y": ev.Decimal[10, 2]})
    assert (
        adapt(longer, ev.Schema("t", {"x": ev.Decimal[20], "y": ev.Decimal[10, 2], "n": float})) is not None
    )


DEFAULTS = [
    (ev.Timestamp, NOON),
    (ev.Decimal[10, 2], Decimal("1.5")),
    (ev.Decimal[20], Decimal(7)),
    (ev.UUID, uuid.UUID(int=3)),
    (Sides, "sell"),
]


@pytest.mark.parametrize(("kind", "default"), DEFAULTS)
def test_defaults_stand_in_where_events_lack_the_field(kind: Any, default: Any) -> None:
    old, new = ev.Schema("q", {"n": int}), ev.Schema("q", {"n": int, "x": kind}, {"x": default})
    g, seen = ev.Graph("defaults"), []
    copied = ev.Transform("{ output = input; return 1; }", input=new, output=new)
    _ = g.source("old", old) >> copied >> ev.Terminal(lambda event: seen.append(event.x), input=new)
    _ = g["old"] >> ev.Terminal(lambda event: seen.append(event.x), name="other", input=new)
    with g.run() as flow:
        flow["old"].submit_batch({"n": [1]})
        flow.drain(timeout=20)
        assert not flow.dead_letters()
    assert (
        seen
        == [new.event(n=1).x if kind is not ev.Timestamp else np.datetime64(NOON.replace(tzinfo=None))] * 2
    )


def test_default_of_an_enumeration_is_compared_by_name() -> None:
    new = ev.Schema("q", {"n": int, "x": Sides}, {"x": "sell"})
    g, seen = ev.Graph("names"), []
    for name in ("buy", "sell"):
        code = ev.Filter(f'input.x == "{name}"', input=new, name=name)
        _ = g.source(f"for {name}", ev.Schema("q", {"n": int})) >> code
        _ = g[name] >> ev.Terminal(lambda event, name=name: seen.append(name))
    with g.run() as flow:
        for name in ("buy", "sell"):
            flow[f"for {name}"].submit_batch({"n": [1]})
        flow.drain(timeout=20)
    assert seen == ["sell"]


def test_enumerations_of_more_names_take_events_of_fewer() -> None:
    g, seen = ev.Graph("grown"), []
    more = ev.Schema("q", {"x": ev.Enum["buy", "sell", "hold"]})
    _ = g.source("old", ev.Schema("q", {"x": Sides})) >> ev.Terminal(
        lambda event: seen.append(event.x), input=more
    )
    with g.run() as flow:
        flow["old"].submit_batch({"x": ["sell", "buy"]})
        flow.drain(timeout=20)
    assert seen == ["sell", "buy"]
    for names in (["sell", "buy"], ["buy"]):
        with pytest.raises(SchemaError, match="field x is"):
            check_fit(ev.Schema("q", {"x": Sides}), ev.Schema("q", {"x": ev.Enum[tuple(names)]}))


@pytest.mark.parametrize("engine", ["reference", "index"])
def test_constraints_see_numbers_and_texts(engine: str) -> None:
    matcher = Matcher(engine)
    texts = [
        f"at > {NOON.timestamp():.0f}",
        "price >= 19.9",
        'side == "sell"',
        "took == 1",
        "amount > 2",
    ]
    first, second = (
        quote(),
        quote(at=NOON + dt.timedelta(1), price=1, side="buy", took=0, amount=Decimal("2.5")),
    )
    ids = matcher.subscribe_many(texts)
    batch = ev.EventBatch.from_events([first, second])
    expected = [[ids[1], ids[2], ids[3]], [ids[0], ids[4]]]
    assert [sorted(found.tolist()) for found in matcher.match_batch(batch)] == expected
    for forms in (
        [first, second],
        list(batch),
        [view.to_event() for view in batch],
        map(View.to_dict, batch),
    ):
        assert [sorted(matcher.match(event).tolist()) for event in forms] == expected
    for table in (
        batch.to_columns(),
        batch.to_numpy() if batch.schema.width else batch.to_columns(),
        batch.to_pandas(),
        batch.to_arrow(),
    ):
        assert [sorted(found.tolist()) for found in matcher.match_batch(table)] == expected


def test_letters_of_nodes_can_be_made_events_again() -> None:
    """With nested events, lists and bytes as they are, not as Python shows them."""
    part = ev.Schema("part", {"at": ev.Timestamp, "price": ev.Decimal[10, 2]})
    kinds = {
        "one": part,
        "many": list[part],
        "tags": list[str],
        "prices": list[ev.Decimal[5, 1]],
        "blob": bytes,
    }
    schema = ev.Schema(
        "whole", {**kinds, "took": ev.Duration, "id": ev.UUID, "side": Sides, "missing": float | None}
    )
    inner = part(at=NOON, price="1.25")
    listed = {"many": [inner], "tags": ["a"], "prices": ["1.5"]}
    event = schema(one=inner, **listed, blob=b"\xff", took=7, id=uuid.UUID(int=9), side="buy", missing=None)
    g = ev.Graph("letters")
    _ = g.source("wholes", schema) >> ev.Terminal(lambda event: 1 / 0)
    with g.run() as flow:
        flow["wholes"].submit(event)
        flow.drain(timeout=20)
        (letter,) = told(list(flow.dead_letters()), 10)
    fields = msgpack.unpackb(msgpack.packb(letter["event"]))
    batch = ev.EventBatch.from_events([schema(**fields)])
    assert batch.to_bytes() == ev.EventBatch.from_events([event]).to_bytes()
    assert json.loads(json.dumps(plain_value(fields)))["many"] == [
        {"at": "2026-11-25T12:00:00.000000000Z", "price": "1.25"}
    ]


def test_json_has_texts_of_them() -> None:
    view = ev.EventBatch.from_events([quote(amount=Decimal("1.5"))])[0]
    wanted = {
        "at": "2026-11-25T12:00:00.000000000Z",
        "took": 1_000_000_000,
        "price": "19.90",
        "amount": "1.5000000000",
        "id": "00000000-0000-0000-0000-000000000007",
        "side": "sell",
        "until": None,
    }
    assert plain_value(view.to_dict()) == wanted
    g = ev.Graph("letters")
    _ = g.source("quotes", Quote) >> ev.Terminal(lambda event: 1 / 0)
    with g.run() as flow:
        flow["quotes"].submit(view)
        flow.drain(timeout=20)
        (letter,) = told(list(flow.dead_letters()), 10)
    assert letter["event"] == wanted
