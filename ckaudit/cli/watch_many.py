"""Many runs for `ckaudit watch`: patterns and addresses, listed repeatedly."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from ckaudit.errors import UsageError
from ckaudit.remote.location import has_wildcard, is_uri, scheme_of, shown

if TYPE_CHECKING:
    from ckaudit.contract.schema.import_options import ImportOptions
    from ckaudit.fleet.find_runs import FoundRuns
    from ckaudit.policy.acceptance import AcceptanceCriteria
    from ckaudit.watch.many_runs import Place, Sources


def are_many(runs: Sequence[str]) -> bool:
    """Tell whether any word is an address, or a pattern that is no file."""
    return any((is_uri(run) and scheme_of(run) != "file") or _is_pattern(run) for run in runs)


def sources_of(
    runs: Sequence[str], *, criteria: "AcceptanceCriteria", import_options: "ImportOptions", patience: float, every: float
) -> "Sources":
    """Return the sources to watch for words of the command line.

    Args:
        runs: Paths, addresses and patterns of either.
        criteria: Policy and baseline.
        import_options: Facts that logs lack.
        patience: Seconds to wait until a pattern matches anything.
        every: Seconds between two listings.

    Raises:
        UsageError: If a pattern matches nothing even then.
        UnreadableError: If a storage cannot be listed.
    """
    from ckaudit.fleet.find_runs import FoundRuns, find_runs
    from ckaudit.fleet.fingerprint import audit_key
    from ckaudit.watch.many_runs import Sources

    key = audit_key(criteria, import_options)
    first = [_first(runs, key, patience, every)]
    named = {shown(run).rstrip("/") for run in runs if not _is_pattern(run)}

    def find() -> "Mapping[str, Place]":
        found_runs = first.pop() if first else FoundRuns()
        if not found_runs.paths:
            with suppress(UsageError):  # the files that a pattern matched have vanished
                found_runs = find_runs(runs, key)
        return {name: _place(name, path, found_runs, key) for name, path in found_runs.paths.items()}

    def fetch(path: str) -> Path:
        from ckaudit.remote.mirror import local_copy

        return local_copy(path)

    is_open = any(map(_is_pattern, runs)) or not named.issuperset(first[0].paths)
    return Sources(shown=" ".join(map(shown, runs)), find=find, fetch=fetch, named=named, is_open=is_open)


def _first(runs: Sequence[str], key: bytes, patience: float, every: float) -> "FoundRuns":
    """Return the existing runs, as soon as there are any."""
    from ckaudit.fleet.find_runs import find_runs

    end = monotonic() + patience
    while True:
        try:
            return find_runs(runs, key)
        except UsageError:
            if monotonic() >= end:
                raise
        sleep(min(every, max(0.0, end - monotonic())))


def _place(name: str, path: str, found_runs: "FoundRuns", key: bytes) -> "Place":
    from ckaudit.fleet.fingerprint import state_of
    from ckaudit.watch.many_runs import Place

    state = found_runs.states[name] if name in found_runs.states else state_of(path, key)
    return Place(path, state.fingerprint)


def _is_pattern(run: str) -> bool:
    return has_wildcard(run) and (is_uri(run) or not Path(run).exists())
