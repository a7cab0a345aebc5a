"""Records and messages as hypothesis makes them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from evflow.deploy import messages as m
from evflow.deploy.record import Record
from tests.deploy.group import graph_of

__all__ = ["GRAPH", "MESSAGE", "NODE", "RECORD"]

NODE = st.sampled_from("ABZ")
IDENTITY = st.sampled_from(["0" * 32, "1" * 32, "abcdef0123456789" * 2])
NUMBER = st.integers(0, (1 << 62) - 2)
SMALL = st.integers(1, 3)
GRAPH = st.dictionaries(st.sampled_from("stuv"), st.sampled_from("AB")).map(lambda placed: graph_of(**placed))


@st.composite
def records(draw: Any, version: int, birth: str) -> Record:
    return Record(
        deployment="x",
        version=version,
        graph=draw(st.none() | GRAPH),
        hosts={"A": "sim://A", "B": draw(st.text(max_size=5))} | draw(st.dictionaries(NODE, st.just(""))),
        frozen=draw(st.lists(st.sampled_from("st"), max_size=2)),
        change=birth if version == 1 else draw(IDENTITY),
        birth=birth,
        parts=draw(st.dictionaries(NODE, IDENTITY)),
    )


RECORD = st.tuples(SMALL, IDENTITY).flatmap(lambda at: records(*at))
BALLOT = st.builds(m.Ballot, NUMBER, NODE, IDENTITY)
NOBODYS = st.builds(m.Ballot, NUMBER, st.just(""), st.just(""))
DECISION = st.builds(m.Decision, st.just("x"), IDENTITY, SMALL)
REASON = st.text(max_size=20)


@st.composite
def piece(draw: Any) -> m.Piece:
    total = draw(st.integers(0, 40))
    part = draw(st.binary(min_size=total, max_size=total))
    return m.Piece(
        draw(DECISION), draw(IDENTITY), "s", 0, total, draw(st.binary(min_size=16, max_size=16)), part
    )


@st.composite
def of_records(draw: Any) -> m.Message:
    at = draw(DECISION)
    base = None if at.version == 1 else draw(records(at.version - 1, at.birth))
    record = draw(records(at.version, at.birth).filter(lambda r: r.version > 1 or r.graph is not None))
    ballot = draw(BALLOT)
    return draw(
        st.sampled_from(
            [
                m.Prepare(at, ballot, base, record, []),
                m.Prepare(at, ballot, base, None, ["A"]),
                m.Promise(at, ballot, ballot, record),
                m.Accept(at, ballot, record),
                m.Chosen(record),
                m.Accept(at, ballot, record.withdrawn(record.change)),
            ]
        )
    )


MESSAGE: st.SearchStrategy[m.Message] = st.one_of(
    of_records(),
    piece(),
    st.builds(m.Promise, DECISION, BALLOT, st.none(), st.none()),
    st.builds(m.Outbid, DECISION, BALLOT, BALLOT | NOBODYS),
    st.builds(m.Ready, DECISION, BALLOT),
    st.builds(m.Able, DECISION, BALLOT),
    st.builds(m.Close, DECISION, BALLOT),
    st.builds(m.Quiet, DECISION, BALLOT),
    st.builds(m.Settle, DECISION, BALLOT),
    st.builds(m.Busy, DECISION, BALLOT, REASON),
    st.builds(m.Unable, DECISION, BALLOT, REASON),
    st.builds(m.Accepted, DECISION, BALLOT),
    st.builds(m.Applied, DECISION),
    st.builds(m.Cancel, DECISION, BALLOT),
    st.builds(m.State, st.lists(DECISION, max_size=3)),
    st.builds(m.Fetch, DECISION, IDENTITY, st.just("s"), NUMBER),
)
