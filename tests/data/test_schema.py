from __future__ import annotations

import copy
import hashlib
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import schemas, some

from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.schema import MAX_FIELDS, REQUIRED, Schema
from evflow.schema.types import (
    BLOB,
    MAX_CAPACITY,
    TEXT,
    Array,
    Bytes,
    ListOf,
    Maybe,
    Str,
    f32,
    f64,
    i8,
    i64,
    u16,
)


def test_schema_puts_fields_of_fixed_width_first() -> None:
    schema = Schema("s", {"a": str, "b": i8, "c": list[int], "d": Str[300], "e": Bytes[4], "f": bool})
    assert [f.name for f in schema.fields] == ["a", "b", "c", "d", "e", "f"]
    assert [f.name for f in schema.wire_fields] == ["b", "d", "e", "f", "a", "c"]
    assert [f.wire_index for f in schema.fields] == [4, 0, 5, 1, 2, 3]
    assert [f.offset for f in schema.fields] == [None, 1, None, 3, 306, 314]
    assert (schema.fixed_width, schema.width) == (315, None)


@pytest.mark.parametrize(("n", "header"), [(1, "91"), (15, "9f"), (16, "dc0010"), (300, "dc012c")])
def test_schema_header_is_the_array_of_its_fields(n: int, header: str) -> None:
    schema = Schema("s", {f"f{i}": i8 for i in range(n)})
    assert schema.header.hex() == header
    assert schema.width == len(schema.header) + 2 * n


def test_schema_nests_records_of_fixed_width_at_constant_offsets() -> None:
    point = Schema("point", {"x": f64, "y": f64})
    line = Schema("line", {"name": Str[4], "from_": point, "to": point})
    assert [f.offset for f in line.fields] == [1, 7, 26]
    assert (line.width, line.leaves) == (45, 5)
    assert line.dtype["to"] == point.dtype


def test_schema_record_of_variable_width_is_variable() -> None:
    inner = Schema("inner", {"s": str})
    outer = Schema("outer", {"a": inner, "b": i8})
    assert outer.width is None
    assert [f.name for f in outer.wire_fields] == ["b", "a"]


def test_schema_gives_fields_by_name() -> None:
    schema = Schema("s", {"a": i8, "b": f64}, {"b": 1})
    assert ("a" in schema, "c" in schema, len(schema), [f.name for f in schema]) == (
        True,
        False,
        2,
        ["a", "b"],
    )
    assert schema["a"].default is REQUIRED
    assert schema["b"].default == 1.0
    assert type(schema["b"].default) is float
    with pytest.raises(SchemaError, match="schema s has no field 'c'; its fields are a, b"):
        schema["c"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "0 fields: expected 1 to 65535"),
        ({"1a": i8}, "field name '1a': expected a word"),
        ({"_a": i8}, "field name '_a': expected a word"),
        ({"class": i8}, "field name 'class' is a keyword"),
        ({"schema": i8}, "field name 'schema' is taken"),
        ({"ﬁ": i8}, "field name 'ﬁ': expected a word"),
        ({"a" * 256: i8}, "expected a word"),
        ({3: i8}, "field name 3: expected a word"),
        ({"a": 3}, r"s\.a: 3 is not a field type"),
        ({"a": dict}, r"s\.a: <class 'dict'> is not a field type"),
        ({"a": list}, r"s\.a: <class 'list'> is not a field type.*; write list\[int\]"),
        ({"a": Str}, r"s\.a: .*Str'> is not a field type.*; write ev\.Str\[8\]"),
        ({"a": Array}, r"s\.a: .*Array'> is not a field type.*; write ev\.Array\[ev\.f64, 3\]"),
        ({"a": "i63"}, r"s\.a: type 'i63' is not known"),
        ({"a": "list(i64"}, r"s\.a: type 'list\(i64' is not known"),
        ({"a": "array(str,3)"}, r"s\.a: type 'array\(str,3\)' cannot be read"),
        ({"a": "array(f64,٣)"}, "cannot be read"),
        ({"a": "array(f64,3,)"}, "cannot be read"),
        ({"a": "str[0]"}, "capacity of 1 to 65533"),
        ({"a": "str[70000]"}, "capacity of 1 to 65533"),
        ({"a": "optional(optional(i64))"}, "an optional of an optional"),
        ({"a": "list(" * 70 + "i64" + ")" * 70}, "nested deeper than 64"),
        ({"a": "s"}, r"always holds itself \(s → s\)"),
        ({"a": Array[f64, 2**27], "b": Array[f64, 2**27]}, "expected at most 2147483647 bytes"),
    ],
)
def test_schema_refuses_what_it_cannot_be(fields: dict[Any, Any], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Schema("s", fields)


@pytest.mark.parametrize("given", [(["a"],), ({"a": i8}, ["a"]), (5,)])
def test_schema_refuses_fields_and_defaults_that_are_no_mapping(given: Any) -> None:
    with pytest.raises(
        SchemaError, match=r"schema s: expected (fields|defaults) as a mapping by name, found"
    ):
        Schema("s", *given)


@pytest.mark.parametrize("name", ["", "a b", "1", None, 5, "a" * 300, "a.b"])
def test_schema_refuses_names_that_are_no_words(name: Any) -> None:
    with pytest.raises(SchemaError, match=r"schema name .*: expected a word"):
        Schema(name, {"a": i8})


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        (i8, 128), (i8, 1.0), (i8, None), (u16, -1), (f64, "1"), (f64, 2**53 + 1), (f32, 1e39), (bool, 1),
        (Str[2], "abc"), (Str[2], "a\0"), (Str[2], "\ud800"), (TEXT, b""), (BLOB, ""), (Bytes[1], b"ab"),
        (list[int], [1]), (Array[f64, 2], [1, 2]), (Maybe(i8), "x"),
    ],
)  # fmt: skip
def test_schema_refuses_defaults_that_do_not_fit(kind: Any, default: Any) -> None:
    with pytest.raises(SchemaError, match="default of field x"):
        Schema("s", {"x": kind}, {"x": default})


def test_schema_refuses_a_default_for_no_field() -> None:
    with pytest.raises(SchemaError, match="default for 'y', which is not a field"):
        Schema("s", {"x": i8}, {"y": 1})


@pytest.mark.parametrize("build", [Str, Bytes])
@pytest.mark.parametrize("n", [0, -1, MAX_CAPACITY + 1, True, 2.0, "3", None])
def test_types_refuse_capacities_out_of_range(build: Any, n: Any) -> None:
    with pytest.raises(SchemaError, match="expected a capacity"):
        build(n)


@pytest.mark.parametrize(
    "parameters",
    [(f64, -1), (f64, 2**32), (f64, True), (f64, 1.0), (str, 2), (f64, *[1] * 9), ([], 2), (f64, 2**31)],
)
def test_types_refuse_arrays_that_cannot_be(parameters: Any) -> None:
    with pytest.raises(SchemaError):
        Array[parameters]


def test_types_greatest_capacities_fit_their_markers() -> None:
    assert (Str(MAX_CAPACITY).width, Bytes(MAX_CAPACITY).width) == (65_536, 65_538)
    assert (Bytes(253).head, Bytes(254).head, Str(255).head, Str(256).head) == (2, 3, 2, 3)


@some
@given(schemas())
def test_schema_description_travels_as_json(schema: Schema) -> None:
    description = json.loads(json.dumps(schema.description))
    again = Schema.from_description(description)
    assert again.description == schema.description
    assert again == schema
    assert hash(again) == hash(schema)
    assert [f.offset for f in again.wire_fields] == [f.offset for f in schema.wire_fields]


def test_schema_description_keeps_defaults_exactly() -> None:
    defaults = {
        "a": 0.1,
        "b": float("inf"),
        "c": -0.0,
        "d": b"\xff\0",
        "e": "ä\n",
        "f": 2**63,
        "g": None,
        "h": [],
        "i": True,
    }
    kinds: dict[str, Any] = {
        "a": f64,
        "b": f32,
        "c": f64,
        "d": BLOB,
        "e": Str[4],
        "f": "u64",
        "g": Maybe(i8),
        "h": list[str],
        "i": bool,
    }
    schema = Schema("s", kinds, defaults)
    again = Schema.from_description(json.loads(json.dumps(schema.description)))
    assert {f.name: f.default for f in again.fields} == defaults
    assert repr(again["c"].default) == "-0.0"


def test_schema_default_nan_has_a_stable_fingerprint() -> None:
    make = lambda: Schema("s", {"x": f64}, {"x": float("nan")})  # noqa: E731
    assert make() == make()


def test_schema_fingerprint_is_the_hash_of_its_canonical_json() -> None:
    schema = Schema("t", {"s": Str[8], "p": float, "n": "optional(t)"}, {"p": 1.5, "s": "ä"})
    text = (
        '{"fields":[["s","str[8]","ä"],["p","f64",{"f64":"3ff8000000000000"}],'
        '["n","optional(record(t))"]],"name":"t"}'
    )
    assert schema.fingerprint == hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        Schema("u", {"a": i8, "b": i64}),
        Schema("t", {"b": i64, "a": i8}),
        Schema("t", {"a": i8, "b": i64}, {"b": 0}),
        Schema("t", {"a": i8, "b": f64}),
        Schema("t", {"a": i8}),
    ],
)
def test_schema_fingerprint_differs_by_name_order_type_and_default(other: Schema) -> None:
    assert other != Schema("t", {"a": i8, "b": i64})


def test_schema_can_be_copied_and_pickled() -> None:
    schema = Schema("node", {"next": "optional(node)", "kids": ListOf(i8)}, {"next": None})
    for again in (copy.deepcopy(schema), pickle.loads(pickle.dumps(schema))):
        assert again == schema
        assert again["kids"].default is REQUIRED
        assert again.recursive


def test_schema_dtype_reads_the_fixed_part() -> None:
    schema = Schema("s", {"a": u16, "s": Str[3], "k": Bytes[2], "g": Array[f32, 2], "b": bool, "v": str})
    dtype = schema.dtype
    assert dtype.itemsize == schema.fixed_width
    assert {n: dtype[n].str for n in ("a", "s", "k", "k#", "b")} == {
        "a": ">u2", "s": "|S3", "k": "|S2", "k#": "<u2", "b": "|u1",
    }  # fmt: skip
    assert dtype["g"] == np.dtype(("<f4", (2,)))


def test_schema_of_many_small_records_within_each_other_is_refused_quickly() -> None:
    records = {f"R{i}": [["a", f"record(R{i + 1})"], ["b", f"record(R{i + 1})"]] for i in range(60)}
    records["R60"] = [["a", "bool"]]
    with pytest.raises(SchemaError, match="expected at most 2147483647 bytes and 65535 values"):
        Schema.from_description({"name": "top", "fields": [["a", "record(R0)"]], "records": records})


def test_schema_of_a_deep_chain_of_records_is_refused() -> None:
    records: dict[str, Any] = {f"R{i}": [["a", f"list(record(R{i + 1}))"]] for i in range(200)}
    records["R200"] = [["a", "i64"]]
    with pytest.raises(SchemaError, match="nested deeper than 64"):
        Schema.from_description({"name": "top", "fields": [["a", "record(R0)"]], "records": records})
    schema = Schema("s0", {"a": i8})
    with pytest.raises(SchemaError, match="nested deeper than 64"):
        for n in range(1, 200):
            schema = Schema(f"s{n}", {"a": list[schema]})  # type: ignore[valid-type]


def test_schema_description_without_a_record_it_names_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"t\.a: type 'gone' is not known"):
        Schema.from_description({"name": "t", "fields": [["a", "record(gone)"]]})


@pytest.mark.parametrize(
    "description",
    [
        None,
        [],
        {},
        {"name": "t"},
        {"fields": []},
        {"name": None, "fields": [["a", "i64"]]},
        {"name": "t", "fields": []},
        {"name": "t", "fields": "a"},
        {"name": "t", "fields": [["a"]]},
        {"name": "t", "fields": [["a", 5]]},
        {"name": "t", "fields": [["a", "i64", 0, 0]]},
        {"name": "t", "fields": [["a", "i64"], ["a", "i64"]]},
        {"name": "t", "fields": [["a", "i64", {"hex": "00"}]]},
        {"name": "t", "fields": [["a", "bytes", {"hex": "0"}]]},
        {"name": "t", "fields": [["a", "f64", {"f64": "00"}]]},
        {"name": "t", "fields": [["a", "f64", {"f64": "zz"}]]},
        {"name": "t", "fields": [["a", "i64", 10**500]]},
        {"name": "t", "fields": [["a", "f64", 10**500]]},
        {"name": "t", "fields": [["a", "str", "\ud800"]]},
        {"name": "t", "fields": [["a", "i64"]], "records": []},
        {"name": "t", "fields": [["a", "i64"]], "records": {"t": [["a", "i64"]]}},
        {"name": "t", "fields": [["a", "i64"]], "records": {"": [["a", "i64"]]}},
        {"name": "t", "fields": [["a", "record(r)"]], "records": {"r": 5}},
        {"name": "t", "fields": [["a", "record(r)"]], "records": {"r": [["a", "record(r)"]]}},
        {"name": "t", "fields": [[f"a{i}", "bool"] for i in range(MAX_FIELDS + 1)]},
    ],
)
def test_schema_description_that_is_malformed_is_refused(description: Any) -> None:
    with pytest.raises(SchemaError):
        Schema.from_description(description)


_TEXTS = st.one_of(
    st.sampled_from(
        ["i64", "f64", "str", "record(r)", "record(t)", "list(record(t))", "optional(i8)", "r", "t"]
    ),
    st.text(alphabet="()[],?0123456789listoptionalrecordarraystrbytesf64iu", max_size=30),
    st.text(max_size=8),
)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)
_ROWS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b", "_", "class"]), _TEXTS).map(list),
        st.tuples(st.sampled_from("cd"), _TEXTS, _JSON).map(list),
        _JSON,
    ),
    max_size=4,
)


@some
@given(
    st.fixed_dictionaries(
        {"name": st.one_of(st.just("t"), _JSON), "fields": st.one_of(_ROWS, _JSON)},
        optional={"records": st.one_of(st.dictionaries(st.sampled_from("rtq"), _ROWS, max_size=3), _JSON)},
    )
)
def test_schema_description_from_anywhere_is_a_schema_or_refused(description: Any) -> None:
    try:
        schema = Schema.from_description(description)
    except SchemaError:
        return
    assert Schema.from_description(schema.description) == schema


def test_schema_of_very_many_fields_works() -> None:
    n = 2_000
    schema = Schema("wide", {f"f{i}": i64 for i in range(n)})
    event = schema(**{f"f{i}": i for i in range(n)})
    batch = EventBatch.from_events([event])
    assert batch[0] == event
    assert batch["f1999"].tolist() == [1999]
    assert EventBatch.from_bytes(schema, batch.to_bytes()).to_events() == [event]
