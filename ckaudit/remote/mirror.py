"""A local copy of the objects at an address, in the cache: only changed objects are fetched."""

import os
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ckaudit.errors import UnreadableError
from ckaudit.remote.addresses import remember
from ckaudit.remote.arrivals import let_arrive
from ckaudit.remote.cache import GIGABYTE, LIMIT, Slot, cache_folder, cache_limit, make_room
from ckaudit.remote.fast_s3 import FastS3, serves
from ckaudit.remote.fetch import Copy, Listing, Progress, Watcher
from ckaudit.remote.filesystem import naming
from ckaudit.remote.location import is_uri, scheme_of, shown
from ckaudit.remote.storage import AnyStorage, Entry, Storage, last_name

MAX_OBJECTS = 100_000
"""Maximum number of objects fetched below one address; a run has a few thousand."""

ROUNDS = 3
"""How often a listing is repeated if objects change while they are fetched."""

WEIGHTS = (".bin", ".ckpt", ".distcp", ".gguf", ".h5", ".msgpack", ".onnx", ".pt", ".pth", ".safetensors", ".tar", ".npz")
"""File endings of weights, which only the audit of resume checkpoints reads."""

WEIGHTS_BYTES = 2**20
"""Size from which on files with such endings are not fetched."""


def local_copy(
    uri: str | os.PathLike[str],
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    everything: bool = False,
    watcher: Watcher | None = None,
) -> Path:
    """Return the local path of a run: a path unchanged, or the copy of an address in the cache.

    Args:
        uri: A path, or the address of an object or a folder.
        cache: The cache's folder; None: `CKAUDIT_CACHE`, else the user's own.
        progress: Called with the number of fetched objects and of all objects.
        everything: Fetch files of weights too.
        watcher: Notified of the files to fetch, and of each complete file.

    Raises:
        UnreadableError: If there is no object, access is denied, the storage does not answer, or its client is not installed.
        UsageError: If such addresses are not supported.
    """
    text = os.fspath(uri)
    if not is_uri(text):
        return Path(text)
    if scheme_of(text) == "file":
        return _of_file(text)
    slot = slot_of(text, cache)
    let_arrive(slot.copy)
    with naming(text):
        storage = _open(text)
        with slot.locked():
            copy = Copy(slot, storage, progress, watcher)
            for _ in range(ROUNDS):
                astir = copy.update(_listing(storage, text, everything=everything))
                if not astir:
                    break
            else:
                message = f"{shown(text)}: {astir} changes each time that it is read"
                raise UnreadableError(message, hint="Try again when its writer rests.")
        make_room(slot.cache, copy.fetched)
    remember(slot.copy, slot.address)
    return slot.copy


def slot_of(uri: str, cache: str | os.PathLike[str] | None = None) -> Slot:
    """Return the slot of an address in a cache; None: in the user's own."""
    return Slot(cache_folder(cache), uri.rstrip("/"), last_name(uri))


def objects_below(uri: str, *, limit: int) -> list[Entry]:
    """Return the objects below an address, from one listing: names, sizes, versions and times, without content.

    Args:
        uri: The address.
        limit: Maximum number of objects; a few more may be returned.

    Raises:
        UnreadableError: If they cannot be listed.
        UsageError: If such addresses are not supported.
    """
    with naming(uri):
        return _objects(_open(uri).entries(limit))


def _of_file(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise UnreadableError(f"{shown(uri)} is not on this machine", hint="Copy it here, and name its path.")
    return Path(unquote(parts.path))


def _open(uri: str) -> Storage:
    if serves(uri):
        with suppress(ImportError):
            return FastS3(uri)
    return AnyStorage(uri)


def _listing(storage: Storage, uri: str, *, everything: bool) -> Listing:
    """Return the objects to fetch: the address itself, or the objects below it.

    Raises:
        FileNotFoundError: If there is no object.
        UnreadableError: If there are too many objects, or one that cannot be a file.
    """
    named_like_a_file = not uri.endswith("/") and "." in last_name(uri)
    alone = storage.root_entry() if named_like_a_file else None
    objects = [] if alone else _objects(storage.entries(MAX_OBJECTS + 1))
    if not objects and not named_like_a_file:
        alone = storage.root_entry()
    if not objects and alone is None:
        raise FileNotFoundError(uri)
    if len(objects) > MAX_OBJECTS:
        message = f"{shown(uri)} holds more than {MAX_OBJECTS:,} objects"
        raise UnreadableError(message, hint="Name one run, or a folder of fewer objects, below it.")
    _check_names(objects, uri)
    entries = [alone] if alone else [entry for entry in objects if everything or not _is_weights(entry)]
    total, limit = sum(entry.size or 0 for entry in entries), cache_limit()
    if total > limit:
        message = f"{shown(uri)} holds {total / GIGABYTE:,.1f} GB, more than the cache takes"
        raise UnreadableError(message, hint=f"Name one run in it, or set {LIMIT}={2 * total / GIGABYTE:.0f}.")
    return Listing(entries, is_file=alone is not None)


def _objects(entries: list[Entry]) -> list[Entry]:
    """Return the objects without markers of empty folders, which some programs write, and some clients list as files."""
    folders = {entry.name[: slash.start()] for entry in entries for slash in re.finditer("/", entry.name)}
    return [
        entry for entry in entries if entry.name.rstrip("/") == entry.name != "" and (entry.size or entry.name not in folders)
    ]


def _check_names(entries: list[Entry], uri: str) -> None:
    """Raise `UnreadableError` for an object whose name cannot be a file below a folder."""
    names = {entry.name for entry in entries}
    for entry in entries:
        parts = entry.name.split("/")
        odd = any(part in ("", ".", "..") or "\0" in part or "\\" in part or len(os.fsencode(part)) > 255 for part in parts)
        both = any("/".join(parts[:count]) in names for count in range(1, len(parts)))
        if odd or both:
            why = "which cannot be a file below a folder" if odd else "and another one of which that would be a folder"
            message = f"{shown(uri)} holds an object {entry.name!r}, {why}"
            raise UnreadableError(message, hint="Rename or delete it, or name an address below which it does not lie.")


def _is_weights(entry: Entry) -> bool:
    return entry.name.lower().endswith(WEIGHTS) and (entry.size or 0) >= WEIGHTS_BYTES
