"""Sending to a socket as LLVM IR: a function that sends what lies in memory as one message, if its reader is
quick enough to take many.

It is called by whatever puts events there (``append_ir``), which holds the interpreter lock, so it never
waits.
"""

from __future__ import annotations

from evflow.codgen.llvm.ir import Body, Module

WORDS = (
    "function", "left", "sent", "look", "width", "most", "sequence", "frames", "socket", "unread", "found",
    "ioctl", "sendmsg", "message", "parts", "sequence_at", "events_at", "size_at",
)  # fmt: skip
"""The words (int64) that tell the function what to do, and what it keeps there: its own address; how many
messages may still be sent; the address up to which bytes were sent, and the one up to which it need not look
whether the reader is quick enough; bytes of an event (0: they vary, so each is sent alone) and of a message;
the number of the next message, and how many were sent; the socket; the bytes that may wait unread there, and
those that were found last (int32); the addresses of ``ioctl`` and ``sendmsg``, and of the ``msghdr`` and its
``iovec``; where the head of a message has its number (8 bytes), its count of events (4) and its size (2),
big-endian. Behind these words each message's count of events is noted."""

MOST_FRAMES = 128
"""Messages that may be noted."""


def write_express(unread: int, flags: int) -> str:
    """The function ``i64 run(ptr words, i64 at, i64 behind)``.

    It is given ``WORDS``, the address of the event that was put into memory last, and that behind it. It
    gives 1 if all up to there is sent, 0 if that is left to be sent.

    Args:
        unread: what to ask ``ioctl`` for: the bytes that the reader of a socket has not taken yet.
        flags: of ``sendmsg``: it must not wait.

    Returns:
        The module.
    """
    body = Body(Module(), "i64 @run(ptr %words, i64 %at, i64 %behind) nounwind")
    leave, stop = body.label(), body.label()

    def word(name: str, kind: str = "i64") -> str:
        return body.load(kind, "%words", 8 * WORDS.index(name))

    def set_word(name: str, value: str) -> None:
        body.store("i64", value, "%words", 8 * WORDS.index(name))

    def go_on_if(condition: str, otherwise: str) -> None:
        further = body.label()
        body.branch(body.let(condition), further, otherwise)
        body.begin(further)

    go_on_if(f"icmp sgt i64 {word('left')}, 0", leave)
    go_on_if(f"icmp uge i64 %behind, {word('look')}", leave)
    sent, width = word("sent"), word("width")
    size = body.let(f"sub i64 %behind, {sent}")
    go_on_if(f"icmp ule i64 {size}, {word('most')}", stop)
    alone = body.let(f"icmp eq i64 {width}, 0")
    one, several, send = (body.label() for _ in range(3))
    body.branch(alone, one, several)
    body.begin(one)
    # What came before was left, and each event of varying width is a message of its own.
    go_on_if(f"icmp eq i64 {sent}, %at", stop)
    single = body.block
    body.jump(send)
    body.begin(several)
    counted = body.let(f"udiv i64 {size}, {width}")
    body.begin(send)
    count = body.phi("i64", [("1", single), (counted, several)])

    found = body.at("%words", 8 * WORDS.index("found"))
    socket = word("socket")
    asked = f"i32 {body.let(f'trunc i64 {socket} to i32')}"
    failed = body.call("i32 (i32, i64, ...)", word("ioctl", "ptr"), asked, f"i64 {unread}", f"ptr {found}")
    go_on_if(f"icmp eq i32 {failed}, 0", stop)
    waiting = body.let(f"sext i32 {body.load('i32', found)} to i64")
    quick, slow = body.label(), body.label()
    body.branch(body.let(f"icmp sle i64 {waiting}, {word('unread')}"), quick, slow)

    body.begin(slow)
    # To look takes as long as to write some events, so twice as many come before it looks again.
    set_word("look", body.let(f"add i64 %behind, {size}"))
    body.jump(leave)

    body.begin(quick)
    sequence = word("sequence")
    for name, bits, value in (("sequence_at", 64, sequence), ("events_at", 32, count), ("size_at", 16, size)):
        narrow = value if bits == 64 else body.let(f"trunc i64 {value} to i{bits}")
        body.store(f"i{bits}", body.swap(bits, narrow), word(name, "ptr"))
    parts = word("parts", "ptr")
    body.store("i64", sent, parts, 16)
    body.store("i64", size, parts, 24)
    message = f"ptr {word('message', 'ptr')}"
    gone = body.call("i64", word("sendmsg", "ptr"), asked, message, f"i32 {flags}")
    go_on_if(f"icmp sgt i64 {gone}, 0", stop)
    frames = word("frames")
    noted = body.let(f"add i64 {frames}, {len(WORDS)}")
    body.store("i64", count, body.at("%words", body.let(f"shl i64 {noted}, 3")))
    set_word("frames", body.let(f"add i64 {frames}, 1"))
    set_word("sequence", body.let(f"add i64 {sequence}, 1"))
    set_word("left", body.let(f"sub i64 {word('left')}, 1"))
    set_word("sent", "%behind")
    set_word("look", "0")
    body.ret("i64 1")

    body.begin(stop)
    set_word("left", "0")
    body.jump(leave)
    body.begin(leave)
    body.ret("i64 0")
    body.finish()
    return body.module.text()
