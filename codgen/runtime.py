"""What every compiled loop needs at run time: the context's words, its vectors, and the call.

Native code and Python share a block of words (``context.py``). Before a run Python writes addresses into
it; native code fills vectors and calls back when one is full; after it Python hands out what the vectors
hold. What is handed out is never written to again.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from evflow.codgen.llvm.layout import statics_layout
from evflow.codgen.llvm.stage_ir import KernelText
from evflow.codgen.memory import Array, address, packed_texts
from evflow.codgen.native import Code, Native
from evflow.codgen.result import FaultNote, fault_notes
from evflow.codgen.tree import REQUEST, Function, Variable
from evflow.codgen.vectors import Vectors
from evflow.schema.types import NUMBERS

_SHORT, _LITTLE = 2048, 1 << 20
"""Events and bytes up to which a run keeps the interpreter lock: giving it away costs more than the run."""


class AttributeColumn(Protocol):
    """An attribute of all selected events: kind ``i`` (int64), ``f`` (float64) or ``s`` (str objects)."""

    @property
    def kind(self) -> str: ...

    @property
    def values(self) -> Array: ...

    @property
    def present(self) -> Array: ...


def new_state(function: Function) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The static variables of a function with their initial values.

    One block serves every kernel that runs the function, whatever the schema of its events: its layout
    depends on the variables alone.
    """
    offsets, size = statics_layout(function.statics)
    state = np.zeros(size, np.uint8)
    for variable, offset in zip(function.statics, offsets, strict=True):
        values = np.asarray(variable.initial, dtype=NUMBERS[variable.type].dtype)
        cells = (
            np.broadcast_to(values.reshape(-1), int(np.prod(variable.shape))) if variable.shape else values
        )
        data = np.frombuffer(cells.tobytes(), np.uint8)
        state[offset : offset + len(data)] = data
    return state


def layout_of(function: Function) -> str:
    """What the static variables of a function are: names, types and shapes."""
    if not function.statics:
        return "[]"
    return json.dumps([[variable.name, variable.type, variable.shape] for variable in function.statics])


def kept_state(
    function: Function, state: np.ndarray[Any, np.dtype[np.uint8]], layout: str
) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """A copy of statics that may come from elsewhere, fit for a function; None if they are not its own."""
    offsets, size = statics_layout(function.statics)
    if layout != layout_of(function) or len(state) != size:
        return None
    kept = state.copy()
    for variable, offset in zip(function.statics, offsets, strict=True):
        if NUMBERS[variable.type].kind == "b":
            # Native code trusts that a bool is 0 or 1.
            cells = kept[offset : offset + math.prod(variable.shape)]
            np.minimum(cells, 1, out=cells)
    return kept


def request_at(layout: str) -> int | None:
    """Where in statics of this layout stands what their function asks for; None if it never asks.

    Args:
        layout: as ``layout_of`` gives it.
    """
    if REQUEST not in layout:
        return None
    statics = tuple(
        Variable(name, kind, index, True, tuple(shape))
        for index, (name, kind, shape) in enumerate(json.loads(layout))
    )
    offsets, _ = statics_layout(statics)
    return next(at for variable, at in zip(statics, offsets, strict=True) if variable.name == REQUEST)


def take_request(state: Array, at: int) -> int:
    """What a function has asked for last, since this was called last; 0 for nothing.

    Args:
        state: its statics; the request is taken out of them.
        at: see ``request_at``.
    """
    cell = state[at : at + 8].view(np.int64)
    request = int(cell[0])
    cell[0] = 0
    return request


class LoopCode(Code):
    """The code of a loop over events, which any number of runtimes share.

    Args:
        text: what it is compiled from.
        functions: the functions that it runs.

    Attributes:
        context: what the words of a runtime's context are.
        names: what faults are about, by number.
        constants: what some of the words always are.
        loops: whether a function has loops, so that few events may take long.
        called: the machine code of the function, where the loop of the first tier is shared.
    """

    called: Native | None = None

    def __init__(self, text: KernelText, functions: Iterable[Function]) -> None:
        self.context, self.names, self.constants = text.context, text.names, text.constants
        self.loops = any(map(attrgetter("loops"), functions))
        self._text = text
        super().__init__(text.ir)

    def _made(self, *, optimised: bool) -> Native:
        loop = self._text.loop
        if optimised or not loop:
            return super()._made(optimised=optimised)
        self.called = _functions.get(self.ir)
        if self.called is None:
            self.called = _functions[self.ir] = Native(self.ir, "s0", optimised=False)
        return _shared(loop)

    def _whole(self) -> str:
        return self._text.whole()


_functions: WeakValueDictionary[str, Native] = WeakValueDictionary()
"""The machine code of functions by their text; used by one thread at a time, which compiles."""


@lru_cache(maxsize=8)
def _shared(loop: str) -> Native:
    """A loop that many functions share."""
    return Native(loop, optimised=False, lasting=True)


class Runtime:
    """The running half of a compiled loop; one thread at a time may use it.

    Args:
        code: the machine code, shared with other runtimes.
        ways: for each exit whose selection native code does not check, how many rows an event may add.

    Attributes:
        code: as given.
    """

    def __init__(self, code: LoopCode, ways: Mapping[int, int]) -> None:
        self.code, context = code, code.context
        self._block = np.zeros(context.size, np.int64)
        self._words: Any = self._block.data
        self._address = address(self._block)
        self._scratch = np.zeros(max(context.scratch, 1), np.uint8)
        self._vectors = Vectors(self._block, context, ways)
        self._faults = self._vectors.word("faults")
        self._noted = context.words.get(("noted",))
        self._failed = False
        self._held: dict[int, Array] = {}
        self._states: list[tuple[int, Any]] = []
        self._attributes: list[tuple[int, Any]] = []
        self._stone_attributes: list[tuple[int, Any, Any]] = []
        self._system: list[tuple[int, Any]] = []
        for key, word in context.words.items():
            if key[0] == "state":
                self._states.append((word, key[1]))
            elif key[0] == "attribute":
                self._attributes.append((word, key[1]))
            elif key[0] == "stone attribute":
                self._stone_attributes.append((word, key[1], key[2]))
            elif key[0] == "system":
                self._system.append((word, key[1]))
            elif key[0] == "scratch":
                self._words[word] = address(self._scratch)
        for constant in code.constants:
            bits = constant.bits
            if bits is None and code.called is not None:
                bits = code.called.address
            self._words[constant.word] = bits or 0
        self._inputs = bool(self._attributes or self._stone_attributes or self._system)
        self._words[context.at("grow")] = ctypes.cast(_GROW, ctypes.c_void_p).value or 0
        _runtimes[self._address] = self

    def _call(
        self,
        data: Array,
        offsets: Array | None,
        selection: Array | None,
        events: int,
        attributes: Mapping[str, AttributeColumn] | None,
        states: Sequence[Array],
        stone_attributes: Sequence[Mapping[str, object]],
        system: Mapping[str, float],
    ) -> None:
        """Runs the code over the input."""
        words, code = self._words, self.code
        if not code.optimised:
            code.saw(events)
        words[0] = address(data)
        words[1] = 0 if offsets is None else address(offsets)
        words[2] = 0 if selection is None else address(selection)
        words[3] = events
        for word, stone in self._states:
            state = states[stone]
            if self._held.get(word) is not state:
                self._held[word] = state
                words[word] = address(state)
        self._vectors.begin(events)
        if self._noted is not None:
            words[self._noted] = 0
        kept = self._fill(attributes, stone_attributes, system) if self._inputs else None
        self._failed = False
        if self.brief(events, len(data)):
            code.held(self._address)
        else:
            code.free(self._address)
        del kept
        if self._failed:
            raise MemoryError("no memory for the events that the functions send")

    def _noted_faults(self) -> list[FaultNote]:
        if self._faults < 0 or not self._vectors.count(self._faults):
            return []
        return fault_notes(self._vectors.take(self._faults), self.code.names)

    def brief(self, events: int, size: int) -> bool:
        """Whether a run over so many events of a buffer of ``size`` bytes keeps the interpreter lock."""
        return events <= _SHORT and size <= _LITTLE and not self.code.loops

    def _fill(
        self,
        attributes: Mapping[str, AttributeColumn] | None,
        stone_attributes: Sequence[Mapping[str, object]],
        system: Mapping[str, float],
    ) -> list[object]:
        """Writes attributes and system values; gives what has to live as long as the run."""
        kept: list[object] = []
        for word, name in self._attributes:
            column = attributes.get(name) if attributes else None
            self._words[word : word + 3] = _NOTHING if column is None else _column_words(column, kept)
        for word, stone, name in self._stone_attributes:
            self._words[word : word + 3] = _value_words(stone_attributes[stone].get(name), kept)
        for word, name in self._system:
            self._block[word : word + 1].view(np.float64)[0] = system.get(name, 0.0)
        return kept

    def grow(self, vector: int, need: int) -> int:
        """Makes room in a vector while native code waits; 0 if there is none, or it may be no larger."""
        if vector >= 0 and not self._vectors.allows(vector, need):
            return 0
        # Whatever is raised here cannot pass through native code; so it counts as failed until it is done.
        before, self._failed = self._failed, True
        try:
            self._enlarge(vector, need)
        except MemoryError:
            return 0
        self._failed = before
        return 1

    def _enlarge(self, vector: int, need: int) -> None:
        self._vectors.grow(vector, need)


_NOTHING = np.zeros(3, np.int64).data


def _words3(*values: int) -> memoryview:
    return np.array(values, np.int64).data


def _column_words(column: AttributeColumn, kept: list[object]) -> memoryview:
    present = np.ascontiguousarray(column.present, np.bool_)
    if column.kind == "s":
        values, data = packed_texts([v if p else "" for v, p in zip(column.values, present, strict=True)])
        kept.append(data)
    else:
        values = np.ascontiguousarray(column.values, np.int64 if column.kind == "i" else np.float64)
    kept.extend((values, present))
    return _words3(_KINDS[column.kind], address(values), address(present))


def _value_words(value: object, kept: list[object]) -> memoryview:
    """An attribute of a stone; a value of another type counts as not set."""
    if isinstance(value, str):
        try:
            pairs, data = packed_texts([value])
        except UnicodeEncodeError:
            return _NOTHING
        kept.append(data)
        return _words3(_KINDS["s"], *pairs[0].tolist())
    if isinstance(value, float):
        return _words3(_KINDS["f"], int(np.float64(value).view(np.int64)), 0)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return _words3(_KINDS["i"], int(value), 0)
    return _NOTHING


_KINDS = {"i": 1, "f": 2, "s": 3}

_runtimes: WeakValueDictionary[int, Runtime] = WeakValueDictionary()


def _grow(block: int, vector: int, need: int) -> int:
    """Native code calls this with its context when a vector is full."""
    runtime = _runtimes.get(block)
    return 0 if runtime is None else runtime.grow(vector, need)


_GROW = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(_grow)
