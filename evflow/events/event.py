"""Events: classes whose annotations are a schema, and the mutable objects that users make of them.

A class that derives from ``Event`` becomes a dataclass, and its annotations become ``cls.schema``.
Annotations may name the class itself and classes that are defined later; the schema is then made when it
is first asked for, and classes that hold each other are made together.

Each field has a slot in the object, where machine code can read it; what is set beside them goes into the
object's dict.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Mapping
from reprlib import recursive_repr
from types import FrameType, MemberDescriptorType, new_class
from typing import Any, ClassVar, NamedTuple, cast, dataclass_transform

from evflow.errors import SchemaError
from evflow.events.fields import has_fields, parts, same, show, to_dict
from evflow.schema import REQUIRED, Schema
from evflow.schema.specs import FieldSpec, Scope, check_field_name
from evflow.schema.types import Record

_NO_FIELD = re.compile(r"\b(ClassVar|InitVar)\b")


class _Statement(NamedTuple):
    """What is known of a class statement beside the class.

    Attributes:
        frame: where it stands, for the local names that its annotations use.
        defaults: of the fields that have slots.
    """

    frame: FrameType
    defaults: Mapping[str, Any]


class _EventType(type):
    """The type of event classes: it gives them a slot for each of their fields.

    Slots have to be there before the class is, and a default would take the slot's place; so defaults wait in
    the class, as ``_statement``, until the dataclass is made.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> Any:
        if bases:
            schema = kwargs.get("_schema")
            fields = _own_fields(namespace) if schema is None else [f.name for f in schema.fields]
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            namespace["_statement"] = _Statement(sys._getframe(1), defaults)
            namespace["__slots__"] = fields
        try:
            return super().__new__(cls, name, bases, namespace, **kwargs)
        except TypeError as error:
            if sum(isinstance(base, _EventType) for base in bases) < 2:
                raise
            raise SchemaError(
                f"event {name}: it derives from several events with fields of their own: {error}; "
                "derive from one, and give it the fields of the others"
            ) from None


@dataclass_transform(field_specifiers=(dataclasses.field,))
class Event(metaclass=_EventType):
    """The base of all typed events.

    The annotations of a class are its fields, class attributes their defaults.

    An event is an ordinary mutable object, made as ``Trade("IBM", 80.0)``; what it holds is checked when
    it is encoded. Two events are equal when their schemas and all their fields are. A class may derive from
    another event, and gets its fields too, but not from several that have some.

    Attributes:
        schema: the schema of the class.

    Raises:
        SchemaError: (where a class is defined) an annotation is not a field type, or a default does not fit.

    Example:
        >>> import evflow as ev
        >>> class Trade(ev.Event):
        ...     symbol: ev.Str[8]
        ...     price: float
        ...     size: int = 0
        >>> Trade("IBM", 80.0)
        Trade(symbol='IBM', price=80.0, size=0)
        >>> Trade.schema.width
        29
    """

    schema: ClassVar[Schema]

    def __init_subclass__(cls, *, _schema: Schema | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        frame, defaults = cls._statement  # type: ignore[attr-defined]
        del cls._statement  # type: ignore[attr-defined]
        if _schema is not None:
            cls.schema = _schema
            return
        if "schema" in _annotations(cls):
            check_field_name("schema", cls.__name__)
        cls.schema = cast(Schema, _LateSchema(cls, frame))
        _make_dataclass(cls, defaults)
        if not dataclasses.fields(cast(Any, cls)):
            return  # a base of events, without fields of its own
        with contextlib.suppress(UnknownNameError):  # the name may be defined when the schema is asked for
            _resolve(cls)

    @classmethod
    def as_record(cls, where: str, scope: Scope) -> Record:
        """This class as the type of a field of another.

        Args:
            where: the field, for messages.
            scope: the records that the other schema knows by name.

        Raises:
            SchemaError: another class of the same name is a record there.
        """
        late = cls.__dict__.get("schema")
        if not isinstance(late, _LateSchema) or not isinstance(scope, _ClassScope):
            return cls.schema.as_record(where, scope)
        holder = scope.pending.get(cls.__name__)
        if holder not in (None, cls):
            raise SchemaError(f"{where}: two different records are named {cls.__name__}; rename one")
        if holder is None and scope.classes.get(cls.__name__) is not cls:
            _build(cls, scope)
        return Record(cls.__name__, scope.records)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name; events within are dicts too."""
        return to_dict(self)

    def __eq__(self, other: object) -> bool:
        return same(self, other) if has_fields(other) else NotImplemented

    @recursive_repr()
    def __repr__(self) -> str:
        return show(self)

    # What ``evflow.outside.shown`` shows the beginning of.
    _shown = parts


class UnknownNameError(SchemaError):
    """An annotation names something that is not defined, or not yet."""


class _LateSchema:
    """Stands as ``cls.schema`` until the schema is asked for; making the schema replaces it.

    Args:
        owner: the class.
        frame: where the class statement stands, for the local names that its annotations use.
    """

    def __init__(self, owner: type[Event], frame: FrameType) -> None:
        self._owner = owner
        self._frame = frame

    def __get__(self, instance: object, owner: type) -> Schema:
        return _resolve(self._owner)

    def names(self) -> dict[str, Any]:
        """The names around the class statement that its annotations may use."""
        levels: list[Mapping[str, Any]] = []
        frame: FrameType | None = self._frame
        while frame is not None and frame.f_locals is not frame.f_globals:
            levels.append(frame.f_locals)
            # A class statement may stand in the body of another class; a function is the end.
            frame = None if frame.f_code.co_flags & inspect.CO_OPTIMIZED else frame.f_back
        # Not always those of the class's module: a statement may be executed in a namespace of its own.
        found: dict[str, Any] = dict(self._frame.f_globals)
        for level in reversed(levels):
            found.update(level)
        # A field may be named like a type, but is none.
        own = {
            name: value
            for name, value in vars(self._owner).items()
            if not isinstance(value, MemberDescriptorType)
        }
        return {**found, **own, self._owner.__name__: self._owner}


class _ClassScope(Scope):
    """A scope that also makes the schemas of the classes that are met."""

    def __init__(self) -> None:
        super().__init__()
        self.classes: dict[str, type[Event]] = {}


def _resolve(cls: type[Event]) -> Schema:
    """Makes the schema of a class, and of the classes that it holds and that have none yet."""
    scope = _ClassScope()
    _build(cls, scope)
    for name, made in scope.classes.items():
        made.schema = scope.records[name]
        made.schema.made["event class"] = made
    return cls.schema


def _build(cls: type[Event], scope: _ClassScope) -> None:
    scope.pending[cls.__name__] = cls
    specs = _specs(cls)
    defaults: dict[str, Any] = {}
    fields: dict[str, FieldSpec] = {}
    for field in dataclasses.fields(cast(Any, cls)):
        fields[field.name] = specs[field.name]
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
    Schema(cls.__name__, fields, defaults, _scope=scope)
    scope.classes[cls.__name__] = cls


def _specs(cls: type[Event]) -> dict[str, FieldSpec]:
    """The evaluated annotations of a class and its bases."""
    specs: dict[str, FieldSpec] = {}
    for base in reversed(cls.__mro__):
        late = base.__dict__.get("schema")
        if isinstance(late, Schema):
            specs.update((f.name, f.type) for f in late.fields)
        elif isinstance(late, _LateSchema):
            names = late.names()
            for name, annotation in _annotations(base).items():
                specs[name] = _evaluate(base, name, annotation, names)
    return specs


def _annotations(cls: type) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(cls)


def _evaluate(cls: type, name: str, annotation: Any, names: dict[str, Any]) -> FieldSpec:
    holder = type(cls.__name__, (), {"__annotations__": {name: annotation}, "__module__": cls.__module__})
    try:
        return typing.get_type_hints(holder, localns=names, include_extras=True)[name]
    except NameError as error:
        raise UnknownNameError(
            f"event {cls.__name__}: field {name}: {annotation!r}: {error}; "
            "define or import it before the schema is used"
        ) from None
    except (TypeError, SyntaxError, AttributeError) as error:
        raise SchemaError(
            f"event {cls.__name__}: field {name}: {annotation!r} is not a field type: {error}"
        ) from None


def _own_fields(namespace: Mapping[str, Any]) -> list[str]:
    """The names that a class statement annotates as fields."""
    if sys.version_info >= (3, 14):
        import annotationlib

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        form = annotationlib.Format.FORWARDREF
        found = {} if annotate is None else annotationlib.call_annotate_function(annotate, form)
    else:
        found = namespace.get("__annotations__", {})
    return [name for name, annotation in found.items() if not _NO_FIELD.search(str(annotation))]


def _make_dataclass(cls: type[Event], defaults: Mapping[str, Any]) -> None:
    slots = {name: cls.__dict__[name] for name in defaults}
    for name, default in defaults.items():
        is_list = isinstance(default, list)
        setattr(cls, name, dataclasses.field(default_factory=default.copy) if is_list else default)
    try:
        dataclasses.dataclass(eq=False, repr=False)(cls)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"event {cls.__name__}: {error}") from None
    for name, slot in slots.items():
        setattr(cls, name, slot)


def event_class(schema: Schema) -> type[Event]:
    """The class of the events of a schema: the one that the schema was made from, or else a generated one."""
    made = schema.made.get("event class")
    if made is None:
        made = schema.made.setdefault("event class", _generate(schema))
    return cast("type[Event]", made)


def _generate(schema: Schema) -> type[Event]:
    members = {"__module__": __name__, "__init__": _init, "__reduce__": _reduce}
    return new_class(schema.name, (Event,), {"_schema": schema}, lambda namespace: namespace.update(members))


def _init(event: Event, /, **fields: Any) -> None:
    for name, value in _completed(event.schema, fields).items():
        setattr(event, name, value)


def _reduce(event: Event) -> Any:
    return make_event, (event.schema, {f.name: getattr(event, f.name) for f in event.schema.fields})


def make_event(schema: Schema, fields: Mapping[str, Any]) -> Event:
    """An event of a schema.

    Raises:
        SchemaError: a field without default is missing, or a name is not a field.
    """
    return event_class(schema)(**_completed(schema, fields))


def _completed(schema: Schema, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in declared order, with the defaults of those that are missing."""
    complete = {f.name: fields.get(f.name, f.default) for f in schema.fields}
    missing = [name for name, value in complete.items() if value is REQUIRED]
    unknown = [name for name in fields if name not in schema]
    if unknown or missing:
        problem = f"no such field: {', '.join(unknown)}" if unknown else f"missing: {', '.join(missing)}"
        raise SchemaError(f"event {schema.name}: {problem}; its fields are {', '.join(complete)}")
    for name in complete.keys() - fields.keys():
        if isinstance(complete[name], list):
            complete[name] = []
    return complete
