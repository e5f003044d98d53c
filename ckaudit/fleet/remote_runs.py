"""Runs at addresses: found by object names from one listing, and identified by sizes and versions."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from posixpath import basename, dirname
from typing import NamedTuple

from ckaudit.contract.io.files import CHECKPOINT_NAME, MANIFEST_NAME, SCALARS_PATTERN
from ckaudit.errors import UsageError
from ckaudit.fleet.dataset import is_of_dataset
from ckaudit.fleet.fingerprint import State
from ckaudit.importers.log_search import could_be_log
from ckaudit.remote.location import has_wildcard, shown
from ckaudit.remote.mirror import objects_below
from ckaudit.remote.storage import Entry

MAX_OBJECTS = 5_000_000
"""Maximum number of objects listed below one address."""


class RemoteRuns(NamedTuple):
    """The runs found at addresses.

    Attributes:
        states: Sources of runs by address, with their state.
        passed: Names of objects that are no run.
        notes: What was skipped, a sentence each.
    """

    states: dict[str, State]
    passed: list[str]
    notes: list[str]


def find_remote(pattern: str, audit: bytes) -> RemoteRuns:
    """Return every source of runs that a pattern matches.

    A folder with our files is a run. Any other match of the pattern is one source if it contains a possible log.

    Args:
        pattern: An address, with `*`, `?`, `[...]` and `**` for any number of folders.
        audit: Other inputs of a verdict, from `audit_key`.

    Raises:
        UnreadableError: If the storage cannot be listed.
        UsageError: If a pattern matches nothing.
    """
    base, wanted = _split(pattern)
    entries = [entry for entry in objects_below(base, limit=MAX_OBJECTS) if not is_of_dataset(entry.name)]
    if not entries and not wanted:
        return RemoteRuns({pattern: State()}, [], [])  # an object, or nothing: the audit will report it
    sources = _sources(entries, wanted.split("/") if wanted else ["*"])
    if wanted and not sources:
        raise UsageError(f"{shown(pattern)!r} matches nothing", hint="quote it, and look whether it is spelled as the storage is")
    runs = {name: of_name for name, of_name in sources.items() if any(map(_may_tell, of_name))}
    passed = [shown(f"{base}/{name}") for name in sources if name not in runs]
    states = {f"{base}/{name}".rstrip("/"): _state(f"{base}/{name}", of_name, audit) for name, of_name in runs.items()}
    return RemoteRuns(states, passed, _beyond(base, len(entries)))


def _beyond(base: str, count: int) -> list[str]:
    note = f"only {MAX_OBJECTS:,} objects of {shown(base)} were looked at: name what lies below it"
    return [note] if count >= MAX_OBJECTS else []


def _split(pattern: str) -> tuple[str, str]:
    """Return the address before the first part with a wildcard, and the rest."""
    scheme, _, rest = pattern.partition("://")
    parts = rest.split("/")
    first = next((number for number, part in enumerate(parts) if has_wildcard(part)), len(parts))
    if first == 0:
        raise UsageError(f"{shown(pattern)!r} names no bucket", hint="write it like 's3://bucket/runs/*'")
    return f"{scheme}://{'/'.join(parts[:first])}".rstrip("/"), "/".join(parts[first:]).rstrip("/")


def _sources(entries: Sequence[Entry], wanted: Sequence[str]) -> dict[str, list[Entry]]:
    """Return the objects of each source by name, in the order of names."""
    runs = {dirname(entry.name) for entry in entries if _is_ours(basename(entry.name))}
    sources: dict[str, list[Entry]] = {}
    for entry in sorted(entries):
        parts = entry.name.split("/")
        length = min(_lengths(parts, wanted), default=0)
        if length:
            of_run = next((folder for folder in _folders(entry.name) if folder in runs), None)
            sources.setdefault("/".join(parts[:length]) if of_run is None else of_run, []).append(entry)
    return sources


def _lengths(parts: Sequence[str], wanted: Sequence[str], at: int = 0) -> Iterator[int]:
    """Yield how many leading parts of a name a pattern can match."""
    if not wanted:
        yield at
        return
    if wanted[0] == "**":
        ends = range(at, len(parts) + 1) if wanted[1:] else range(at + 1, len(parts) + 1)
        for end in ends:
            yield from _lengths(parts, wanted[1:], end)
    elif at < len(parts) and fnmatchcase(parts[at], wanted[0]):
        yield from _lengths(parts, wanted[1:], at + 1)


def _folders(name: str) -> Iterator[str]:
    """Yield the folders of an object, the innermost first."""
    while name:
        name = dirname(name)
        yield name


def _is_ours(name: str) -> bool:
    return name == MANIFEST_NAME or bool(SCALARS_PATTERN.match(name) or CHECKPOINT_NAME.match(name))


def _may_tell(entry: Entry) -> bool:
    return _is_ours(basename(entry.name)) or could_be_log(basename(entry.name))


def _state(name: str, entries: Iterable[Entry], audit: bytes) -> State:
    digest, newest = hashlib.blake2b(audit, digest_size=16), 0.0
    digest.update(name.encode(errors="surrogatepass"))
    for entry in entries:
        digest.update(f"{len(entry.name)}:{entry.name} {entry.size} {entry.version}\n".encode(errors="surrogatepass"))
        newest = max(newest, entry.time)
        if not entry.version:  # the server does not report changes
            return State("", newest)
    return State(digest.hexdigest(), newest)
