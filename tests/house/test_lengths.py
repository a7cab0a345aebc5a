from __future__ import annotations

from pathlib import Path

SOURCES = {".py", ".cu", ".cuh", ".cpp", ".h"}


def test_no_file_is_longer_than_600_lines(files: list[Path]) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in files if path.suffix in SOURCES}
    assert [f"{path}: {n}" for path, n in lengths.items() if n > 600] == []
