"""What evflow keeps on disk: a log of checksummed pieces, a store of keys and values on it, and locks."""

from evflow.disk.blobs import Blobs, Growing, size_of
from evflow.disk.guard import Guard
from evflow.disk.lock import Lock, OwnFile, private_file, private_folder, read_file
from evflow.disk.log import Log, Meta, Piece, remove, sync_file
from evflow.disk.numbered import END, Numbered, Things
from evflow.disk.store import Changes, Store
from evflow.disk.trouble import AGAIN, Trouble, advice, unusable

__all__ = [
    "AGAIN",
    "Blobs",
    "Changes",
    "END",
    "Growing",
    "Guard",
    "Lock",
    "Log",
    "Meta",
    "Numbered",
    "OwnFile",
    "Piece",
    "Store",
    "Things",
    "Trouble",
    "advice",
    "private_file",
    "private_folder",
    "read_file",
    "remove",
    "size_of",
    "sync_file",
    "unusable",
]
