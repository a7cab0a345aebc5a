"""A stone of which each part of the contract fails when it is told to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import evflow as ev
from evflow.stone import Acting, Actor, Checkpoint, Context, Held, Stone


class Anger:
    """What fails, and how.

    Attributes:
        where: the method or property that fails; "" for none.
        how: an exception that it raises, or what it returns.
        hurt: how often it has failed.
    """

    where: ClassVar[str] = ""
    how: ClassVar[Any] = None
    hurt: ClassVar[int] = 0

    @classmethod
    def begin(cls, where: str, how: Any) -> None:
        """From now on this fails."""
        cls.where, cls.how, cls.hurt = where, how, 0

    @classmethod
    def at(cls, where: str, otherwise: Any = None) -> Any:
        """What a method gives that has this name."""
        if where != cls.where:
            return otherwise
        cls.hurt += 1
        if isinstance(cls.how, type) and issubclass(cls.how, BaseException):
            raise cls.how("on purpose")
        return cls.how() if callable(cls.how) else cls.how


class Angry(Acting):
    """Holds what comes, and hands it on when it is woken."""

    wakes = True

    def __init__(self, *, name: str | None = None, on: str | None = None) -> None:
        super().__init__(name=name, on=on)
        Anger.at("__init__")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Stone:
        made: Stone = Anger.at("from_settings", cls())
        return made

    def settings(self) -> Any:
        return Anger.at("settings", {})

    @property
    def inputs(self) -> Any:
        return Anger.at("inputs", {"input": None})

    def emits(self, schema: Any) -> Any:
        return Anger.at("emits", (schema,))

    @property
    def imports(self) -> Any:
        return Anger.at("imports", ())

    @property
    def files(self) -> Any:
        return Anger.at("files", ())

    @property
    def reads(self) -> Any:
        return Anger.at("reads", ())

    def asks(self, schema: Any) -> Any:
        return Anger.at("asks", False)

    def keep_in(self, folder: Path) -> None:
        Anger.at("keep_in")

    def prepare(self) -> None:
        Anger.at("prepare")

    def check(self) -> None:
        Anger.at("check")

    def check_arrivals(self, schemas: Any) -> None:
        Anger.at("check_arrivals")

    def controls(self, call: Any) -> Any:
        return Anger.at("controls")

    def open(self, context: Context) -> Any:
        return Anger.at("open", _Angry(context))


class _Angry(Actor):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._held: list[ev.EventBatch] = []
        self._taken = 0

    def receive(self, batch: ev.EventBatch, input: str) -> None:
        if Anger.where.startswith("context."):
            if Anger.where == "context.emit":
                self.context.emit(Anger.at("context.emit"))
            if Anger.where == "context.fault":
                self.context.fault(Anger.at("context.fault"), "a reason")
            if Anger.where == "context.fault reason":
                self.context.fault(batch, Anger.at("context.fault reason"))
            if Anger.where == "context.drop":
                self.context.drop(Anger.at("context.drop"))
            if Anger.where == "context.spend":
                self.context.spend(Anger.at("context.spend"))
            if Anger.where == "context.port":
                self.context.emit(batch, Anger.at("context.port"))
            if Anger.where == "context.attributes":
                self.context.attributes["odd"] = Anger.at("context.attributes")
            return
        Anger.at("receive")
        self._held.append(batch)
        self._taken += len(batch)
        self.context.wake()

    def wake(self, now: float) -> Any:
        for batch in self._held:
            self.context.emit(batch, number=Anger.at("number", 1 if Anger.where == "stream" else None))
        self._held.clear()
        return Anger.at("wake")

    @property
    def full(self) -> Any:
        return Anger.at("full", False)

    @property
    def busy(self) -> Any:
        return Anger.at("busy", "it holds some" if self._held else "")

    def draining(self) -> None:
        Anger.at("draining")

    def pause(self) -> None:
        Anger.at("pause")

    def resume(self) -> None:
        Anger.at("resume")

    @property
    def at_work(self) -> Any:
        return Anger.at("at_work", "")

    @property
    def failure(self) -> Any:
        return Anger.at("failure")

    def answer(self, question: Any) -> Any:
        return Anger.at("answer", "yes")

    @property
    def stream(self) -> Any:  # type: ignore[override]
        return Anger.at("stream", b"")

    def mark(self) -> Any:
        return Anger.at("mark")

    def settled(self, mark: object) -> None:
        Anger.at("settled")

    @property
    def taken(self) -> Any:
        return Anger.at("taken", self._taken)

    @property
    def oldest(self) -> Any:
        return Anger.at("oldest", self._taken - sum(map(len, self._held)))

    @property
    def queued(self) -> Any:
        return Anger.at("queued", sum(map(len, self._held)))

    def extract(self, count: int | None = None) -> Any:
        held, self._held = self._held, []
        return Anger.at("extract", held)

    def close(self) -> None:
        Anger.at("close")

    @property
    def keeps(self) -> Any:
        return Anger.at("keeps", False)

    def sync(self) -> None:
        Anger.at("sync")

    def checkpoint(self) -> Any:
        return Anger.at("checkpoint", Checkpoint(tuple(Held("input", batch) for batch in self._held)))

    def restore(self, checkpoint: Checkpoint) -> Any:
        self._held.extend(held.batch for held in checkpoint.held)
        self._taken = sum(map(len, self._held))
        return Anger.at("restore", True)

    def take_request(self) -> Any:
        return Anger.at("take_request", 0)

    def become(self, stone: Stone) -> Any:
        return Anger.at("become", False)
