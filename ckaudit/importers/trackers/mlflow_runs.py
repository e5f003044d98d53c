"""What MLflow's stores have in common, of files or of tables: names of runs, how they ended, and what counts no updates."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ckaudit.importers.names import short, writable
from ckaudit.importers.trackers.points import Series
from ckaudit.importers.trackers.tracked import Tracked

ENDED = {"RUNNING": "is still running, or was cut off", "FAILED": "failed", "KILLED": "was killed"}
"""How a run ended where it did not finish."""

NUMBERED = {"1": "RUNNING", "4": "FAILED", "5": "KILLED"}
"""The same by the number that a file store writes."""

_SYSTEM = "system/"
_LONGEST = 200


def described(name: str, identity: str, series: Mapping[str, Series]) -> Tracked:
    """Return a run by what is in its store; the machine's own measurements have a step of their own and are left out."""
    kept = {each: points for each, points in series.items() if not each.startswith(_SYSTEM)}
    run = Tracked(writable((name or identity)[:_LONGEST]), kept)
    if len(kept) < len(series):
        run.notes.append(f"{len(series) - len(kept):,} series of the machine count samples, no updates, and were left out")
    run.notes.append(f"its id is {short(identity)}")
    return run


def named(runs: Sequence[Tracked]) -> None:
    """Give runs of one name a number; a single run needs none."""
    counts = Counter(run.name for run in runs)
    seen: Counter[str] = Counter()
    for run in runs:
        seen[run.name] += 1
        if counts[run.name] > 1:
            run.name = f"{run.name} ({seen[run.name]})"
