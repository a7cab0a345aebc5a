"""Memory that was freed is used again."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

_PROGRAM = """
import ctypes, resource
from evflow.net.node.memory import keep_freed_memory

keep_freed_memory()
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes, c.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

def use() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = c.malloc(8 << 20)
    ctypes.memset(block, 1, 8 << 20)
    c.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(use(), use())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_a_large_block_is_had_again_with_its_pages() -> None:
    """The first time its 2,048 pages are fetched, the second time they are there."""
    run = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, encoding="utf-8", check=True)
    first, second = map(int, run.stdout.split())
    assert second < 100 < first
