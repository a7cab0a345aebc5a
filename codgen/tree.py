"""The typed tree: what both front ends produce, and what the back ends read.

Every node is plain, frozen data. Types are explicit: each operand of an arithmetic or comparing node
has the type the node computes in, and each change of type is a ``Convert``. So a back end decides
nothing; the meaning of each node is stated here once. The tests have an interpreter that is
that meaning in plain Python.

Defined behaviour, the same in every back end:

* integers wrap at their width; a shift count is taken modulo the width;
* integer division or remainder by zero is a ``DIVISION`` fault, ``MIN / -1`` wraps to ``MIN``;
* float arithmetic is IEEE 754 in the order written, never contracted or re-associated;
* a cast of a float to an integer truncates, saturates, and turns NaN into 0;
* a checked conversion that would change the value is a ``RANGE`` fault (float to narrower float rounds,
  and faults only where a finite value becomes infinite);
* an index outside its array, list or queue is an ``INDEX`` fault; a field of an absent optional record
  is an ``ABSENT`` fault;
* ``Spend`` takes steps from the fuel of the event; where fewer are left that is a ``FUEL`` fault;
* locals, outputs and statics start at zero (or their initial value); comparisons with NaN are false,
  ``!=`` with NaN is true;
* operands, arguments and indexes are evaluated left to right, each index checked before the next is
  evaluated; an assignment evaluates its value before the indexes of its place.

A fault ends the function for that event; outputs and attribute changes of that call do not happen,
assignments to statics made before the fault stay.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from functools import cache, cached_property
from typing import Any

from msgspec import Struct, field

from evflow.schema import Schema
from evflow.schema.types import FieldType

VALUE_TYPES = ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "str")
"""The types of values: numbers, and ``str`` (a view of bytes of an event, an attribute or a literal).

``Str``, ``Bytes``, ``str`` and ``bytes`` fields all load as ``str``: a byte string without padding.
"""

REQUEST = "reconfigure()"
"""The name of the static (i64) that holds what a function has asked for; nobody can declare one so named."""


class Fault(IntEnum):
    """Why one event was given up."""

    NONE = 0
    DIVISION = 1
    INDEX = 2
    FUEL = 3
    RANGE = 4
    ABSENT = 5
    TEXT = 6  # a text too long for its field, ending with NUL, or no UTF-8 where it must be
    LIMIT = 7  # more submits or output bytes from one event than allowed


class Pos(Struct, frozen=True):
    """A place in the source: 1-based line and column."""

    line: int
    column: int


# --- where values live -------------------------------------------------------------------------


class Variable(Struct, frozen=True):
    """A local or static variable: a scalar (``shape == ()``) or an array of scalars.

    ``index`` numbers locals and statics separately. ``initial`` is a static's first value (a number, a
    tuple of numbers for an array in C order, 0 by default); statics are never ``str``. ``names`` is the
    enumeration of which it holds the position of a name.
    """

    name: str
    type: str
    index: int
    static: bool = False
    shape: tuple[int, ...] = ()
    initial: Any = 0
    names: FieldType | None = None


class Root(Struct, frozen=True):
    """Where a path starts: ``input``, ``output``, or a queued event of a queue stone.

    ``slot`` is the index into ``Function.inputs`` (``kind`` "input" or "queue") or ``Function.outputs``
    (``kind`` "output"); ``index`` is the position in the queue (i64, 0 the oldest) when ``kind`` is "queue".
    """

    kind: str
    slot: int
    index: Expr | None = None


class Step(Struct, frozen=True):
    """One step of a path: a field of a record, then, where it is an array or a list, its indexes.

    ``indexes`` is empty (the whole value), or has one i64 expression for each dimension (1 for a list).
    An optional field is entered implicitly: ABSENT fault when it is nil (see ``Present``).
    """

    field: str
    indexes: tuple[Expr, ...] = ()


class Path(Struct, frozen=True):
    """A place in an event: a root and the steps from it. ``type`` is the field type at its end."""

    root: Root
    steps: tuple[Step, ...]
    type: FieldType


class Element(Struct, frozen=True):
    """A variable as a place: the scalar itself, or one element of an array (one i64 index a dimension)."""

    variable: Variable
    indexes: tuple[Expr, ...] = ()


Place = Element | Path


# --- expressions -------------------------------------------------------------------------------


class Expr(Struct, frozen=True, kw_only=True):
    """An expression; ``type`` is one of ``VALUE_TYPES``."""

    type: str
    pos: Pos


class Const(Expr, frozen=True, kw_only=True):
    """A number, a bool, or bytes for ``str``."""

    value: Any


class Load(Expr, frozen=True, kw_only=True):
    """The value of a variable or of a scalar or text field of an event."""

    place: Place


class Length(Expr, frozen=True, kw_only=True):
    """i64: elements of a list or of dimension ``axis`` of an array, or events waiting in a queue.

    ``what`` is a path to a list or array, or a queue's slot number.
    """

    what: Path | int
    axis: int = 0


class Present(Expr, frozen=True, kw_only=True):
    """bool: whether an optional field (the path's end, its type a ``Maybe``) has a value."""

    path: Path


class Attribute(Expr, frozen=True, kw_only=True):
    """An attribute of the event (``scope`` "event") or of the stone ("stone"): i64, f64 or str.

    ``default`` (of the same type) stands in where the attribute is not set. An attribute held as another
    number type is converted as by a cast; text against a number gives the default. With ``exists`` the
    node is a bool: whether the attribute is set. A read sees what the function has set before it. The front
    ends give only a ``Const`` as default; without one it is 0, 0.0 or "".
    """

    scope: str
    name: str
    default: Expr | None = None
    exists: bool = False


class Unary(Expr, frozen=True, kw_only=True):
    """``neg`` (number), ``inv`` (integer, bitwise), ``not`` (bool → bool)."""

    op: str
    operand: Expr


class Binary(Expr, frozen=True, kw_only=True):
    """Arithmetic in ``type`` (never bool or str; i8 and i16, u8 and u16 are promoted before).

    ``add sub mul div rem and or xor shl shr``; ``div`` and ``rem`` truncate on integers as in C (``rem`` on
    floats is C's ``fmod``); ``floordiv`` and ``mod`` are Python's ``//`` and ``%``. ``floordiv`` or ``mod``
    of a float by zero is a DIVISION fault, float ``div`` by zero is IEEE. ``shr`` is arithmetic on signed
    types.
    """

    op: str
    left: Expr
    right: Expr


class Compare(Expr, frozen=True, kw_only=True):
    """``eq ne lt le gt ge`` of two numbers of one type or two ``str`` (by bytes): bool."""

    op: str
    left: Expr
    right: Expr


class Logical(Expr, frozen=True, kw_only=True):
    """``and``, ``or`` of bools, evaluated only as far as needed: bool."""

    op: str
    left: Expr
    right: Expr


class Select(Expr, frozen=True, kw_only=True):
    """``condition ? yes : no``; only the branch chosen is evaluated."""

    condition: Expr
    yes: Expr
    no: Expr


class Convert(Expr, frozen=True, kw_only=True):
    """A number as another number type; ``checked`` faults where a cast would change the value.

    number → bool is ``!= 0``; bool → number is 0 or 1.
    """

    operand: Expr
    checked: bool = False


class Call(Expr, frozen=True, kw_only=True):
    """A library function by name (``library.LIBRARY``), arguments already of its parameter types.

    Also a system value (``library.SYSTEM``): no arguments, f64.
    """

    name: str
    args: tuple[Expr, ...]


class Assign(Expr, frozen=True, kw_only=True):
    """Stores ``value`` (already of the place's value type); is the new value, or with ``old`` the one before.

    In an output, a number field takes its own type, and text fields take ``str`` (TEXT fault when too long).
    An optional number or text of an output (the path's type a ``Maybe``) has a value once it is assigned.
    The front ends never load text of an output, nor a field within an optional record, list or variable array
    of one.
    """

    place: Place
    value: Expr
    old: bool = False


# --- statements --------------------------------------------------------------------------------


class Stmt(Struct, frozen=True, kw_only=True):
    """A statement."""

    pos: Pos


class Block(Stmt, frozen=True, kw_only=True):
    """Statements in order."""

    body: tuple[Stmt, ...]


class Declare(Stmt, frozen=True, kw_only=True):
    """A local comes into scope: it is zeroed, then takes ``value`` (a scalar's) if there is one."""

    variable: Variable
    value: Expr | None = None


class Run(Stmt, frozen=True, kw_only=True):
    """An expression for its effect."""

    value: Expr


class If(Stmt, frozen=True, kw_only=True):
    """``then`` where the condition (bool) holds, else ``otherwise``."""

    condition: Expr
    then: Block
    otherwise: Block | None = None


class Loop(Stmt, frozen=True, kw_only=True):
    """``while``, ``for`` and ``do``: tests ``condition`` before each turn (``test_last``: not the first).

    ``step`` runs after each turn, also after ``continue``.
    """

    condition: Expr
    body: Block
    step: Block | None = None
    test_last: bool = False


class Spend(Stmt, frozen=True, kw_only=True):
    """Takes ``steps`` from the fuel of the event; the front ends put it where ``costs.metered`` says."""

    steps: int


class Break(Stmt, frozen=True, kw_only=True):
    """Leaves the innermost loop."""


class Continue(Stmt, frozen=True, kw_only=True):
    """Ends the turn of the innermost loop."""


class Return(Stmt, frozen=True, kw_only=True):
    """Ends the function with an i64. Running off the end returns 0."""

    value: Expr


class Copy(Stmt, frozen=True, kw_only=True):
    """Copies a whole record, array, list, optional or bytes from an event to an output.

    Both have one and the same type. Also a static array or record within; ``target`` is rooted in an output,
    ``source`` in an input or queue.
    """

    target: Path
    source: Path


class SetAttribute(Stmt, frozen=True, kw_only=True):
    """Sets an attribute of the event that leaves the stone (i64, f64 or str)."""

    name: str
    value: Expr


class Submit(Stmt, frozen=True, kw_only=True):
    """Sends a record out of ``port`` (i64): an output, or an event as it came.

    ``output`` is the slot of the output to send as filled so far, or ``event`` the queued or input event.
    An output is zero again after it was submitted.
    """

    port: Expr
    output: int | None = None
    event: Root | None = None


class Discard(Stmt, frozen=True, kw_only=True):
    """Takes the event at ``index`` (i64) out of ``queue`` (an input slot); INDEX fault if there is none."""

    queue: int
    index: Expr


# --- the function ------------------------------------------------------------------------------


class Function(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A stone function, typed and checked against the schemas of the events it will see.

    Two functions are equal if their fingerprints are: comparing trees would recurse as deep as they are.

    Attributes:
        kind: "filter", "transform", "router" or "queue". A filter passes the event where the result is not
            zero; a transform sends output 0 out of port 0 where it is not zero; a router's result is the
            port, negative for none; a queue's result is ignored. All kinds may ``Submit``.
        source: the text it was made from, for errors and display.
        inputs: (name, schema) of the event(s); the schema is None for a function of attributes only.
        outputs: (name, schema) of the records it fills.
        locals, statics: its variables; ``index`` is the position here.
        attributes: names of event attributes it reads or sets, in slot order.
        system: names of system values it reads (``library.SYSTEM``).
        fuel: what one event may spend on loops, in units of ``costs.STEPS`` steps.
    """

    kind: str
    source: str
    inputs: tuple[tuple[str, Schema | None], ...]
    outputs: tuple[tuple[str, Schema], ...] = ()
    locals: tuple[Variable, ...] = ()
    statics: tuple[Variable, ...] = ()
    attributes: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    fuel: int = 10_000_000
    body: Block = field(default_factory=lambda: Block(pos=Pos(1, 1), body=()))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Function) and self.fingerprint == other.fingerprint)

    def __hash__(self) -> int:
        # A digest of the tree takes longer, and functions that differ have other sources as a rule.
        return hash((self.kind, self.source, self.fuel))

    @cached_property
    def fingerprint(self) -> bytes:
        """A digest of everything that the function is."""
        schemas = [(name, schema and schema.fingerprint) for name, schema in (*self.inputs, *self.outputs)]
        about = (
            self.kind,
            self.source,
            len(self.inputs),
            schemas,
            self.locals,
            self.statics,
            self.attributes,
        )
        parts = [repr((*about, self.system, self.fuel))]
        todo: list[Any] = [self.body]
        while todo:
            item = todo.pop()
            if isinstance(item, tuple):
                parts.append(f"{len(item)}:")
                todo.extend(item)
            elif isinstance(item, Variable):
                parts.append(f"{item.static} {item.index} ")
            elif isinstance(item, Pos):
                parts.append(f"{item.line}:{item.column} ")
            elif isinstance(item, _NODES):
                kind: Any = type(item)
                parts.append(f"{kind.__name__} ")
                # The type of a path follows from its schema and its steps.
                todo.extend(map(item.__getattribute__, _names(kind)))
            else:
                parts.append(f"{item!r} ")
        return hashlib.sha256("".join(parts).encode("utf-8", "surrogatepass")).digest()

    @cached_property
    def nodes(self) -> list[Any]:
        """The nodes of its tree."""
        return walk(self.body)

    @cached_property
    def loops(self) -> bool:
        """Whether it has loops, so that few events may take long."""
        return Loop in map(type, self.nodes)

    @property
    def asks_at(self) -> Pos | None:
        """Where it asks for reconfiguration first; None if it never does."""
        if all(variable.name != REQUEST for variable in self.statics):
            return None
        places = ((node.pos, node.place) for node in self.nodes if isinstance(node, Assign))
        return next(pos for pos, at in places if isinstance(at, Element) and at.variable.name == REQUEST)

    @cached_property
    def sent(self) -> dict[int | None, set[int | None]]:
        """What it submits: output slot, or None for events as they came → the ports, None for any."""
        sent: dict[int | None, set[int | None]] = {}
        for node in self.nodes:
            if isinstance(node, Submit):
                port = node.port.value if isinstance(node.port, Const) else None
                sent.setdefault(node.output, set()).add(port)
        return sent

    @cached_property
    def sets(self) -> tuple[str, ...]:
        """The attributes that it may set."""
        return tuple(dict.fromkeys([node.name for node in self.nodes if isinstance(node, SetAttribute)]))


def walk(node: object) -> list[Any]:
    """Every node of a tree, the given one first."""
    todo: list[Any] = [node]
    found: list[Any] = []
    while todo:
        item = todo.pop()
        if isinstance(item, tuple):
            todo.extend(reversed(item))
        elif (parts := _parts(item.__class__)) is not None:
            found.append(item)
            todo.extend(map(item.__getattribute__, parts))
    return found


_NODES = (Expr, Stmt, Path, Element, Root, Step)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """The attributes of a kind of node that say what it is."""
    return tuple(name for name in kind.__struct_fields__ if not (kind is Path and name == "type"))


def deepest(node: object, levels: int, nodes: int) -> tuple[int, int, Pos | None]:
    """How deep a tree is, how many nodes it has, and where it is deepest.

    A node that stands twice counts twice. Counting ends once there are more than ``levels`` or ``nodes``.
    """
    todo: list[tuple[Any, int, Pos | None]] = [(node, 0, None)]
    count, depth, place = 0, 0, None
    while todo and count <= nodes and depth <= levels:
        item, level, pos = todo.pop()
        if isinstance(item, tuple):
            todo.extend([(part, level, pos) for part in item])
        elif (parts := _parts(item.__class__)) is not None:
            pos = getattr(item, "pos", pos)
            count, level = count + 1, level + (not isinstance(item, Block))
            if level > depth:
                depth, place = level, pos
            for name in parts:
                todo.append((getattr(item, name), level, pos))
    return depth, count, place


@cache
def _parts(kind: Any) -> tuple[str, ...] | None:
    """The attributes of a kind of node that may hold nodes, the last first; None for what is not a node."""
    if not issubclass(kind, _NODES):
        return None
    names = ("pos", "type", "name", "op", "kind", "slot")
    return tuple(name for name in reversed(kind.__struct_fields__) if name not in names)
