"""Text and bytes moved by native code: short ones without a call, a few bytes more where that is safe."""

from __future__ import annotations

from evflow.codgen.llvm.ir import Body

SLACK = 16
"""Bytes behind a target of ``copy_bytes`` that it may write to as well."""

_WORD = 8


def copy_bytes(body: Body, target: str, source: str, size: str, room: str) -> None:
    """Copies bytes to where what stands behind them has yet to be written.

    Args:
        body: the function.
        target: with room for ``SLACK`` bytes more.
        source: of the bytes.
        size: how many (i64).
        room: bytes that may be read from ``source`` on (i64).
    """
    short = body.let(f"icmp ule i64 {size}, {SLACK}")
    inside = body.let(f"icmp uge i64 {room}, {SLACK}")
    quick, slow, done = body.label(), body.label(), body.label()
    body.branch(body.let(f"and i1 {short}, {inside}"), quick, slow)
    body.begin(quick)
    body.copy(target, source, SLACK)
    body.jump(done)
    body.begin(slow)
    body.copy(target, source, size)
    body.begin(done)


def copy_short(body: Body, target: str, source: str, size: str, room: str, capacity: int) -> None:
    """Copies at most ``capacity`` bytes over zeros, and touches no others; see ``copy_bytes``."""
    if capacity > _WORD:
        body.copy(target, source, size)
        return
    quick, slow, done = body.label(), body.label(), body.label()
    body.branch(body.let(f"icmp uge i64 {room}, {_WORD}"), quick, slow)
    body.begin(quick)
    word = body.load("i64", source)
    # A shift by 64 bits is undefined, so it is done in two halves.
    half = body.let(f"sub i64 32, {body.let(f'shl i64 {size}, 2')}")
    kept = body.let(f"lshr i64 {body.let(f'lshr i64 -1, {half}')}, {half}")
    word = body.let(f"and i64 {word}, {kept}")
    for at, part in _parts(capacity):
        piece = body.let(f"lshr i64 {word}, {8 * at}") if at else word
        piece = piece if part == _WORD else body.let(f"trunc i64 {piece} to i{8 * part}")
        body.store(f"i{8 * part}", piece, target, at)
    body.jump(done)
    body.begin(slow)
    body.copy(target, source, size)
    body.begin(done)


def _parts(size: int) -> list[tuple[int, int]]:
    """A few bytes as integers: where each begins, and its bytes."""
    parts, at = [], 0
    while at < size:
        part = next(n for n in (8, 4, 2, 1) if n <= size - at)
        parts.append((at, part))
        at += part
    return parts


def padded_size(body: Body, start: str, capacity: int) -> str:
    """Bytes of a text padded with zeros: those up to the last that is none (i64)."""
    if capacity <= _WORD:
        return _word_size(body, start, capacity)
    end = body.alloca("i64")
    body.do(f"store i64 {capacity}, ptr {end}")
    for step in (_WORD, 1):
        _skip_zeros(body, start, end, step)
    return body.let(f"load i64, ptr {end}")


def _word_size(body: Body, start: str, capacity: int) -> str:
    word = "0"
    for at, part in _parts(capacity):
        piece = body.load(f"i{8 * part}", start, at)
        piece = piece if part == _WORD else body.let(f"zext i{8 * part} {piece} to i64")
        word = body.let(f"or i64 {word}, {body.let(f'shl i64 {piece}, {8 * at}')}")
    body.module.declare("i64 @llvm.ctlz.i64(i64, i1)")
    zeros = body.call("i64", "@llvm.ctlz.i64", f"i64 {word}", "i1 false")
    return body.let(f"sub i64 {_WORD}, {body.let(f'lshr i64 {zeros}, 3')}")


def _skip_zeros(body: Body, start: str, end: str, step: int) -> None:
    """Moves ``end`` back over zeros, so many at once."""
    test, look, on, done = (body.label() for _ in range(4))
    body.begin(test)
    n = body.let(f"load i64, ptr {end}")
    body.branch(body.let(f"icmp sge i64 {n}, {step}"), look, done)
    body.begin(look)
    less = body.let(f"sub i64 {n}, {step}")
    found = body.load(f"i{8 * step}", start, less)
    body.branch(body.let(f"icmp eq i{8 * step} {found}, 0"), on, done)
    body.begin(on)
    body.do(f"store i64 {less}, ptr {end}")
    body.jump(test)
    body.begin(done)
