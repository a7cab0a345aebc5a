"""Programs that tests start, of which nothing is left."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

__all__ = ["process", "python"]

PACKAGE = Path(__file__).parents[2] / "evflow"


@contextmanager
def process(arguments: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen[str]]:
    """A process; neither it nor what it started is left."""
    with subprocess.Popen(arguments, **settings) as made:
        try:
            yield made
        finally:
            if made.poll() is None:
                for one in psutil.Process(made.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
                made.kill()


def python(folder: Path, *, having: bool = False) -> str:
    """A Python of its own that has what this one has, but the package only if ``having``: as it installs."""
    venv.create(folder, symlinks=True, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "evflow" not in path.name and not (site / path.name).exists():
            (site / path.name).symlink_to(path)
    if having:
        beside = shutil.ignore_patterns("pyspark_evflow")
        shutil.copytree(PACKAGE, site / "evflow", ignore=beside)
        shutil.copytree(PACKAGE / "spark" / "pyspark_evflow", site / "pyspark_evflow")
    return str(folder / "bin" / "python")
