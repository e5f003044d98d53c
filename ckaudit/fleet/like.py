"""The healthy siblings that a user names: patterns in, and out a gate that holds a run against them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ckaudit.contract.schema.import_options import NOTHING_SAID, Choice
from ckaudit.diff.siblings.yardstick import open_siblings, with_siblings
from ckaudit.errors import UsageError
from ckaudit.fleet.find_runs import find_runs
from ckaudit.policy.gate import Gate
from ckaudit.remote.location import is_uri
from ckaudit.remote.mirror import local_copy
from ckaudit.run.read import Progress
from ckaudit.run.run import Run

MAX_SIBLINGS = 20
"""More narrow a band hardly further, and each is read and audited whole."""


def gate_like(
    gate: Gate,
    like: str | Path | Run | Sequence[str | Path | Run],
    *,
    runs: Sequence[Path | Run] = (),
    choice: Choice = NOTHING_SAID,
    progress: Progress | None = None,
) -> Gate:
    """Return a gate that holds runs against healthy siblings too; where none is named, the same gate.

    Args:
        gate: Policy and baseline.
        like: Patterns, paths, or runs in memory; or one of them.
        runs: What is judged, and no sibling of its own.
        choice: What a foreign log does not say itself.
        progress: Called with files done and files in all, sibling by sibling.

    Raises:
        UsageError: Where a pattern matches nothing, or nothing but what is judged.
    """
    if isinstance(like, str | Path | Run):
        like = [like]
    if not like:
        return gate
    in_memory = [run for run in like if isinstance(run, Run)]
    patterns = [str(pattern) for pattern in like if not isinstance(pattern, Run)]
    found = find_runs(patterns) if patterns else None
    judged = {path.resolve() for path in runs if isinstance(path, Path)}
    named = [local_copy(path) for path in _worth_a_copy(list(found.paths.values()) if found else [])]
    paths = [path for path in named if path.resolve() not in judged]
    all_siblings: list[Path | Run] = [*(run for run in in_memory if run not in runs), *paths]
    if not all_siblings:
        raise UsageError("--like names no run but the one that is judged", hint="name healthy runs: --like 'good/*'")
    siblings = _newest(all_siblings)
    notes = [*(found.notes if found else ())]
    count = len(all_siblings) + (len(found.paths) if found else 0) - len(named)
    if len(siblings) < count:
        notes.append(f"of {count:,} siblings the newest {MAX_SIBLINGS} are looked at")
    return with_siblings(gate, open_siblings(siblings, choice=choice, progress=progress), notes=notes)


def _worth_a_copy(paths: Sequence[str]) -> Iterator[str]:
    """Yield what is on this machine, and of addresses the last by name, which are the newest where names have dates."""
    addresses = {path for path in paths if is_uri(path)}
    last = set(sorted(addresses)[-MAX_SIBLINGS:])
    yield from (path for path in paths if path not in addresses or path in last)


def _newest(siblings: Sequence[Path | Run]) -> list[Path | Run]:
    """Return so many as are looked at, in their order: runs in memory, then the files and folders that were written last."""
    by_age = sorted(siblings, key=lambda one: float("-inf") if isinstance(one, Run) else -one.stat().st_mtime)
    newest = by_age[:MAX_SIBLINGS]
    return [one for one in siblings if one in newest]
