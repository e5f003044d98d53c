"""Identifies the state of a run without reading it: names, sizes, times and modes of its files."""

import hashlib
import os
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ckaudit import __version__
from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.fleet.dataset import is_of_dataset
from ckaudit.fleet.source import portable
from ckaudit.plugins import packages
from ckaudit.policy.acceptance import AcceptanceCriteria

MAX_FILES = 1_000_000
"""Maximum number of files of one source that count."""


class State(NamedTuple):
    """A state of a source.

    Attributes:
        fingerprint: Equal for equal states; empty: not known.
        written: Unix time of its newest file; 0: it has none.
    """

    fingerprint: str = ""
    written: float = 0.0


def state_of(path: str, audit: bytes, *, deep: bool = True) -> State:
    """Return the current state of a local folder or file.

    Args:
        path: The source.
        audit: Other inputs of its verdict, from `audit_key`.
        deep: Whether subfolders belong to it.
    """
    digest, newest = hashlib.blake2b(audit, digest_size=16), 0
    digest.update(os.fsencode(path))
    try:
        status = os.stat(path)  # noqa: PTH116  a million files: a Path each would cost more than asking the system
        if not os.path.isdir(path):  # noqa: PTH112
            digest.update(_line(b"", status))
            return State(digest.hexdigest(), status.st_mtime)
        for number, (name, entry) in enumerate(_files(path, deep=deep)):
            if number == MAX_FILES:
                break
            digest.update(_line(os.fsencode(name), entry))
            newest = max(newest, entry.st_mtime_ns)
    except OSError:
        return State()
    return State(digest.hexdigest(), newest / 1e9)


def audit_key(criteria: AcceptanceCriteria, import_options: ImportOptions) -> bytes:
    """Return the inputs of a verdict besides the run: auditor, plugins, policy, and import options.

    The date is included if an ignore of the policy ends on a date.
    """
    policy = criteria.policy
    clauses = [] if policy is None else [policy.base, *policy.profiles.values()]
    ends = any(ignore.until is not None for part in clauses for ignore in part.ignore)
    return msgspec.json.encode([__version__, packages(), policy, criteria.today if ends else None, portable(import_options)])


def _line(name: bytes, status: os.stat_result) -> bytes:
    return b"%d:%b %d %d %o\n" % (len(name), name, status.st_size, status.st_mtime_ns, status.st_mode)


def _files(folder: str, *, deep: bool) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every file below a folder, in the order of names; links to folders are not followed."""
    folders = [("", folder)]
    while folders:
        prefix, place = folders.pop()
        with os.scandir(place) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if deep:
                    folders.append((f"{prefix}{entry.name}/", entry.path))
                continue
            if is_of_dataset(f"{prefix}{entry.name}"):  # written by the audit itself
                continue
            try:
                yield prefix + entry.name, entry.stat()
            except OSError:  # deleted meanwhile, or a broken link: a different state than with the file
                continue
