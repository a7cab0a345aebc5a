"""The stand-in for the driver is at least as strict as a device, and does what its switches say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from evflow.gpu.device import Device
from evflow.matching.engine import ENGINES
from tests.gpu.standin import StandIn

pytestmark = pytest.mark.slow


@pytest.fixture
def device(standin: StandIn) -> Iterator[tuple[Device, Any]]:
    """A device whose context is current, and PyCUDA's driver module."""
    import pycuda.driver as cuda

    made = Device.of()
    made._context.push()
    yield made, cuda
    cuda.Context.pop()


def test_it_says_that_it_is_no_gpu_and_is_no_engine(device: tuple[Device, Any]) -> None:
    assert "not a GPU" in device[0].name
    assert not any("stand" in name for name in ENGINES)


def test_an_asynchronous_copy_needs_pinned_memory(device: tuple[Device, Any]) -> None:
    made, cuda = device
    memory, stream = made.allocate(64), made.stream()
    with pytest.raises(cuda.LogicError, match="not pinned"):
        cuda.memcpy_htod_async(memory.address, np.zeros(8, np.uint8), stream.held)
    made.send(memory.address, made.pinned(64), stream)
    stream.synchronize()


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 65), (64, 1), (-1, 1), (60, 8)])
def test_a_copy_must_lie_in_one_allocation(device: tuple[Device, Any], offset: int, nbytes: int) -> None:
    made, cuda = device
    memory = made.allocate(64)
    with pytest.raises(cuda.LogicError, match="not within one allocation"):
        cuda.memcpy_dtoh(np.zeros(nbytes, np.uint8), memory.address + offset)


def test_new_memory_is_poisoned(device: tuple[Device, Any]) -> None:
    made, cuda = device
    held = np.zeros(64, np.uint8)
    memory = made.allocate(64)
    cuda.memcpy_dtoh(held, memory.address)
    assert (held == 0xCD).all()
    assert (made.pinned(64) == 0xCD).all()


def test_work_waits_until_somebody_waits_for_it(standin: StandIn, device: tuple[Device, Any]) -> None:
    made = device[0]
    for deferred, expected in ((True, 0xCD), (False, 7)):
        standin.configure(deferred=deferred)
        memory, stream, pinned, back = made.allocate(8), made.stream(), made.pinned(8), made.pinned(8)
        pinned[:] = 7
        made.send(memory.address, pinned, stream)
        made.fetch(back, memory.address, stream)
        assert back[0] == expected
        stream.synchronize()
        assert back[0] == 7


def test_a_stream_waits_for_an_event_of_another(device: tuple[Device, Any]) -> None:
    made = device[0]
    first, second, mark = made.stream(), made.stream(), made.mark()
    memory, pinned, back = made.allocate(8), made.pinned(8), made.pinned(8)
    pinned[:] = 3
    made.send(memory.address, pinned, first)
    mark.record(first)
    second.held.wait_for_event(mark.held)
    made.fetch(back, memory.address, second)
    second.synchronize()
    assert (back == 3).all()


def test_arguments_of_another_size_are_refused(device: tuple[Device, Any]) -> None:
    made, cuda = device
    function = made.kernels("scatter")["scatter"].held
    function.prepare("IIPP")
    with pytest.raises(cuda.LogicError, match="was given 24 bytes of arguments and takes 32"):
        function.prepared_async_call((1, 1), (1, 1, 1), made.stream().held, 1, 1, 0, 0)


def test_a_kernel_that_touches_other_memory_loses_the_context(device: tuple[Device, Any]) -> None:
    made, cuda = device
    scatter, stream = made.kernels("scatter")["scatter"], made.stream()
    index, values = made.allocate(4), made.allocate(4)
    made.put(index, np.array([1 << 30], np.uint32))
    scatter(stream, 1, 1, 1, index.address, values.address, values.address)
    with pytest.raises(cuda.Error, match=r"illegal memory access.*scatter"):
        stream.synchronize()
    with pytest.raises(cuda.Error, match="illegal memory access"):
        made._cuda.mem_get_info()


def test_a_write_just_past_an_allocation_is_seen(device: tuple[Device, Any]) -> None:
    made, cuda = device
    scatter, stream = made.kernels("scatter")["scatter"], made.stream()
    index, values, target = made.allocate(4), made.allocate(4), made.allocate(20)
    made.put(index, np.array([5], np.uint32))
    made.put(values, np.zeros(1, np.uint32))
    scatter(stream, 1, 1, 1, index.address, values.address, target.address)
    with pytest.raises(cuda.Error, match="past the end of an allocation"):
        stream.synchronize()


READS = """
.visible .entry reads(
	.param .u64 reads_param_0
)
{
	.reg .b32 	%r<3>;
	.reg .b64 	%rd<3>;
	ld.param.u64 	%rd1, [reads_param_0];
	ld.global.v2.u32 	{%r1, %r2}, [%rd1];
	ret;
}
"""


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 8])
def test_an_address_that_is_not_aligned_loses_the_context(device: tuple[Device, Any], offset: int) -> None:
    made, cuda = device
    reads, stream, memory = (
        made.load(READS, "a kernel that reads 8 bytes")["reads"],
        made.stream(),
        made.allocate(16),
    )
    reads(stream, 1, memory.address + offset, block=1)
    if offset % 8 == 0:
        stream.synchronize()
    else:
        with pytest.raises(cuda.Error, match="misaligned address: reads: touched memory"):
            stream.synchronize()


def test_memory_that_is_freed_with_work_outstanding_is_noted(
    standin: StandIn, device: tuple[Device, Any]
) -> None:
    made, cuda = device
    held, pinned, stream = cuda.mem_alloc(64), made.pinned(64), made.stream()
    made.send(int(held), pinned, stream)
    assert not standin.misuse
    held.free()
    assert standin.misuse == "memory was freed while work was outstanding"
    standin.configure()


def test_a_context_that_is_left_on_a_stack_is_counted(standin: StandIn) -> None:
    context = Device.of()._context
    before = standin.counter("contexts")
    context.push()
    assert standin.counter("contexts") == before + 1
    context.pop()
    assert standin.counter("contexts") == before


def test_memory_needs_a_context(standin: StandIn) -> None:
    import pycuda.driver as cuda

    Device.of()
    with pytest.raises(cuda.LogicError, match=r"no currently active context|no context is current"):
        cuda.mem_alloc(8)
