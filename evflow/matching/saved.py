"""Matchers on disk: a folder with one small text file, and beside it a folder of arrays.

The text file names the folder of arrays. A new one is written beside the old, then the text file is replaced,
then the old one deleted: so whoever is killed leaves either the old matcher or the new, and processes that
have mapped the old one keep it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evflow.disk import advice, private_file, private_folder, sync_file
from evflow.errors import SubscriptionError
from evflow.outside import from_json, shown

_FORMAT = 7
_KIND = "evflow matcher"
_FILE = "matcher.json"
_ARRAYS = "arrays-"
_HEAD = 256


def write(path: Path, content: dict[str, Any], save: Callable[[Path], None]) -> None:
    """Writes a matcher to a folder, instead of the one that may be there.

    Args:
        path: the folder.
        content: what the text file is to hold.
        save: writes the arrays to a folder that is empty.

    Raises:
        SubscriptionError: the folder is there and holds something else, JSON cannot hold ``content``, or
            writing failed.
    """
    try:
        others = path.iterdir() if path.exists() and not (path / _FILE).exists() else ()
        if any(not entry.name.startswith((_ARRAYS, _FILE)) for entry in others):
            raise SubscriptionError(f"{path} is not a saved matcher, and not empty; save to another folder")
        _checked(content)
        private_folder(path)
        arrays = path / f"{_ARRAYS}{secrets.token_hex(8)}"
        private_folder(arrays)
        save(arrays)
        files = {}
        for file in sorted(arrays.rglob("*")):
            if file.is_file():
                files[file.relative_to(arrays).as_posix()] = [file.stat().st_size, _head(file)]
                sync_file(file)
        whole = {"kind": _KIND, "format": _FORMAT, "arrays": arrays.name, "files": files, **content}
        text = path / f"{_FILE}.{arrays.name}"
        private_file(text)
        text.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8", errors="surrogatepass")
        sync_file(text)
        os.replace(text, path / _FILE)
        sync_file(path)
        _clear(path, arrays.name)
    except OSError as error:
        raise SubscriptionError(f"cannot save a matcher to {path}: {error}; {advice(error)}") from error


def read(path: Path) -> tuple[dict[str, Any], Path]:
    """What the text file of a saved matcher holds, and the folder of its arrays, all of them whole.

    Raises:
        SubscriptionError: there is no matcher, it is not whole, or a later version of evflow wrote it.
    """
    try:
        content = from_json((path / _FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SubscriptionError(
            f"{path} holds no saved matcher: there is no {_FILE}; save one with Matcher.save"
        ) from None
    except (OSError, ValueError) as error:
        raise SubscriptionError(f"{path / _FILE} cannot be read: {error}") from None
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        raise SubscriptionError(f"{path / _FILE} describes no matcher")
    if (found := content.get("format")) != _FORMAT:
        older = isinstance(found, int) and found < _FORMAT
        raise SubscriptionError(
            f"{path} has format {shown(found)}, this evflow reads {_FORMAT}; "
            + (
                "make the matcher again from its subscriptions"
                if older
                else "load it with the evflow that saved it"
            )
        )
    arrays, files = path / str(content.get("arrays")), content.get("files")
    if arrays.parent != path or not isinstance(files, dict):
        raise SubscriptionError(f"{path / _FILE} describes no matcher")
    for name, known in files.items():
        if what := _damage(arrays / name, known):
            raise SubscriptionError(
                f"{path} is not whole: {arrays.name}/{name} {what}; save the matcher again"
            )
    return content, arrays


def _damage(file: Path, known: object) -> str:
    """What is wrong with a file of which size and head are known; "" if nothing is to be seen."""
    if not isinstance(known, list) or len(known) != 2:
        return "is of unknown size"
    size, head = known
    try:
        found = file.stat().st_size
        if found != size:
            return f"has {found} bytes instead of {size}"
        return "" if _head(file) == head else "has another header than was saved"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _head(file: Path) -> int:
    """A sum over the bytes that say of what type and shape an array is."""
    with file.open("rb") as opened:
        return zlib.crc32(opened.read(_HEAD))


def _checked(content: dict[str, Any]) -> None:
    try:
        json.dumps(content)
    except (TypeError, ValueError) as error:
        raise SubscriptionError(
            f"cannot save a matcher of options {content.get('options')!r}: {error}; "
            "expected numbers, strings and lists"
        ) from None


def _clear(path: Path, kept: str) -> None:
    """Deletes what earlier matchers, and those who were killed, have left."""
    for entry in path.iterdir():
        if entry.name.startswith(_ARRAYS) and entry.name != kept:
            shutil.rmtree(entry)
        elif entry.name.startswith(f"{_FILE}."):
            entry.unlink()
