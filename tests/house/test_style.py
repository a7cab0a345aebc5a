from __future__ import annotations

import re
from pathlib import Path

TEXT = {".py", ".md", ".toml", ".cu", ".csv", ".json", ""}
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(home|root|tmp|work|opt|Users)/\w")


def test_no_file_names_a_path_of_some_machine(files: list[Path]) -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in files
        if path.suffix in TEXT
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []


def test_every_test_has_a_name_of_its_own(files: list[Path]) -> None:
    seen: dict[tuple[Path, str], int] = {}
    for path in files:
        if path.name.startswith("test_"):
            for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE):
                seen[path, name] = seen.get((path, name), 0) + 1
    assert [f"{path.name}: {name}" for (path, name), n in seen.items() if n > 1] == []


def test_the_help_of_every_option_can_be_printed(files: list[Path]) -> None:
    """argparse fills ``%(default)s`` in, so a percent sign is written twice."""
    bare = re.compile(r"""help=f?"(?:[^"%]|%%|%\(\w+\)[sdr])*%(?![%(])""")
    found = [path.name for path in files if path.suffix == ".py" and bare.search(path.read_text())]
    assert found == []
