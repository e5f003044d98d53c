"""The course of the learning rate over a run: since when it is constant, how it fell, and its change at each resume."""

import numpy as np
from msgspec import UNSET, Struct

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.run.run_facts import planned_rate, resume_steps
from ckaudit.run.series import Floats, Series, Steps


class RateFall(Struct, frozen=True):
    """The fall of a rate from its highest value to its lowest: first step at the lowest, both values, and each drop."""

    step: int
    lowest: float
    highest: float
    drops: tuple[float, ...]

    @property
    def largest_drop(self) -> float:
        """The largest single drop, 0 where it never fell."""
        return max(self.drops, default=0.0)

    @property
    def is_smooth(self) -> bool:
        """Whether each drop is below a fifth of the highest rate, or there are three drops and more and the last is below it."""
        few = 0.2 * self.highest
        return self.largest_drop < few or (self.drops[-1] < few and sum(drop > 0 for drop in self.drops) >= 3)


class ResumeRates(Struct, frozen=True):
    """The rate before and after a resume, and the ratio of the two with the planned change taken off."""

    step: int
    before: float
    after: float
    change: float


def known_rate(rate: Series | None) -> tuple[Steps, Floats]:
    """Return steps and values of the largest recorded rate of all groups, shapes (T,)."""
    if rate is None:
        return np.empty(0, np.int64), np.empty(0)
    largest = np.where(rate.finite, rate.values, -np.inf).max(axis=1, initial=-np.inf)
    rows = np.isfinite(largest)
    return rate.steps[rows], largest[rows]


def constant_since(steps: Steps, values: Floats, *, within: float = 1e-6) -> int | None:
    """Return the step since which a rate is constant to the end, None where it changed in its last twenty points."""
    if len(values) < 20:
        return None
    moved = np.flatnonzero(np.abs(values - values[-1]) > within * abs(values[-1]))
    first = int(moved[-1]) + 1 if len(moved) else 0
    return int(steps[first]) if len(values) - first >= 20 else None


def rate_fall(steps: Steps, values: Floats, *, near: float = 0.01) -> RateFall | None:
    """Return how a rate fell from its highest value to the lowest after it, None where it did not fall.

    Args:
        steps: Shape (T,).
        values: Shape (T,).
        near: The lowest value counts as reached within this share of the highest.
    """
    if not len(values) or values.max() <= 0:
        return None
    top = len(values) - 1 - int(np.argmax(values[::-1]))
    after = values[top:]
    if len(after) < 2 or after.min() >= values[top]:
        return None
    reached = int(np.argmax(after <= after.min() + near * values[top]))
    drops = -np.diff(after[: reached + 1])
    return RateFall(int(steps[top + reached]), float(after.min()), float(values[top]), tuple(drops.tolist()))


def changes_at_resumes(steps: Steps, values: Floats, facts: Manifest | None) -> list[ResumeRates]:
    """Return the rate on the two sides of each resume; where a plan is known, the planned change is taken off.

    The first step after a resume may still have the rate that was restored with the optimizer, before the scheduler sets its own:
    of the first two steps the one whose rate differs more counts.
    """
    changes = []
    for seam in resume_steps(facts):
        before, after = np.flatnonzero(steps <= seam), np.flatnonzero(steps > seam)[:2]
        if not len(before) or not len(after) or values[before[-1]] <= 0 or values[after].min() <= 0:
            continue
        farthest = after[int(np.argmax(np.abs(np.log(values[after] / values[before[-1]]))))]
        sides = np.array([before[-1], farthest])
        plan = planned_rate(facts, steps[sides])
        planned = plan[1] / plan[0] if plan is not None and (plan > 0).all() else 1.0
        low, high = values[sides].tolist()
        changes.append(ResumeRates(seam, low, high, high / low / float(planned)))
    return changes


def planned_end(facts: Manifest | None) -> int | None:
    """Return how many steps are planned, None where run.json does not say."""
    return None if facts is None or facts.planned_steps is UNSET else facts.planned_steps


def warmup_of(facts: Manifest | None) -> int | None:
    """Return how many steps of warm-up are planned, None where run.json does not say."""
    return None if facts is None or facts.warmup_steps is UNSET else facts.warmup_steps
