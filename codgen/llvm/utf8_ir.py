"""Whether bytes are UTF-8, as LLVM IR: ``i1 @ev.utf8(ptr, i64)``. Surrogates and overlong forms are not."""

from __future__ import annotations

from evflow.codgen.llvm.ir import Body, Module

_HIGH = -0x7F7F7F7F7F7F7F80
"""The highest bit of each of eight bytes."""


def utf8(module: Module) -> str:
    """The name of the function, which is added to the module when first asked for."""
    return module.routine("@ev.utf8", lambda _: _write(module))


def _write(module: Module) -> None:
    body = Body(module, "internal i1 @ev.utf8(ptr %p, i64 %n) nounwind")
    at = body.alloca("i64", "0")
    test, many, eight, skip, one, lead, wide, yes, no = (body.label() for _ in range(9))
    body.begin(test)
    i = body.let(f"load i64, ptr {at}")
    left = body.let(f"sub i64 %n, {i}")
    body.branch(body.let(f"icmp uge i64 {left}, 8"), eight, many)
    body.begin(eight)
    word = body.load("i64", "%p", i)
    plain = body.let(f"icmp eq i64 {body.let(f'and i64 {word}, {_HIGH}')}, 0")
    body.branch(plain, skip, many)
    body.begin(skip)
    body.do(f"store i64 {body.let(f'add i64 {i}, 8')}, ptr {at}")
    body.jump(test)
    body.begin(many)
    body.branch(body.let(f"icmp eq i64 {left}, 0"), yes, one)
    body.begin(one)
    first = body.let(f"zext i8 {body.load('i8', '%p', i)} to i64")
    body.do(f"store i64 {body.let(f'add i64 {i}, 1')}, ptr {at}")
    body.branch(body.let(f"icmp ult i64 {first}, 128"), test, lead)
    body.begin(lead)
    size = _size(body, first)
    fits = body.let(f"icmp ule i64 {size}, {left}")
    known = body.let(
        f"and i1 {body.let(f'icmp uge i64 {first}, 194')}, {body.let(f'icmp ule i64 {first}, 244')}"
    )
    body.branch(body.let(f"and i1 {fits}, {known}"), wide, no)
    body.begin(wide)
    body.do(f"store i64 {body.let(f'add i64 {i}, {size}')}, ptr {at}")
    body.branch(_followed(body, first, size, i), test, no)
    body.begin(yes)
    body.ret("i1 true")
    body.begin(no)
    body.ret("i1 false")
    body.finish()


def _size(body: Body, first: str) -> str:
    """Bytes of the character that a lead byte begins."""
    three, four = (body.let(f"icmp uge i64 {first}, {n}") for n in (0xE0, 0xF0))
    size = body.let(f"select i1 {three}, i64 3, i64 2")
    return body.let(f"select i1 {four}, i64 4, i64 {size}")


def _followed(body: Body, first: str, size: str, i: str) -> str:
    """Whether the bytes behind a lead byte are as they must be; ``size`` bytes are there."""
    low, high = "128", "191"
    for lead, bound in ((0xE0, 0xA0), (0xF0, 0x90)):
        low = body.let(f"select i1 {body.let(f'icmp eq i64 {first}, {lead}')}, i64 {bound}, i64 {low}")
    for lead, bound in ((0xED, 0x9F), (0xF4, 0x8F)):
        high = body.let(f"select i1 {body.let(f'icmp eq i64 {first}, {lead}')}, i64 {bound}, i64 {high}")
    right = _between(body, _byte(body, i, "1"), low, high)
    for n in (2, 3):
        # A byte that the character does not have is not read: its last one stands in.
        last = body.let(f"sub i64 {size}, 1")
        index = body.let(f"select i1 {body.let(f'icmp ugt i64 {size}, {n}')}, i64 {n}, i64 {last}")
        wanted = _between(body, _byte(body, i, index), "128", "191")
        right = body.let(f"and i1 {right}, {wanted}")
    return right


def _byte(body: Body, i: str, index: str) -> str:
    return body.let(f"zext i8 {body.load('i8', '%p', body.let(f'add i64 {i}, {index}'))} to i64")


def _between(body: Body, value: str, low: str, high: str) -> str:
    above, below = body.let(f"icmp uge i64 {value}, {low}"), body.let(f"icmp ule i64 {value}, {high}")
    return body.let(f"and i1 {above}, {below}")
