"""One function compiled by itself."""

from __future__ import annotations

import numpy as np
import pytest

from evflow.codgen.tree import Fault
from evflow.errors import CodeError
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.events.view import view_class
from evflow.schema import Schema
from evflow.schema.types import TEXT, Str, f64, i64
from tests.codgen.compiling import compile

TRADE = Schema("Trade", {"symbol": Str[8], "trade_price": f64, "size": i64})
NOTE = Schema("Note", {"text": TEXT, "n": i64})

FIGURE_6 = """{
   if ((input.trade_price < 75.5) ||
        (input.trade_price > 78.5)) {
      return 1; /* pass event over output link */
   }
   return 0; /* discard event */
}"""


def trade(price: float, size: int = 1) -> bytes:
    return encode_dict(TRADE, {"symbol": "IBM", "trade_price": price, "size": size})


def test_filter_of_the_paper_selects_prices_outside_its_range() -> None:
    prices = [70.0, 75.5, 76.0, 78.5, 79.0]
    data = np.frombuffer(b"".join(map(trade, prices)), np.uint8)
    assert compile(FIGURE_6, TRADE).select(data, len(prices)).tolist() == [0, 4]


def test_one_event_gives_result_and_what_was_sent() -> None:
    filter_ = compile("input.size", TRADE)
    assert filter_(trade(1.0, 7)).result == 7
    assert filter_(trade(1.0, 7)).sent == [(0, trade(1.0, 7))]
    assert filter_(trade(1.0, 0)).sent == []


def test_fault_is_told_with_its_line() -> None:
    outcome = compile("{ long n = 1;\n return n / input.size; }", TRADE)(trade(1.0, 0))
    assert (outcome.fault, outcome.line, outcome.sent) == (Fault.DIVISION, 2, [])


def test_transform_gives_the_bytes_of_its_output() -> None:
    made = compile(
        "{ output.text = input.symbol; output.n = input.size; submit(2, output); return 1; }", TRADE, NOTE
    )
    first, second = made(trade(1.0, 5)).sent
    assert (first.port, view_class(NOTE)(first.event).to_dict()) == (0, {"text": "", "n": 0})
    assert (second.port, view_class(NOTE)(second.event).to_dict()) == (2, {"text": "IBM", "n": 5})


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("output.n = input.size; output.n += 2; output.n++;", {"n": 8, "inner": {"n": None}}),
        ("output.inner.n = 3; output.inner.n -= input.size;", {"n": None, "inner": {"n": -2}}),
        ("output.n = 4; output.inner.n = output.n++ * 2;", {"n": 5, "inner": {"n": 8}}),
        ("output.n = output.inner.n + 0;", Fault.ABSENT),
        ("output.inner.n++;", Fault.ABSENT),
        ("output.n += 1;", Fault.ABSENT),
    ],
)
def test_an_optional_number_of_an_output_is_read_once_it_was_set(text: str, made: object) -> None:
    inner = Schema("Inner", {"n": "optional(i64)"})
    schema = Schema("Made", {"n": "optional(i64)", "inner": inner})
    outcome = compile(f"{{ {text} return 1; }}", TRADE, schema)(trade(1.0, 5))
    sent = [view_class(schema)(one.event).to_dict() for one in outcome.sent]
    assert (sent[0] if sent else outcome.fault) == made


def test_router_sends_by_port() -> None:
    made = compile("return input.size;", TRADE, kind="router")
    assert [s.port for n in (-1, 0, 3) for s in made(trade(1.0, n)).sent] == [0, 3]


def test_events_of_varying_width_are_selected_by_offsets() -> None:
    batch = EventBatch.from_encoded(NOTE, [encode_dict(NOTE, {"text": "x" * n, "n": n}) for n in range(6)])
    made = compile("length(input.text) % 2 == 0 && input.n > 0", NOTE)
    assert made.select(batch.data, 6, batch.offsets).tolist() == [2, 4]


def test_stone_attributes_and_system_values_are_given() -> None:
    made = compile('{ return attr_ivalue(stone_attrs, "n") + (long)time(); }', TRADE)
    assert made(trade(1.0), {"n": 5}, {"time": 100.0}).result == 105


def test_same_text_is_built_once_and_has_statics_of_its_own() -> None:
    text = "{ static int n = 0; n++; return n; }"
    first, second = compile(text, TRADE), compile(text, TRADE)
    assert [first(trade(1.0)).result, first(trade(1.0)).result, second(trade(1.0)).result] == [1, 2, 1]
    assert first.function is second.function


def test_python_function_is_compiled() -> None:
    made = compile(lambda input: input.size > 3, TRADE)
    assert [made(trade(1.0, n)).result for n in (3, 4)] == [0, 1]


def test_bad_code_is_refused_with_its_place() -> None:
    with pytest.raises(CodeError, match="line 1, column"):
        compile("input.prize > 3", TRADE)
