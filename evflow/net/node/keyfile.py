"""Key files: a node's name, and its keys as text in a folder.

``NAME.key`` holds a secret key and ``NAME.pub`` a public one: lines of comment, and 40 characters of Z85.
"""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from pathlib import Path

import zmq
from zmq.utils import z85

from evflow.disk import advice, private_folder, read_file
from evflow.errors import LinkError

Stamp = tuple[tuple[str, int, int, int], ...]
"""The public key files of a folder: of each its name, time of change in ns, size in bytes, and inode."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
# The characters of Z85. A key never begins with '#', as its first five characters would be more than 32 bits:
# a line that does is a comment.
_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_LARGEST_FILE = 4096
_MOST_TOLD = 10
"""Names of a folder that a message has."""

_SECRET_TEXT = "# Secret key of the evflow node {}: it stays on its host.\n{}\n"
_PUBLIC_TEXT = "# Public key of the evflow node {}: copy it to the nodes that it talks to.\n{}\n"


def checked_name(name: str) -> str:
    """A node's name that can be the name of a key file.

    Raises:
        LinkError: it cannot.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise LinkError(
            f"node name {name!r}: expected letters, digits, '-', '_' and '.', and no '.' at the beginning"
        )
    return name


def key_paths(folder: Path, name: str) -> tuple[Path, Path]:
    """The files of a node's secret and of its public key."""
    return folder / f"{name}.key", folder / f"{name}.pub"


def generate(folder: str | os.PathLike[str], name: str) -> tuple[Path, Path]:
    """Makes a pair of keys for a node.

    Args:
        folder: where to; it is made, for this user alone, if it is not there.
        name: the node's name.

    Returns:
        The files of its secret key, which only this user can read, and of its public key.

    Raises:
        LinkError: the name is not one, the node has a key already, or the files cannot be written.
    """
    secret_path, public_path = key_paths(Path(folder), checked_name(name))
    public, secret = (key.decode() for key in zmq.curve_keypair())
    try:
        private_folder(Path(folder))
        _write_new(secret_path, 0o600, _SECRET_TEXT.format(name, secret))
        try:
            _write_new(public_path, 0o644, _PUBLIC_TEXT.format(name, public))
        except OSError:
            secret_path.unlink()
            raise
    except FileExistsError as error:
        raise LinkError(
            f"{error.filename} is there already and is kept; choose another name, or remove it first"
        ) from error
    except OSError as error:
        raise LinkError(f"keys of {name!r} cannot be written: {error}; {advice(error)}") from error
    return secret_path, public_path


def _write_new(path: Path, mode: int, text: str) -> None:
    # Exclusive, and with its mode from the start: at no moment can another read it, or have put it there.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
    except OSError:
        path.unlink()
        raise


def owners(folder: Path) -> list[str]:
    """The names of the nodes whose secret key is in a folder; none if it cannot be read."""
    try:
        return sorted(path.stem for path in folder.iterdir() if path.suffix == ".key")
    except OSError:
        return []


def which_name(folder: Path) -> str:
    """What to give where nobody said whose keys of a folder to use."""
    names = owners(folder)
    known = _has_keys(folder, names) if names else f"make one with: evflow keygen NAME --dir {folder}"
    return f"give name=NAME; {known}"


def _has_keys(folder: Path, names: list[str]) -> str:
    more = f" and {len(names) - _MOST_TOLD} others" if len(names) > _MOST_TOLD else ""
    return f"{folder} has the keys of {', '.join(names[:_MOST_TOLD])}{more}"


def read_secret(folder: Path, name: str) -> str:
    """A node's secret key.

    Raises:
        LinkError: it is not there, malformed, or can be read by others than its owner.
    """
    path = key_paths(folder, name)[0]
    try:
        mode, content = read_file(path, _LARGEST_FILE)
    except FileNotFoundError as error:
        others = owners(folder)
        known = f", or give another name=NAME; {_has_keys(folder, others)}" if others else ""
        raise LinkError(
            f"no secret key {path}; make one with: evflow keygen {name} --dir {folder}{known}"
        ) from error
    except OSError as error:
        raise LinkError(f"secret key {path} cannot be read: {error}") from error
    if mode & 0o077:
        raise LinkError(f"secret key {path} is open to others, its mode is {mode:04o}; run: chmod 600 {path}")
    return _key_in(path, content)


def stamp_of(folder: Path) -> Stamp:
    """The public key files of a folder; it differs whenever one of their keys does.

    Raises:
        LinkError: the folder cannot be read.
    """
    found = []
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.name.endswith(".pub") and not e.name.startswith(".")]
    except OSError as error:
        raise LinkError(f"folder of keys {folder} cannot be read: {error}") from error
    for name in sorted(names):
        try:
            stat = (folder / name).stat()
            found.append((name, stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            # Gone by now, or a link to nothing, which reading it will tell.
            found.append((name, 0, 0, 0))
    return tuple(found)


def read_public(folder: Path, stamp: Stamp) -> tuple[dict[str, str], list[str]]:
    """The public keys by name in the files of a stamp, and what is wrong with those left out."""
    keys: dict[str, str] = {}
    problems: list[str] = []
    for file_name, *_ in stamp:
        path = folder / file_name
        try:
            key = _key_in(path, read_file(path, _LARGEST_FILE)[1])
            keys[checked_name(path.stem)] = key
        except OSError as error:
            problems.append(f"public key {path} cannot be read: {error}")
        except LinkError as error:
            problems.append(str(error) if str(path) in str(error) else f"{path}: {error}")
    # Whoever has a key under two names could be taken for either, so is taken for neither.
    for key in [key for key, count in Counter(keys.values()).items() if count > 1]:
        names = [name for name, other in keys.items() if other == key]
        problems.append(f"{folder}: {', '.join(names)} have the same public key; keep one of their files")
        for name in names:
            del keys[name]
    return keys, problems


def _key_in(path: Path, content: bytes) -> str:
    # A message does not show what was found: it may be most of a secret key.
    lines = [line.strip() for line in content.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if len(lines) != 1:
        raise LinkError(
            f"{path}: expected one key of 40 characters, found {len(lines)} lines beside comments"
        )
    (line,) = lines
    if not _is_key(line):
        raise LinkError(f"{path}: expected 40 characters of Z85, found {len(line)} that are not a key")
    return line


def _is_key(text: str) -> bool:
    if not _KEY.fullmatch(text):
        return False
    try:
        z85.decode(text)
    except struct.error:
        return False
    return True
