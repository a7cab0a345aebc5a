from __future__ import annotations

import sys
from collections.abc import Callable

LIST_NEW_PACKAGES = """
import sys
from collections.abc import Callable
before = set(sys.modules)
import evflow
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""


def test_import_loads_only_numpy_and_the_standard_library(python: Callable[..., str]) -> None:
    loaded = set(python("-c", LIST_NEW_PACKAGES).split())
    assert loaded - set(sys.stdlib_module_names) == {"evflow", "numpy"}


def test_import_starts_no_thread_and_prints_nothing(python: Callable[..., str]) -> None:
    printed = python("-c", "import evflow, threading; assert threading.active_count() == 1")
    assert printed == ""
