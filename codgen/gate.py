"""A filter as a function of one event, for where events are taken in one by one."""

from __future__ import annotations

from evflow.codgen.costs import is_quiet
from evflow.codgen.llvm.context import Context, ContextBody
from evflow.codgen.llvm.emitter import Emitter
from evflow.codgen.llvm.function import write_function
from evflow.codgen.llvm.host import Host
from evflow.codgen.llvm.ir import Module
from evflow.codgen.native import Native
from evflow.codgen.tree import Function, Pos, Root


def gate(function: Function) -> Native | None:
    """The function ``i64 (ptr event)`` that tells, by 1 or 0, whether a filter passes an event.

    Returns:
        None if the filter is not cheap, looks at more than the event's numbers, or could fault.
    """
    if not is_quiet(function) or function.attributes or function.system or function.statics:
        return None
    body = ContextBody(Module(), Context(), "i64 @run(ptr %event) nounwind")
    e = write_function(body, function, _OneEvent(body, 0, []))
    if e.faults:
        return None
    body.begin("return")
    result = body.phi("i64", e.returns)
    body.ret("i64 " + body.let(f"zext i1 {body.let(f'icmp ne i64 {result}, 0')} to i64"))
    body.finish()
    return Native(body.module.text(), optimised=False)


class _OneEvent(Host):
    """Where such a function is: of what a ``Host`` gives it needs the event alone."""

    def event(self, e: Emitter, root: Root, pos: Pos) -> str:
        return "%event"
