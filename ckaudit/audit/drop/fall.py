"""When a benchmark fell: the largest fall of a recorded score that is more than its noise."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.audit.drop.result import Fall
from ckaudit.errors import UsageError
from ckaudit.metrics.evaluation import microbench_score
from ckaudit.metrics.spikes import SIGMA
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Steps

MOMENT = "name the step from which it is worse: --since STEP"


def fall_of(run: Run, *, noise: float = 7.0, least: float = 0.01) -> Fall | None:
    """Return the largest fall of any recorded score, None where none fell.

    A fall leads from the best score so far to the first that is lower by more than noise explains. Benchmarks have units of
    their own, so that falls are compared as shares of the score they start from.

    Args:
        run: The run.
        noise: How many standard deviations of a score's own noise are no fall; the best and the worst of 100 scores of
            pure normal noise are about 5 apart.
        least: A fall is at least this share of the score, however quiet the series.

    Raises:
        UsageError: Where no score was recorded twice.
    """
    scores = microbench_score(run)
    if scores.points < 2:
        many = "only one evaluation logged a microbench_score" if scores else "microbench_score is not recorded"
        raise UsageError(f"{many}, so that no fall can be found in it", hint=MOMENT)
    found: list[tuple[float, Fall]] = []
    for column, label in enumerate(scores.labels):
        known = scores.finite_in(column)
        found += _falls(label, scores.steps[known], scores.values[known, column], noise, least)
    if not found:
        return None
    found.sort(key=lambda each: -each[0])
    first = found[0][1]
    others = tuple(
        dict.fromkeys(each.benchmark for _, each in found[1:] if each.before < first.after and each.after > first.before)
    )
    return replace(first, others=tuple(name for name in others if name != first.benchmark))


def fall_since(run: Run, since: int) -> Fall:
    """Return the fall that a user saw at `since`; the step before it that anything was recorded of is the last good one.

    Raises:
        UsageError: Where the record has nothing on one of the two sides.
    """
    steps = _all_steps(run)
    earlier, later = steps[steps < since], steps[steps >= since]
    if not len(earlier) or not len(later):
        side, there = ("before", later) if len(later) else ("from", earlier)
        ends = f"It has steps {there[0]} to {there[-1]}." if len(there) else "It is empty."
        raise UsageError(f"--since {since}: the record has no step {side} it, so that nothing can be compared", hint=ends)
    return Fall(benchmark="", before=int(earlier[-1]), after=since)


def _falls(label: str, steps: Steps, scores: Floats, noise: float, least: float) -> Iterator[tuple[float, Fall]]:
    """Yield the largest fall of one benchmark, with its depth as a share of the score that it starts from."""
    if len(scores) < 2:
        return
    best = np.maximum.accumulate(scores)
    depth = best - scores
    limit = np.maximum(noise * _noise(scores), least * np.abs(best))
    beyond = np.flatnonzero(depth > limit)
    if not len(beyond):
        return
    deepest = int(beyond[np.argmax((depth / np.maximum(np.abs(best), 1e-12))[beyond])])
    top = int(np.flatnonzero(scores[: deepest + 1] == best[deepest])[-1])
    start = int(next(row for row in beyond if row > top))
    back = np.flatnonzero(scores[start:] >= scores[top])
    yield (
        float(depth[deepest] / max(abs(best[deepest]), 1e-12)),
        Fall(
            benchmark=label,
            before=int(steps[top]),
            after=int(steps[start]),
            high=float(scores[top]),
            low=float(scores[deepest]),
            limit=float(limit[start]),
            is_back=int(steps[start + back[0]]) if len(back) else None,
        ),
    )


def _noise(scores: Floats) -> float:
    """Return the standard deviation of noise around a smooth course, (N,): second differences have sqrt(6) times as much."""
    second = np.diff(scores, n=2)
    return SIGMA * median(np.abs(second - median(second))) / math.sqrt(6) if len(second) > 1 else 0.0


def _all_steps(run: Run) -> Steps:
    """Return every step that anything was recorded of, in order."""
    every = [run.checkpoint_steps, *(series.steps for series in run.scalars.values())]
    return np.unique(np.concatenate(every)) if every else np.empty(0, np.int64)
