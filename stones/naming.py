"""Names of files and folders for what a user has named."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

_MOST = 100


def file_name(name: str) -> str:
    """A file's name for a stone or a deployment, whatever characters its own name has.

    Example:
        >>> file_name("alerts"), file_name("../a b.c")
        ('alerts', '%2E%2E%2Fa b%2Ec')
    """
    quoted = quote(name, safe=" ").replace(".", "%2E")
    if len(quoted) <= _MOST:
        return quoted
    return f"{quoted[:_MOST]}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
