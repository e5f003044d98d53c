"""Healthy siblings that a user names: turns patterns into criteria that compare a run, or each of many, with them."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ckaudit.audit.load_run import is_ours
from ckaudit.contract.io.files import MANIFEST_NAME
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.diff.siblings.comparable import configuration_key
from ckaudit.diff.siblings.yardstick import open_siblings, with_siblings
from ckaudit.errors import CkauditError, UsageError
from ckaudit.fleet.find_runs import find_runs, skipped_files_note
from ckaudit.fleet.source import RunSource
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.remote.location import is_uri
from ckaudit.remote.mirror import local_copy
from ckaudit.run.read import Progress, read_manifest
from ckaudit.run.run import Run

MAX_SIBLINGS = 20
"""More siblings hardly narrow a band, and each is read and audited completely."""

MAX_EACH = 5
"""Siblings per run of a fleet: three give most of the effect of many, and all are kept in memory."""

_criteria: tuple[bytes, AcceptanceCriteria] = (b"", OPEN)
"""The siblings that this process used last: a fleet's runs of one configuration are audited consecutively."""


def criteria_like(
    criteria: AcceptanceCriteria,
    like: str | Path | Run | Sequence[str | Path | Run],
    *,
    runs: Sequence[Path | Run] = (),
    import_options: ImportOptions = NO_IMPORT_OPTIONS,
    progress: Progress | None = None,
) -> AcceptanceCriteria:
    """Return criteria that also compare runs with healthy siblings; unchanged if none is named.

    Args:
        criteria: Policy and baseline.
        like: Patterns, paths, or runs in memory; or one of them.
        runs: The judged runs, which are not their own siblings.
        import_options: Facts that a foreign log lacks.
        progress: Called with the number of read files and of all files, for each sibling.

    Raises:
        UsageError: If a pattern matches nothing, or only judged runs.
    """
    if isinstance(like, str | Path | Run):
        like = [like]
    if not like:
        return criteria
    in_memory = [run for run in like if isinstance(run, Run)]
    patterns = [str(pattern) for pattern in like if not isinstance(pattern, Run)]
    found_runs = find_runs(patterns) if patterns else None
    judged = {path.resolve() for path in runs if isinstance(path, Path)}
    named = [local_copy(path) for path in _worth_a_copy(list(found_runs.paths.values()) if found_runs else [])]
    if missing := [path for path in named if not path.exists()]:
        raise UsageError(f"--like: {missing[0]} does not exist", hint="name healthy runs: --like 'good/*'")
    paths = [path for path in named if path.resolve() not in judged]
    all_siblings: list[Path | Run] = [*(run for run in in_memory if run not in runs), *paths]
    if not all_siblings:
        raise UsageError("--like names no run but the one that is judged", hint="name healthy runs: --like 'good/*'")
    siblings = _newest(all_siblings)
    notes = [*found_runs.notes, *skipped_files_note(found_runs.passed)] if found_runs else []
    count = len(all_siblings) + (len(found_runs.paths) if found_runs else 0) - len(named)
    if len(siblings) < count:
        notes.append(f"of {count:,} siblings the newest {MAX_SIBLINGS} are looked at")
    return with_siblings(criteria, open_siblings(siblings, import_options=import_options, progress=progress), notes=notes)


def _worth_a_copy(paths: Sequence[str]) -> Iterator[str]:
    """Yield local paths, and of addresses the last by name, which are the newest if names contain dates."""
    addresses = {path for path in paths if is_uri(path)}
    last = set(sorted(addresses)[-MAX_SIBLINGS:])
    yield from (path for path in paths if path not in addresses or path in last)


def _newest(siblings: Sequence[Path | Run]) -> list[Path | Run]:
    """Return at most `MAX_SIBLINGS` siblings, in their order: runs in memory, then the newest files and folders."""
    by_age = sorted(siblings, key=lambda one: float("-inf") if isinstance(one, Run) else -one.stat().st_mtime)
    newest = by_age[:MAX_SIBLINGS]
    return [one for one in siblings if one in newest]


def with_own_siblings(sources: Iterable[RunSource], healthy: Sequence[RunSource]) -> list[RunSource]:
    """Return each source with the newest healthy runs of its configuration, grouped by configuration.

    The configuration comes from run.json. A source without one is compared with healthy runs without one. The state of the
    siblings is part of the fingerprint, because the verdict depends on it.

    Args:
        sources: The runs of a fleet.
        healthy: The runs of `--like`, in any order.
    """
    groups: dict[bytes, list[RunSource]] = {}
    for sibling in sorted(healthy, key=lambda sibling: -sibling.written):
        groups.setdefault(_configuration(sibling), []).append(sibling)
    held = []
    for source in sources:
        group = [sibling for sibling in groups.get(_configuration(source), ()) if sibling.path != source.path][:MAX_EACH]
        like = tuple(sorted((sibling.path, sibling.fingerprint) for sibling in group))
        state = msgspec.json.encode([source.fingerprint, like])
        fingerprint = hashlib.blake2b(state, digest_size=16).hexdigest() if group else source.fingerprint
        held.append(replace(source, like=like, fingerprint=fingerprint if source.fingerprint else ""))
    return sorted(held, key=lambda source: source.like)


def _configuration(source: RunSource) -> bytes:
    """Return the key of a source's configuration; empty for logs of other programs and unreadable sources."""
    with suppress(CkauditError, OSError):
        if is_uri(source.path):  # the rest is fetched by the audit
            return configuration_key(read_manifest(local_copy(f"{source.path.rstrip('/')}/{MANIFEST_NAME}")))
        path = Path(source.path)
        return configuration_key(read_manifest(path)) if path.is_dir() and is_ours(path) else b""
    return b""


def gate_with_siblings(source: RunSource) -> AcceptanceCriteria:
    """Return the criteria of a source, which also compare it with its healthy siblings if it has some."""
    global _criteria  # noqa: PLW0603  siblings are opened once a process, not once a run
    if not source.like:
        return source.criteria
    key = msgspec.json.encode([source.like, source.criteria.policy, source.import_options])
    if _criteria[0] != key:
        _criteria = (b"", OPEN)  # release the earlier siblings first
        siblings = open_siblings([_here(path) for path, _ in source.like], import_options=source.import_options)
        _criteria = (key, with_siblings(source.criteria, siblings))
    return _criteria[1]


def _here(path: str) -> Path:
    """Return the local path of a sibling; if an address cannot be fetched now, opening the path reports it."""
    with suppress(CkauditError):
        return local_copy(path)
    return Path(path)
