"""The healthy siblings that a user names: patterns in, and out a gate that holds a run against them."""

from collections.abc import Sequence
from pathlib import Path

from ckaudit.contract.schema.import_options import NOTHING_SAID, Choice
from ckaudit.diff.siblings.yardstick import open_siblings, with_siblings
from ckaudit.errors import UsageError
from ckaudit.fleet.find_runs import find_runs
from ckaudit.policy.gate import Gate
from ckaudit.remote.mirror import local_copy
from ckaudit.run.read import Progress
from ckaudit.run.run import Run

MAX_SIBLINGS = 20
"""More narrow a band hardly further, and each is read and audited whole."""


def gate_like(
    gate: Gate,
    like: Sequence[str | Path | Run],
    *,
    runs: Sequence[Path | Run] = (),
    choice: Choice = NOTHING_SAID,
    progress: Progress | None = None,
) -> Gate:
    """Return a gate that holds runs against healthy siblings too; where none is named, the same gate.

    Args:
        gate: Policy and baseline.
        like: Patterns, paths, or runs in memory.
        runs: What is judged, and no sibling of its own.
        choice: What a foreign log does not say itself.
        progress: Called with files done and files in all, sibling by sibling.

    Raises:
        UsageError: Where a pattern matches nothing, or nothing but what is judged.
    """
    if not like:
        return gate
    in_memory = [run for run in like if isinstance(run, Run)]
    patterns = [str(pattern) for pattern in like if not isinstance(pattern, Run)]
    found = find_runs(patterns) if patterns else None
    judged = {path.resolve() for path in runs if isinstance(path, Path)}
    named = [local_copy(path) for path in (found.paths.values() if found else ())]
    paths = [path for path in named if path.resolve() not in judged]
    all_siblings: list[Path | Run] = [*(run for run in in_memory if run not in runs), *paths]
    if not all_siblings:
        raise UsageError("--like names no run but the one that is judged", hint="name healthy runs: --like 'good/*'")
    siblings = _newest(all_siblings)
    notes = [*(found.notes if found else ())]
    if len(siblings) < len(all_siblings):
        notes.append(f"of {len(all_siblings):,} siblings the newest {MAX_SIBLINGS} are looked at")
    return with_siblings(gate, open_siblings(siblings, choice=choice, progress=progress), notes=notes)


def _newest(siblings: Sequence[Path | Run]) -> list[Path | Run]:
    """Return so many as are looked at, in their order: runs in memory, then the files and folders that were written last."""
    by_age = sorted(siblings, key=lambda one: float("-inf") if isinstance(one, Run) else -one.stat().st_mtime)
    newest = by_age[:MAX_SIBLINGS]
    return [one for one in siblings if one in newest]
