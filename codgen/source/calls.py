"""Calls: the library, attributes, system values, and what a function may do with events besides returning.

``Calls.call`` is the one door: it takes a name and arguments, and gives an expression, or a statement for
what has only an effect (``submit``, ``discard``, ``reconfigure``, setting an attribute). A name that is not
here does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evflow.choices import suggestion
from evflow.codgen import tree
from evflow.codgen.library import LIBRARY, SYSTEM
from evflow.codgen.semantics import FLOATS, INTEGERS
from evflow.codgen.source.access import Access, Attributes, Operand, Queue, Ref
from evflow.codgen.source.arithmetic import common_type, spelled
from evflow.codgen.tree import REQUEST, Expr, Pos, Stmt


class Argument(NamedTuple):
    """An argument of a call and where it stands."""

    operand: Operand
    pos: Pos


_READERS = {
    "attr_ivalue": "i64", "attr_lvalue": "i64", "attr_dvalue": "f64", "attr_fvalue": "f64",
    "attr_svalue": "str"
}  # fmt: skip
_WRITERS = {
    "set_int_attr": "i64", "set_long_attr": "i64", "set_double_attr": "f64", "set_float_attr": "f64",
    "set_string_attr": "str"
}  # fmt: skip
_ALIASES = {"strlen": "length", "len": "length"}


class Calls(Access):
    """Makes calls."""

    def __init__(self, source: str, where: tuple[str, str, int] | None) -> None:
        super().__init__(source, where)
        self.attributes: dict[str, None] = {}
        self.system: dict[str, None] = {}
        self._request: tree.Variable | None = None

    def call(self, name: str, args: list[Argument]) -> Expr | Stmt:
        """The call of function ``name``.

        Raises:
            CodeError: there is no such function, or the arguments do not fit it.
        """
        name = _ALIASES.get(name, name)
        special = _SPECIAL.get(name)
        if special is not None:
            low, high, make = special
            self._count(name, args, low, high)
            return make(self, name, args)
        if name in LIBRARY:
            return self._library(name, args)
        if name in SYSTEM:
            self._count(name, args, 0, 0)
            self.system[name] = None
            return tree.Call(type="f64", pos=self.pos, name=name, args=())
        known = [*_SPECIAL, *LIBRARY, *SYSTEM, *_ALIASES]
        raise self.error(f"there is no function '{name}'{suggestion(name, known)}")

    def _value_of(self, argument: Argument) -> Expr:
        with self.at(argument.pos):
            return self.value(argument.operand)

    def _count(self, name: str, args: list[Argument], low: int, high: int | None) -> None:
        if len(args) < low or (high is not None and len(args) > high):
            wanted = str(low) if high == low else f"at least {low}" if high is None else f"{low} to {high}"
            raise self.error(
                f"{name}(...) takes {wanted} argument{'' if wanted == '1' else 's'}, found {len(args)}"
            )

    def _library(self, name: str, args: list[Argument]) -> Expr:
        parameters, result, *_ = LIBRARY[name]
        self._count(name, args, len(parameters), len(parameters))
        values = []
        for argument, kind in zip(args, parameters, strict=True):
            value = self._value_of(argument)
            if (value.type == "str") != (kind == "str"):
                wanted = "a text" if kind == "str" else "a number"
                found = "a text" if value.type == "str" else "a number"
                raise self.error(f"{name}(...) takes {wanted} here, found {found}", argument.pos)
            values.append(self.convert(value, kind))
        return tree.Call(type=result, pos=self.pos, name=name, args=tuple(values))

    def _least_or_greatest(self, name: str, args: list[Argument]) -> Expr:
        best = self._value_of(args[0])
        steps: list[Expr] = []
        for argument in args[1:]:
            if argument is not args[1]:
                # Of many the best is kept in a variable, so that a long list does not make a deep tree.
                step, best = self.hidden(best)
                steps.append(step)
            other = self._value_of(argument)
            if (best.type == "str") != (other.type == "str"):
                raise self.error(f"{name}(...) takes numbers or texts, not both", argument.pos)
            if best.type != "str":
                kind = common_type(best.type, other.type)
                best, other = self.convert(best, kind), self.convert(other, kind)
            (first_best, again_best), (first_other, again_other) = self.hidden(best), self.hidden(other)
            better = self.compare("gt" if name == "min" else "lt", first_best, first_other)
            best = self.select(better, again_other, again_best)
        return self.sequence(steps, best)

    def _absolute(self, name: str, args: list[Argument]) -> Expr:
        value = self._value_of(args[0])
        return self._library("fabs" if value.type in FLOATS else "abs", [Argument(value, args[0].pos)])

    def _string_compare(self, name: str, args: list[Argument]) -> Expr:
        texts = [self._value_of(a) for a in args]
        for text, argument in zip(texts, args, strict=True):
            if text.type != "str":
                raise self.error("strcmp(...) takes two texts, found a number", argument.pos)
        return self.three_way(texts[0], texts[1])

    def _length(self, name: str, args: list[Argument]) -> Expr:
        operand = args[0].operand
        axis = 0
        if len(args) == 2:
            number = self._value_of(args[1])
            if not isinstance(number, tree.Const) or not isinstance(number.value, int):
                raise self.error("the dimension must be a constant", args[1].pos)
            axis = number.value
        if self.is_value(operand) and len(args) == 1 and self._value_of(args[0]).type == "str":
            return self._library("length", args)
        return self.length(operand, axis)

    def _present(self, name: str, args: list[Argument]) -> Expr:
        return self.present(args[0].operand)

    def _queue(self, name: str, argument: Argument) -> Queue:
        if not isinstance(argument.operand, Queue):
            raise self.error(f"{name}(...) takes a queue", argument.pos)
        return argument.operand

    def _events_waiting(self, name: str, args: list[Argument]) -> Expr:
        return self.length(self._queue(name, args[0]), 0)

    def _discard(self, name: str, args: list[Argument]) -> Stmt:
        queue = self._queue(name, args[0])
        return tree.Discard(pos=self.pos, queue=queue.slot, index=self.as_index(self._value_of(args[1])))

    def _submit(self, name: str, args: list[Argument]) -> Stmt:
        port = self.as_index(self._value_of(args[0]))
        event = args[1].operand
        if not isinstance(event, Ref) or event.steps:
            raise self.error(
                "submit(port, event) takes an event: the input, a queued one, or an output", args[1].pos
            )
        if event.root.kind == "output":
            return tree.Submit(pos=self.pos, port=port, output=event.root.slot)
        return tree.Submit(pos=self.pos, port=port, event=event.root)

    def _attribute_name(self, args: list[Argument], name: str) -> tuple[str, str]:
        scope = args[0].operand
        if not isinstance(scope, Attributes):
            raise self.error(f"{name}(...) takes event_attrs or stone_attrs first", args[0].pos)
        key = args[1].operand
        if not isinstance(key, tree.Const) or key.type != "str":
            raise self.error("the name of an attribute must be a literal text", args[1].pos)
        try:
            text: str = key.value.decode()
        except UnicodeDecodeError:
            raise self.error("the name of an attribute must be text in UTF-8", args[1].pos) from None
        if scope.scope == "event":
            self.attributes[text] = None
        return scope.scope, text

    def _read_attribute(self, name: str, args: list[Argument]) -> Expr:
        scope, key = self._attribute_name(args, name)
        kind = _READERS[name]
        default = self.convert(self._value_of(args[2]), kind) if len(args) == 3 else None
        if default is not None and not isinstance(default, tree.Const):
            raise self.error("the default of an attribute must be a constant", args[2].pos)
        return tree.Attribute(type=kind, pos=self.pos, scope=scope, name=key, default=default)

    def attribute_exists(self, name: str, args: list[Argument]) -> Expr:
        """Whether an attribute is set (bool)."""
        scope, key = self._attribute_name(args, name)
        return tree.Attribute(type="bool", pos=self.pos, scope=scope, name=key, exists=True)

    def _set_attribute(self, name: str, args: list[Argument]) -> Stmt:
        scope, key = self._attribute_name(args, name)
        if scope == "stone":
            raise self.error(
                "the attributes of a stone can only be read; set those of the event", args[0].pos
            )
        value = self._value_of(args[2])
        return tree.SetAttribute(pos=self.pos, name=key, value=self.convert(value, _WRITERS[name]))

    def _reconfigure(self, name: str, args: list[Argument]) -> Stmt:
        """Stores the request, if it is one, in a static that the code cannot name."""
        value = self._value_of(args[0])
        if value.type not in INTEGERS and value.type != "bool":
            raise self.error(
                f"reconfigure(...) takes the number of a request, found {spelled(value.type)}", args[0].pos
            )
        if self._request is None:
            self._request = tree.Variable(REQUEST, "i64", len(self.statics), static=True)
            self.statics.append(self._request)
        first, again = self.hidden(self.convert(value, "i64"))
        asked = self.compare("gt", first, self.const("i64", 0))
        return self.when(asked, [self.set(self._request, again)])


_Maker = Callable[[Calls, str, list[Argument]], Expr | Stmt]

_SPECIAL: dict[str, tuple[int, int | None, _Maker]] = {
    "min": (2, None, Calls._least_or_greatest),
    "max": (2, None, Calls._least_or_greatest),
    "abs": (1, 1, Calls._absolute),
    "strcmp": (2, 2, Calls._string_compare),
    "length": (1, 2, Calls._length),
    "present": (1, 1, Calls._present),
    "count": (1, 1, Calls._events_waiting),
    "discard": (2, 2, Calls._discard),
    "submit": (2, 2, Calls._submit),
    "reconfigure": (1, 1, Calls._reconfigure),
    "attr_set": (2, 2, Calls.attribute_exists),
    **dict.fromkeys(_READERS, (2, 3, Calls._read_attribute)),
    **dict.fromkeys(_WRITERS, (3, 3, Calls._set_attribute)),
}
"""Functions that are not plain library calls: least and greatest count of arguments, and their makers."""
