"""Finds the runs that a user names by patterns, folders and files, in the same way as `ckaudit triage`.

Links to folders are not followed below a named path, so that cycles of links are harmless; a link that a pattern matches itself
is followed. A file that no importer recognises is skipped and counted if a pattern matched it.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

from ckaudit.audit.load_run import is_ours
from ckaudit.contract.io.files import MANIFEST_NAME
from ckaudit.contract.io.folder import holds_run, is_own_name, shown_name
from ckaudit.errors import CkauditError, UsageError
from ckaudit.fleet.dataset import is_of_dataset
from ckaudit.fleet.fingerprint import State
from ckaudit.importers import is_known, is_one_log, places_below
from ckaudit.importers.log_search import MAX_SHOWN
from ckaudit.remote.location import has_wildcard, is_uri, scheme_of, shown

MAX_ENTRIES = 5_000_000
"""Maximum number of files and folders scanned below one folder."""

MAX_TRIED = 8
"""Subfolders tested first, before every importer is tried on their parent."""


class FoundRuns(Struct):
    """The runs that were found.

    Attributes:
        paths: Each source of runs by its name for the user, in the order of the patterns, then of names.
        notes: What was skipped, a sentence each.
        passed: Names of files that are no run.
        states: States of sources at addresses, by name, from their listing.
        matches: Names of sources at addresses that a pattern found; whether a run is in them shows only when they are fetched.
    """

    paths: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    states: dict[str, State] = field(default_factory=dict)
    matches: set[str] = field(default_factory=set)


def find_runs(patterns: Sequence[str], audit: bytes = b"") -> FoundRuns:
    """Return every source of runs that patterns name.

    Args:
        patterns: Paths or addresses, or patterns of them with `*`, `?`, `[...]` and `**` for any number of folders.
        audit: Other inputs of a verdict, from `audit_key`; part of the states of addresses.

    Raises:
        UsageError: If a pattern matches nothing.
        UnreadableError: If a storage cannot be listed.
    """
    found_runs, seen = FoundRuns(), set[str]()
    for pattern in map(_without_scheme, patterns):
        if is_uri(pattern):
            _add_remote(pattern, audit, found_runs)
            continue
        for path, named in _matches(pattern):
            for source in _sources(path, found_runs, named=named):
                real = os.path.realpath(source)
                if real not in seen:
                    seen.add(real)
                    found_runs.paths[shown_name(str(source))] = str(source)
    return found_runs


def skipped_files_note(names: Sequence[str]) -> list[str]:
    """Return the note on files that are no run, if there are any.

    >>> skipped_files_note([]), skipped_files_note(["a.txt", "b.txt"])
    ([], ['passed over, because no run is known in it: a.txt and 1 more'])
    """
    more = f" and {len(names) - 1:,} more" if names[1:] else ""
    return [f"passed over, because no run is known in it: {names[0][:MAX_SHOWN]}{more}"] if names else []


def holds_any_run(path: Path) -> bool:
    """Tell whether a run or a log in a known format is at a path or below it, as the search on a disk finds it."""
    if not path.is_dir():
        return _holds_log(path)
    try:
        return _is_source(path) or any(not is_of_dataset(str(place)) for place in places_below(path, [], max_entries=MAX_ENTRIES))
    except (CkauditError, OSError):
        return True  # its audit reports the fault


def _without_scheme(pattern: str) -> str:
    """Return the path of a file address, other text unchanged."""
    return unquote(urlsplit(pattern).path) if scheme_of(pattern) == "file" else pattern


def _add_remote(pattern: str, audit: bytes, found_runs: FoundRuns) -> None:
    from ckaudit.fleet.remote_runs import find_remote

    remote = find_remote(pattern, audit)
    for address, state in remote.states.items():
        found_runs.paths[shown(address)] = address
        found_runs.states[shown(address)] = state
        if address != pattern.rstrip("/"):
            found_runs.matches.add(shown(address))
    found_runs.passed += remote.passed
    found_runs.notes += remote.notes


def _matches(pattern: str) -> Iterator[tuple[Path, bool]]:
    """Yield the paths that a pattern matches, and whether the user named them literally."""
    path = Path(pattern)
    if os.path.lexists(path) or not has_wildcard(pattern):
        yield path, True
        return
    parts = path.parts
    start = next(index for index, part in enumerate(parts) if has_wildcard(part))
    base, wanted = Path(*parts[:start]), parts[start:]
    try:
        matches = [match for match in base.glob(str(Path(*wanted))) if _is_meant(match, base, wanted)]
    except (ValueError, NotImplementedError, OSError) as error:
        raise UsageError(f"{pattern!r} is no pattern: {error}", hint="write it like 'runs/*' or 'runs/**/seed-?'") from None
    if not matches:
        raise UsageError(
            f"{pattern!r} matches nothing", hint="quote the pattern, and look whether it is spelled as the folders are"
        )
    yield from ((match, False) for match in sorted(set(matches)))


def _is_meant(match: Path, base: Path, wanted: Sequence[str]) -> bool:
    """Tell whether a match has no hidden part, unless the pattern asks for hidden ones."""
    if any(part.startswith(".") for part in wanted):
        return True
    return not any(part.startswith(".") for part in match.relative_to(base).parts)


def _sources(path: Path, found_runs: FoundRuns, *, named: bool) -> Iterator[Path]:
    """Yield the sources of runs at a path: the path itself, or those below it."""
    if not path.is_dir():
        if named or is_own_name(path.name) or path.name == MANIFEST_NAME:
            # a pattern that goes too deep matches the files of a run one by one: they are one run
            yield path if named else path.parent
        elif is_of_dataset(str(path)):
            return
        elif _holds_log(path):
            yield path
        else:
            found_runs.passed.append(shown_name(str(path)))
        return
    try:
        if _is_source(path):
            yield path
            return
        places = list(places_below(path, found_runs.notes, max_entries=MAX_ENTRIES))
        below = [place for place in places if not is_of_dataset(str(place))]
    except (CkauditError, OSError):
        places = below = [path]  # its audit reports the fault
    if not below and not named and not places:
        found_runs.passed.append(shown_name(str(path)))
    yield from below or ([path] if named and not places else [])


def _is_source(folder: Path) -> bool:
    """Tell whether a whole folder is one source: a run folder, or the output of one program."""
    if holds_run(folder) or (folder / MANIFEST_NAME).exists():
        return True
    return not _begins_with_run(folder) and is_one_log(folder)


def _begins_with_run(folder: Path) -> bool:
    """Tell whether one of the first subfolders is a run of ours: then the folder is not the output of another program."""
    with os.scandir(folder) as listing:
        inside = islice((entry for entry in listing if entry.is_dir(follow_symlinks=False)), MAX_TRIED)
        return any(holds_run(Path(entry.path)) for entry in inside)


def _holds_log(path: Path) -> bool:
    try:
        return path.is_file() and (is_ours(path) or is_known(path))
    except (CkauditError, OSError):
        return False
