"""Match: which subscriptions an event satisfies, of millions; and to whom it goes because of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evflow.errors import GraphError, SchemaError, SubscriptionError
from evflow.events.batch import EventBatch
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.engine import ENGINES, STATES
from evflow.matching.space import LOCATIONS
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Call, Context, checked_integer, titled
from evflow.stones.code import Described
from evflow.stones.matching.actor import EVENTS, Matching
from evflow.stones.matching.asked import COMPARED, Ask, Asked, Known, asks
from evflow.stones.matching.bar import timed, tracking
from evflow.stones.matching.book import Book
from evflow.stones.matching.changes import CHANGING
from evflow.stones.matching.ledger import Ledger
from evflow.stones.matching.listed import Listing, columns_of_listed, listed, numbered
from evflow.stones.matching.output import matched_schema
from evflow.stones.naming import file_name

if TYPE_CHECKING:
    from evflow.matching.matcher import Matcher
    from evflow.matching.tracking import Tracker
    from evflow.stones.matching.controls import Controls

_FIELD = "subscriptions"
_MOST_THREADS = 256
_MOST_IDS = (1 << 31) - 1
_MOST_KEYS = 1 << 30
_MOST_TOLD = 10
"""Things that are wrong, of which an error tells."""


class Match(Described, Acting):
    """Matches events with subscriptions, which come and go while events flow.

    An event leaves by port 0 with the ids of the subscriptions that it satisfies, in one more field; or, with
    ``route=True``, as it is, once out of each port that a subscription of these has. ``docs/matching.md`` has
    the whole.

    It takes events of any schema; one that lacks an attribute satisfies no constraint on it. Events of
    ``SubscriptionChange`` go to the input ``changes``, those of ``NamedSubscriptionChange`` to ``named``, and
    change what is subscribed.

    In a program ``flow["name"]`` has ``subscribe``, ``subscribe_many``, ``unsubscribe``,
    ``unsubscribe_many``, ``move``, ``move_many``, ``texts``, ``subscription``, ``items``, ``find``,
    ``explain`` and ``statistics``, for any thread. The stone's attributes
    tell how many ``subscriptions`` there are and the bytes of ``memory`` that they take, how many events
    ``matched``, and their ``matches`` in all.

    With ``track=`` an attribute says what an event is about, its key, such as the aircraft. An event then has
    the ids of the subscriptions that its key ``enter``s with it, stays ``inside`` of and ``leave``s, in one
    field each, in place of those that it satisfies: the stone compares them with the event before of the same
    key.

    Args:
        subscriptions: those that the graph itself has: texts, objects, or mappings with ``subscription``,
            ``id`` and ``port``. An id is an integer, or a text that stands for one.
        file: more of them, where the stone runs: a file with one a line, or a folder of a saved ``Matcher``.
        path: a file that keeps what is changed while the stone runs, over restarts and kills. On a daemon
            there always is one, in its storage folder.
        engine: the matcher's engine, by name.
        space: "plane" or "globe"; where areas are.
        location: the two attributes that say where an event happened.
        attributes: names of what events may have beside the fields of their schemas: what is carried along
            with them, and fields of schemas that the graph does not declare.
        threads: cores that match a batch.
        route: send an event to the ports of its subscriptions, instead of adding their ids.
        others: the port of events that satisfy nothing; None drops them.
        field: the name of the field of ids.
        limit: ids are below it; memory is proportional to the highest.
        track: the attribute that is the key of an event, a text or a number; None tracks nothing. An event
            without it becomes a dead letter.
        track_states: of "enter", "inside" and "leave" those that are told. An event of which none is to be
            told counts as one that satisfies nothing.
        track_limit: how many keys are known; beyond that the one that was seen least recently is forgotten.
        name: the stone's name.
        on: the node it is placed on.
        options: settings of the engine.

    Attributes:
        fields: the fields of ids that an event leaves with, by what they tell; "" for what it satisfies.

    Raises:
        GraphError: a setting is wrong.
        SubscriptionError: a subscription is neither text nor object. (A text that is malformed is found when
            the graph is checked.)

    Example:
        >>> import evflow as ev
        >>> class Flight(ev.Event):
        ...     carrier: ev.Str[2]
        ...     delay: float
        >>> seen = []
        >>> g = ev.Graph()
        >>> flights = g.source("flights", Flight)
        >>> alerts = flights >> ev.Match(["delay > 45"], engine="reference", name="alerts")
        >>> _ = alerts >> ev.Terminal(lambda f: seen.append((f.delay, f.subscriptions.tolist())))
        >>> with g.run() as flow:
        ...     mine = flow["alerts"].subscribe("carrier == 'UA' and delay > 60")
        ...     flow["flights"].submit_batch({"carrier": ["UA", "AA", "AA"], "delay": [90.0, 50.0, 3.0]})
        >>> mine, seen
        (1, [(90.0, [0, 1]), (50.0, [0])])
    """

    kind = "match"
    parameters = (
        "file", "path", "engine", "space", "location", "attributes", "threads", "route", "others", "field",
        "limit", "track", "track_states", "track_limit",
    )  # fmt: skip

    def __init__(
        self,
        subscriptions: Iterable[Any] = (),
        *,
        file: str | Path | None = None,
        path: str | Path | None = None,
        engine: str = "index",
        space: str = "plane",
        location: Sequence[str] | None = None,
        attributes: Iterable[str] = (),
        threads: int = 1,
        route: bool = False,
        others: int | None = None,
        field: str = _FIELD,
        limit: int = 10_000_000,
        track: str | None = None,
        track_states: Sequence[str] = STATES,
        track_limit: int = 1_000_000,
        name: str | None = None,
        on: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name=name, on=on)
        where = f"{titled('match', name)}:"
        if engine not in ENGINES:
            raise GraphError(f"{where} engine {engine!r}: expected one of {', '.join(ENGINES)}")
        for what, given in (("file", file), ("path", path)):
            if given is not None and not isinstance(given, str | Path):
                raise GraphError(f"{where} {what} {given!r}: expected a file's name")
        try:
            self.given = listed(subscriptions, "subscriptions")
        except SubscriptionError as error:
            raise error.within(titled("match", name)) from None
        self.file = None if file is None else Path(file)
        self.path = None if path is None else Path(path)
        self.engine, self.space = engine, space
        self.location = None if location is None else _pair(location, where)
        self.attributes = _texts(attributes, f"{where} attributes")
        self.threads = _at_most(_MOST_THREADS, f"{where} threads", threads)
        self.route = bool(route)
        self.others = None if others is None else checked_integer(f"{where} others", others, 0)
        self.field = field
        self.limit = _at_most(_MOST_IDS, f"{where} limit", limit)
        if track is not None and (not isinstance(track, str) or not track):
            raise GraphError(f"{where} track {track!r}: expected the name of an attribute")
        self.track = track
        self.track_states = _states(track_states, where)
        self.track_limit = _at_most(_MOST_KEYS, f"{where} track_limit", track_limit)
        self.fields = self._fields()
        self.options = options
        self._folder: Path | None = None
        self._expected: tuple[Schema, ...] = ()
        # What the file holds, and how it was when it was read.
        self._read: tuple[object, Listing, FilterColumns] | None = None
        try:
            Schema("ids", dict.fromkeys((field, *self.fields.values()), int))
        except SchemaError as error:
            raise GraphError(f"{where} field: {error}") from None

    def _fields(self) -> Mapping[str, str]:
        if self.track is None:
            return {} if self.route else {"": self.field}
        # A name of one's own stands before the states.
        before = "" if self.field == _FIELD else f"{self.field}_"
        return {state: f"{before}{state}" for state in self.track_states}

    @property
    def linked_ports(self) -> str:  # type: ignore[override]
        """Any ports where it routes, or events without a match have a port of their own."""
        return "any" if self.route or self.others else "one"

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        # First what is declared: a change fits it and, as any event does, the other.
        return CHANGING | {EVENTS: None}

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        if schema in CHANGING.values():
            return ()
        if schema is None or not self.fields:
            return (schema,)
        try:
            made = matched_schema(schema, *self.fields.values())
        except SchemaError as error:
            raise GraphError(f"{titled('match', self.name)}: {error}") from None
        return (made, schema) if self.others or (self.route and self.others == 0) else (made,)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self._kept,)

    @property
    def reads(self) -> tuple[Path, ...]:
        return () if self.file is None else (self._inside(self.file),)

    @property
    def _kept(self) -> Path:
        """Where changes are kept on a daemon."""
        return self._inside(self.path or Path(f"{file_name(self.name or self.kind)}.subscriptions"))

    def _inside(self, path: Path) -> Path:
        return path if self._folder is None else self._folder / path

    def keep_in(self, folder: Path) -> None:
        self._folder = folder

    def check(self) -> None:
        if self.file is not None and self._inside(self.file).is_dir():
            self.book(None)
        else:
            self._matcher()
            many, _ = self._listed()
            numbered(many, self.limit)
        if self._folder is not None:
            # It is to run here, and events are not to wait for the compiler.
            self.prepare()

    def check_arrivals(self, schemas: Sequence[Schema | None]) -> None:
        expected = [schema for schema in schemas if schema not in CHANGING.values()]
        declared = [schema for schema in expected if schema is not None]
        # Where any events may come, it is seen from those that do.
        self._expected = tuple(declared) if len(declared) == len(expected) else ()
        if not self._expected:
            return
        try:
            many, columns = self._listed()
        except SubscriptionError:
            return  # what is malformed is told by ``check``
        known, wrong = self._known(), []
        if self.track is not None and (what := known.lacks(Ask(self.track, COMPARED))):
            wrong.append((-1, f"track: {what}"))
        for number, ask in asks(columns, self._place):
            if what := known.lacks(ask):
                wrong.append((number, f"{many.where(number)}: {what}"))
        if wrong:
            told = [what for _, what in sorted(wrong)[:_MOST_TOLD]]
            more = [f"and {len(wrong) - _MOST_TOLD} more"] if len(wrong) > _MOST_TOLD else []
            raise SubscriptionError("\n".join(told + more))

    def _known(self) -> Known:
        return Known(self._expected, self.attributes)

    @property
    def _place(self) -> tuple[str, str]:
        return self.location or LOCATIONS[self.space]

    def prepare(self) -> None:
        # Once the flow runs there may be no file left to open, and events are not to wait for the compiler.
        import_module("evflow.stones.matching.controls")
        _compile(self.engine, self.space)

    def open(self, context: Context) -> Actor:
        self.prepare()
        ledger = self.ledger()
        try:
            return Matching(context, self, self.book(ledger))
        except BaseException:
            if ledger is not None:
                ledger.close()
            raise

    def controls(self, call: Call) -> Controls:
        from evflow.stones.matching.controls import Controls

        return Controls(lambda task: call(lambda actor: actor.do(task)), self.space)

    @property
    def keeper(self) -> Path | None:
        """The file that keeps changes; None if nothing does."""
        return self._kept if self._folder is not None or self.path is not None else None

    def ledger(self) -> Ledger | None:
        """What keeps changes; None if nothing does."""
        return None if self.keeper is None else Ledger(self.keeper)

    def book(self, ledger: Ledger | None) -> Book:
        """What the graph subscribes, with the changes that a ledger has.

        Args:
            ledger: the ledger of changes; None if nothing keeps them.

        Raises:
            EvflowError: a subscription is malformed, a file cannot be read, or changes do not fit.
        """
        file = None if self.file is None else self._inside(self.file)
        saved = file is not None and file.is_dir()
        matcher = _matcher_class().load(file) if file is not None and saved else self._matcher()
        if matcher.space != self.space:
            raise SubscriptionError(
                f"{file}: its areas are on the {matcher.space}; expected space={matcher.space!r}"
            )
        many, columns = self._listed()
        ids = numbered(many, self.limit, matcher)
        if len(many):
            with timed(f"{titled('match', self.name)}: took in {len(many):,} subscriptions"):
                matcher.subscribe_many(columns, ids, texts=many.named)
        # It has served, and may be large.
        self._read = None
        ports = {id: port for id, port in zip(ids, many.ports, strict=True) if port}
        asked = Asked(titled("match", self.name), self._known(), self._place)
        asked.subscribed(columns, np.array(ids, np.int32))
        return Book(matcher, ports, self.limit, ledger, asked, self.tracker())

    def tracker(self) -> Tracker | None:
        """What compares each event with the one before; None if the stone does not track."""
        if self.track is None:
            return None
        from evflow.matching.tracking import Tracker

        return Tracker(limit=self.track_limit)

    def _matcher(self) -> Matcher:
        return _matcher_class()(
            self.engine, space=self.space, location=self.location, threads=self.threads, **self.options
        )

    def _listed(self) -> tuple[Listing, FilterColumns]:
        """What the graph subscribes, with what is in a file of text; what is as it was is not read again."""
        path = None if self.file is None else self._inside(self.file)
        state = None if path is None else _state(path)
        if self._read is None or self._read[0] != state:
            many = Listing(self.given)
            if path is None or path.is_dir():
                columns = columns_of_listed(many, self.space)
            else:
                with timed(f"{titled('match', self.name)}: read {path}"), tracking(path) as track:
                    many.read(path, track)
                    columns = columns_of_listed(many, self.space, track)
            self._read = state, many, columns
        return self._read[1:]

    def settings(self) -> dict[str, Any]:
        given = [{"subscription": one.text, "id": one.id, "port": one.port} for one in self.given]
        return super().settings() | {"subscriptions": given, "options": self.options}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Match:
        named = {key: value for key, value in settings.items() if key != "options"}
        return cls(**named, **settings["options"])


def _state(path: Path) -> object:
    """What differs when a file has been written to; None if it cannot be told."""
    try:
        found = path.stat()
    except OSError:
        return None
    return path, found.st_ino, found.st_size, found.st_mtime_ns


def _at_most(most: int, what: str, value: object) -> int:
    found = checked_integer(what, value)
    if found > most:
        raise GraphError(f"{what} {found}: expected at most {most}")
    return found


def _states(given: Sequence[str], where: str) -> tuple[str, ...]:
    """States in their order, each once."""
    names = ", ".join(STATES)
    good = isinstance(given, Sequence) and not isinstance(given, str)
    if not good or not given or not all(state in STATES for state in given):
        raise GraphError(f"{where} track_states {given!r}: expected a list of some of {names}")
    return tuple(state for state in STATES if state in given)


def _texts(given: Iterable[str], where: str) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise GraphError(f"{where} {given!r}: expected a list of names")
    names = tuple(given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise GraphError(f"{where}: {name!r}: expected the name of an attribute")
    return names


def _pair(location: Sequence[str], where: str) -> tuple[str, str]:
    if isinstance(location, str) or len(location) != 2:
        raise GraphError(f"{where} location {location!r}: expected the names of two attributes")
    return location[0], location[1]


def _matcher_class() -> type[Matcher]:
    # Graphs are described where nothing is matched, and it brings in numba.
    from evflow.matching.matcher import Matcher

    return Matcher


@cache
def _compile(engine: str, space: str) -> None:
    """Has an engine compile what it runs, once."""
    matcher = _matcher_class()(engine, space=space)
    area = "within(0, 0, 1)" if space == "plane" else "within(0, 0, 1 m)"
    id = matcher.subscribe(f"a > 1 and b == 'c' and {area} or d startswith 'e'")
    schema = Schema("warm", {"a": float, "b": str, "d": str, "x": float, "y": float})
    matcher.match_batch(
        EventBatch.from_columns(schema, {"a": [1.0], "b": ["c"], "d": ["e"], "x": [0.0], "y": [0.0]})
    )
    # Also where a change cannot be kept it is undone.
    matcher.unsubscribe(id)
