from __future__ import annotations

import sys
from collections.abc import Callable

LIST_NEW_PACKAGES = """
import sys
import threading
from collections.abc import Callable
before = set(sys.modules)
import evflow
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
assert threading.active_count() == 1
"""


def test_import_loads_numpy_and_the_standard_library_starts_no_thread_and_prints_nothing(
    python: Callable[..., str],
) -> None:
    (loaded,) = python("-c", LIST_NEW_PACKAGES).splitlines()
    assert set(loaded.split()) - set(sys.stdlib_module_names) == {"evflow", "numpy"}
