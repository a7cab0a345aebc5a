"""Dead letters of a deployment, as its handle has them: from where, how many, and again to their stones."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.deploy.letters import letters_of
from evflow.events.attributes import MOST_ATTRIBUTES, Attributes
from tests.deploy.yard import Rec, Yard, chain
from tests.node.processes import wait_for


def test_what_the_handle_itself_gives_up_is_among_its_letters(tmp_path: Path) -> None:
    """The event never left this program; its stone is the source that it was submitted to."""
    with Yard(tmp_path, "a") as yard, chain("a", "a").deploy(yard.hosts, name="clerk") as handle:
        many = Attributes.from_rows([{f"a{number}": 1 for number in range(MOST_ATTRIBUTES + 1)}])
        handle["recs"].submit_batch(ev.EventBatch.from_events([Rec(7)]).with_attributes(many))
        handle["recs"].submit(Rec(8))
        handle.drain(20)
        assert yard.seen == [8]
        letters = handle.dead_letters()
        assert (len(letters), letters.lost, letters.total) == (1, 0, 1)
        (letter,) = letters
        assert (letter.stone, letter.node, letter.event.seq) == ("recs", "clerk", 7)
        assert "at most 1,000 attributes of an event, found 1,001" in letter.reason
        # As many are refused again; the letter that comes of it is another one.
        letters.resubmit()
        handle.drain(20)
        again = handle.dead_letters()
        assert (len(again), again.total) == (1, 2)
        assert handle.dead_letters(limit=0) == []
        with pytest.raises(ev.DeployError, match="dead letter 0 of node clerk is no longer"):
            letter.resubmit()


@pytest.mark.slow
def test_all_letters_are_submitted_again_however_many(tmp_path: Path) -> None:
    """In order; those that somebody else has submitted meanwhile are said, and keep no others from it."""
    count = 2500
    broken = True

    def note(batch: ev.EventBatch) -> None:
        if broken:
            raise ValueError("not yet")
        yard.seen.extend(batch["seq"].tolist())

    with Yard(tmp_path, "") as yard:
        yard.start("a", handlers={"desk:note": note})
        with chain("a", "a").deploy(yard.hosts) as handle:
            handle["recs"].submit_batch({"seq": range(count)})
            handle.drain(20)
            letters = handle.dead_letters()
            assert [letter.event.seq for letter in letters] == list(range(count))
            assert [letter.event.seq for letter in handle.dead_letters(limit=3)] == [*range(count)][-3:]
            broken = False
            letters[1].resubmit()
            letters[7].resubmit()
            with pytest.raises(ev.DeployError, match="letter 1 of node a and 1 more are no longer there"):
                letters.resubmit()
            wait_for(lambda: len(yard.seen) == count, "all of them")
            assert yard.seen == [1, 7, *(seq for seq in range(count) if seq not in (1, 7))]
            assert handle.dead_letters() == []


class Blob(ev.Event):
    seq: int
    data: bytes


@pytest.mark.slow
def test_letters_for_a_stone_that_is_full_do_not_hold_up_their_node(tmp_path: Path) -> None:
    """The error says so, the node goes on to answer, and the others are submitted when there is room."""
    # A frozen stone may get twice as much as it may hold, if that comes at once.
    count, broken, seen = 104, True, []

    def note(event: Blob) -> None:
        if broken:
            raise ValueError("not yet")
        seen.append(event.seq)

    graph = ev.Graph("blobs")
    graph.source("blobs", Blob, on="a") >> ev.Terminal("desk:note", name="end", on="a")
    with Yard(tmp_path, "") as yard:
        yard.start("a", handlers={"desk:note": note})
        with graph.deploy(yard.hosts) as handle:
            for seq in range(count):
                handle["blobs"].submit(Blob(seq, bytes(1 << 20)))
            handle.drain(60)
            handle.freeze("end")
            wait_for(lambda: handle.status()["a"]["stones"]["blobs/end"]["frozen"], "the stone to be frozen")
            with pytest.raises(ev.FlowError, match="'blobs/end' is full"):
                handle.dead_letters().resubmit()
            left = len(handle.dead_letters())
            assert 0 < left < count
            broken = False
            handle.unfreeze("end")
            wait_for(lambda: len(seen) == count - left, "those that were submitted")
            handle.dead_letters().resubmit()
            wait_for(lambda: len(seen) == count, "the others")
            assert seen == list(range(count))


@pytest.mark.parametrize(
    "change",
    [
        lambda event: setattr(event, "seq", 9),
        lambda event: delattr(event, "seq"),
        lambda event: event.__setitem__("seq", 9),
        lambda event: event.__delitem__("seq"),
        lambda event: event.__ior__({"seq": 9}),
        lambda event: event.update(seq=9),
        lambda event: event.setdefault("more", 9),
        lambda event: event.pop("seq"),
        lambda event: event.popitem(),
        lambda event: event.clear(),
    ],
)
def test_the_event_of_a_letter_cannot_be_changed(change: Callable[[Any], object]) -> None:
    """It is submitted again as it was, so the error says what to do; a copy can be changed."""
    said = {"event": {"seq": 1, "text": "x"}, "stone": "chain/end", "reason": "no", "number": 0}
    (letter,) = letters_of([said], "a")
    with pytest.raises(ev.DeployError, match=r"resubmit\(\) submits it as it was; submit a changed copy"):
        change(letter.event)
    assert letter.event == {"seq": 1, "text": "x"}
    assert letter.event | {"seq": 9} == {"seq": 9, "text": "x"}
    assert copy.deepcopy(letter.event).seq == pickle.loads(pickle.dumps(letter.event)).seq == 1
    assert json.loads(json.dumps(letter.event)) == letter.event
