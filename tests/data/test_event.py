from __future__ import annotations

import copy
import pickle
from typing import Annotated, ClassVar, Optional

import numpy as np
import pytest

import evflow as ev
from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.event import Event
from evflow.schema import Schema
from evflow.schema.types import TEXT, Array, ListOf, Maybe, Record, Str, f32, f64, i32, i64


class Trade(ev.Event):
    symbol: ev.Str[8]
    price: float
    size: int = 0


class Tree(ev.Event):
    value: int
    kids: list[Tree] = []  # noqa: RUF012
    left: Tree | None = None


def field_types(cls: type[Event]) -> dict[str, str]:
    return {f.name: f.type.text for f in cls.schema.fields}


def test_event_annotations_are_the_schema() -> None:
    assert Trade.schema == Schema("Trade", {"symbol": Str[8], "price": f64, "size": i64}, {"size": 0})
    assert Trade.schema is Trade.schema


def test_event_is_a_dataclass_that_can_be_changed() -> None:
    trade = Trade("IBM", price=80.0)
    assert (trade.symbol, trade.price, trade.size) == ("IBM", 80.0, 0)
    trade.size = 5
    assert trade == Trade("IBM", 80.0, 5)
    assert trade != Trade("IBM", 80.0, 6)
    assert trade != "IBM"
    assert trade != Trade
    assert repr(trade) == "Trade(symbol='IBM', price=80.0, size=5)"
    assert trade.to_dict() == {"symbol": "IBM", "price": 80.0, "size": 5}


def test_event_default_list_is_each_events_own() -> None:
    one, other = Tree(1), Tree(2)
    one.kids.append(other)
    assert other.kids == []
    assert Tree.schema["kids"].default == []


def test_event_equality_compares_arrays_and_deep_trees() -> None:
    class Image(ev.Event):
        pixels: ev.Array[f32, 2]

    assert Image(np.array([1, 2])) == Image(np.array([1.0, 2.0]))
    assert Image(np.array([1, 2])) != Image(np.array([1, 3]))
    assert Image([1, 2]) == Image((1, 2))
    trees = [Tree(0), Tree(0)]
    for n in range(2000):
        trees = [Tree(n, left=t) for t in trees]
    assert trees[0] == trees[1]
    assert trees[0] != trees[0].left


def test_event_may_hold_itself() -> None:
    assert field_types(Tree) == {
        "value": "i64",
        "kids": "list(record(Tree))",
        "left": "optional(record(Tree))",
    }
    kids = Tree.schema["kids"].type
    assert isinstance(kids, ListOf)
    assert isinstance(kids.element, Record)
    assert kids.element.schema is Tree.schema


def test_event_takes_every_spelling_of_a_type() -> None:
    class Leg(ev.Event):
        x: i32

    class Everything(ev.Event):
        a: int
        b: float
        c: bool
        d: str
        e: bytes
        f: ev.Bytes[4]
        g: ev.Array[ev.f64, 2, None]
        h: list[Leg]
        i: Optional[Leg]  # noqa: UP045
        j: ev.Str[3] | None
        k: i32 | None
        m: Annotated[str, ev.Str[5]]
        n: Annotated[int, "a note"]
        o: list[list[str]]
        counted: ClassVar[int] = 7

    assert list(field_types(Everything).values()) == [
        "i64", "f64", "bool", "str", "bytes", "bytes[4]", "array(f64,2,?)", "list(record(Leg))",
        "optional(record(Leg))", "optional(str[3])", "optional(i32)", "str[5]", "i64", "list(list(str))",
    ]  # fmt: skip
    assert Everything.counted == 7


@pytest.mark.parametrize(("kind", "meant"), [(str, r"ev\.Str\[8\]"), (bytes, r"ev\.Bytes\[8\]")])
def test_number_beside_text_is_not_taken_for_nothing(kind: type, meant: str) -> None:
    with pytest.raises(ev.SchemaError, match=rf"a: .*for a capacity write {meant}"):

        class Named(ev.Event):
            a: Annotated[kind, 8]  # type: ignore[valid-type]


def test_event_may_name_a_local_class_that_is_defined_later() -> None:
    class Order(ev.Event):
        owner: Customer
        first: Item | None = None

    class Customer(ev.Event):
        name: str
        orders: list[Order]

    class Item(ev.Event):
        order: Order

    assert field_types(Order) == {"owner": "record(Customer)", "first": "optional(record(Item))"}
    orders = Customer.schema["orders"].type
    assert isinstance(orders, ListOf)
    assert isinstance(orders.element, Record)
    assert orders.element.schema is Order.schema
    assert Schema.from_description(Item.schema.description) == Item.schema


def test_event_may_be_nested_in_an_event_class() -> None:
    class Outer(ev.Event):
        class Inner(ev.Event):
            x: int

        inner: Inner

    assert field_types(Outer) == {"inner": "record(Inner)"}
    assert Outer(Outer.Inner(3)).inner.x == 3


def test_event_subclass_adds_to_the_fields() -> None:
    class Quote(Trade):
        venue: str = ""
        size: i32 = 1

    assert field_types(Quote) == {"symbol": "str[8]", "price": "f64", "size": "i32", "venue": "str"}
    assert Quote("A", 1.0) == Quote("A", 1.0, 1, "")


def test_event_name_that_is_nowhere_defined_is_refused_when_the_schema_is_asked_for() -> None:
    class Typo(ev.Event):
        x: flaot  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(
        SchemaError, match=r"event Typo: field x: 'flaot': name 'flaot' is not defined"
    ) as caught:
        _ = Typo.schema
    assert not caught.type.__name__.startswith("_"), "a traceback begins with its name"
    with pytest.raises(SchemaError, match="flaot"):
        Typo(1).schema  # noqa: B018


def test_event_annotation_that_is_no_type_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"Bad\.x: .*complex.* is not a field type; expected int, float"):

        class Bad(ev.Event):
            x: complex

    with pytest.raises(SchemaError, match=r"Worse\.x: .* is not a field type"):

        class Worse(ev.Event):
            x: int | str

    with pytest.raises(SchemaError, match=r"event Odd: field x: .* is not a field type"):

        class Odd(ev.Event):
            x: 1 + None  # type: ignore[valid-type]


def test_event_default_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"schema Bad: default of field x: 'a' \(str\) does not fit i64"):

        class Bad(ev.Event):
            x: int = "a"  # type: ignore[assignment]

    with pytest.raises(SchemaError, match="non-default argument 'y' follows default argument"):

        class Order(ev.Event):
            x: int = 1
            y: int  # type: ignore[misc]


@pytest.mark.parametrize("name", ["schema", "attrs", "to_event", "to_dict", "_hidden"])
def test_event_field_name_that_is_taken_is_refused(name: str) -> None:
    with pytest.raises(SchemaError, match=f"field name '{name}'"):
        type("Bad", (ev.Event,), {"__annotations__": {name: int}})


def test_event_classes_of_one_name_within_each_other_are_refused() -> None:
    def inner() -> type[ev.Event]:
        class Twin(ev.Event):
            x: int

        return Twin

    one = inner()
    with pytest.raises(SchemaError, match="two different records are named Twin"):
        Schema("Pair", {"a": one, "b": Schema("Twin", {"y": f64})})
    with pytest.raises(SchemaError, match="two different records are named Twin"):
        Schema("Twin", {"a": one})
    assert Schema("Pair", {"a": one, "b": inner()}).width == 1 + 2 * 10


def test_event_always_holding_itself_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"always holds itself \(Egg → Hen → Egg\)"):

        class Egg(ev.Event):
            hen: Hen

        class Hen(ev.Event):
            egg: Egg

        _ = Egg.schema


def test_schema_makes_events_without_a_class() -> None:
    schema = Schema("trade", {"price": f64, "size": int}, {"price": 1.5})
    event = schema(size=2)
    assert (event.price, event.size, event.schema) == (1.5, 2, schema)
    assert event == schema.event(price=1.5, size=2)
    event.size = 3
    assert repr(event) == "trade(price=1.5, size=3)"
    with pytest.raises(SchemaError, match="event trade: no such field: sise; its fields are price, size"):
        schema(sise=1)
    with pytest.raises(SchemaError, match="event trade: missing: size"):
        schema()


def test_schema_of_a_class_makes_events_of_the_class() -> None:
    assert isinstance(Trade.schema(symbol="A", price=1.0), Trade)


@pytest.mark.parametrize("event", [Trade("A", 1.0), Schema("t", {"x": TEXT})(x="a"), Tree(1, [Tree(2)])])
def test_event_can_be_copied_and_pickled(event: Event) -> None:
    assert copy.deepcopy(event) == event
    assert pickle.loads(pickle.dumps(event)) == event


def test_event_type_with_none_is_optional() -> None:
    assert (Str[3] | None) == Maybe(Str(3)) == (None | Str[3])
    assert (Array[f64, 2] | None).text == "optional(array(f64,2))"
    with pytest.raises(TypeError):
        _ = Str[3] | int  # type: ignore[operator]


def test_event_that_holds_itself_can_be_compared_and_is_no_dict() -> None:
    one, other = Tree(1), Tree(1)
    one.left, other.left = one, other
    assert one == other
    other.value = 2
    assert one != other
    with pytest.raises(SchemaError, match="at most 500 records"):
        one.to_dict()
    assert repr(one) == "Tree(value=1, kids=[], left=...)"


def test_event_class_without_fields_is_a_base_only() -> None:
    class Base(ev.Event):
        def twice(self) -> int:
            return 2 * self.x  # type: ignore[attr-defined,no-any-return]

    class Derived(Base):
        x: int

    assert Derived(3).twice() == 6
    with pytest.raises(SchemaError, match="schema Base: 0 fields"):
        _ = Base.schema


def test_event_holds_its_fields_in_slots_and_what_else_is_set_in_its_dict() -> None:
    trade = Trade("A", 1.0)
    trade.seen = "today"  # type: ignore[attr-defined]
    assert vars(trade) == {"seen": "today"}
    again = pickle.loads(pickle.dumps(trade))
    assert (again, again.seen) == (trade, "today")
    del trade.price
    with pytest.raises(AttributeError, match="price"):
        _ = trade.price


def test_event_class_may_have_a_base_that_is_no_event() -> None:
    class Priced:
        def total(self) -> float:
            return self.price * self.size  # type: ignore[attr-defined,no-any-return]

    class Order(Trade, Priced):
        venue: str = ""

    assert Order("A", 2.0, 3).total() == 6.0
    assert list(field_types(Order)) == ["symbol", "price", "size", "venue"]


def test_event_of_several_events_with_fields_is_refused() -> None:
    class Place(ev.Event):
        x: int

    with pytest.raises(SchemaError, match="event Both: it derives from several events with fields"):

        class Both(Trade, Place):
            pass


def test_event_fields_may_be_named_like_types() -> None:
    class Odd(ev.Event):
        list: int
        items: list[int]
        str: ev.Str[4] = "a"

    assert field_types(Odd) == {"list": "i64", "items": "list(i64)", "str": "str[4]"}


def test_schema_fields_may_be_named_like_parameters() -> None:
    schema = Schema(
        "s", dict.fromkeys(("self", "event", "fields", "value", "read", "at", "data", "cls"), int)
    )
    fields = {f.name: i for i, f in enumerate(schema.fields)}
    event = schema(**fields)
    assert EventBatch.from_events([event])[0].to_event() == event
    assert event.to_dict() == fields
