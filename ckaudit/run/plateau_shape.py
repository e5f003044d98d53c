"""Loss curves that stand still, told by their shape alone: nobody says how large the vocabulary is."""

from typing import Literal

import numpy as np
from msgspec import Struct

from ckaudit.run.falls import never_falls
from ckaudit.run.medians import median, medians_of_parts
from ckaudit.run.robust import MAD_TO_SIGMA, begins_with_its_run, rank_trend
from ckaudit.run.series import Floats, Series, Steps

BLOCKS = 24
"""A curve is judged by the medians of so many parts of equal length: a spike moves none, and eight hours show in one."""


WHOLE = 120
"""Points of a log whose shape can be told part by part; fewer are judged from their first third to their last."""

Kind = Literal["flat", "lost", "apart", "rests"]


class Standstill(Struct, frozen=True):
    """What stands still: how, since which row, at what level, against which limit, and how to say it."""

    kind: Kind
    row: int
    level: float
    limit: float
    message: str


def is_whole(steps: Steps, *, start: float = 0.05, min_points: int = WHOLE) -> bool:
    """Tell whether a log starts with its run, in the first `start` of its steps, and has points enough for a shape."""
    return len(steps) >= min_points and int(steps[0]) <= max(1.0, start * float(steps[-1]))


def standstill(
    steps: Steps,
    losses: Floats,
    val: Series | None,
    *,
    fell: float = 0.01,
    apart: float = 0.25,
    rest: float = 0.03,
    high: float = 0.5,
    min_fall: float = 1.0,
) -> Standstill | None:
    """Return how a curve stands still, None where it does not or cannot be judged.

    Args:
        steps: Shape (T,).
        losses: Finite, shape (T,).
        val: The held-out loss.
        fell: A curve that ends less than this share below its first ten points has learnt nothing.
        apart: Share of the first loss by which the held-out loss must move while the training loss stays.
        rest: Share of the first fall within which a resting curve stays from the first quarter on.
        high: Below this share of the first loss a curve may rest: models that know the order of tokens come to a third of it,
            and public runs of small models rest there for most of their steps.
        min_fall: Nats by which a resting curve must have fallen: so much the frequencies of tokens give; a fine-tuning falls
        less.
    """
    if not is_whole(steps):
        return _resting_in_few(losses, high, min_fall) if 8 <= len(losses) < WHOLE and begins_with_its_run(steps) else None
    parts = np.array_split(np.arange(len(losses)), BLOCKS)
    middle = medians_of_parts(losses, len(parts))
    began, ends = median(losses[:10]), float(middle[-1])
    noise = MAD_TO_SIGMA * median(np.abs(np.diff(losses))) / np.sqrt(2)
    if began <= 5 * noise:
        return None
    if ends > (1 - fell) * began:
        return _back(parts, middle, began, (1 - fell) * began)
    if min(ends, float(middle.min())) > 0.9 * began and (moved := _moved(val)) > apart * began:
        return Standstill(
            "apart",
            0,
            ends,
            began,
            "the loss hardly falls, from {limit:.4g} to {value:.4g}, " + f"while the held-out loss moves by {moved:.3g}",
        )
    return _resting(parts, middle, began, 1.25 * noise / np.sqrt(len(parts[0])), rest, high, min_fall)


def _back(parts: list[np.ndarray], middle: Floats, began: float, bound: float) -> Standstill:
    """Return a curve that ends as high as it began, since when it never left that height again."""
    lower = np.flatnonzero(middle <= bound)
    row = int(parts[lower[-1] + 1][0]) if len(lower) and middle.min() < 0.9 * began else 0
    had_learnt = float(middle.min()) < 0.9 * began
    kind: Kind = "lost" if had_learnt else "flat"
    told = "all that was learnt is lost since step {first}" if had_learnt else "nothing is learnt"
    return Standstill(kind, row, float(middle[-1]), began, "the loss ends at {value:.4g}, having begun at {limit:.4g}: " + told)


def _moved(val: Series | None) -> float:
    """Return how far the held-out loss went between any two evaluations."""
    return float(np.ptp(val.values[val.finite])) if val is not None and val.finite.any() else 0.0


def _resting_in_few(losses: Floats, high: float, min_fall: float) -> Standstill | None:
    """Return a short curve that falls at once and then never again: after its first quarter by 3 % at the most.

    Args:
        losses: Finite, shape (T,).
        high: See standstill.
        min_fall: See standstill.
    """
    began, first = float(losses[0]), max(2, len(losses) // 4)
    rest = never_falls(losses[first:], max_fall=0.03, max_noise=0.03)
    if rest is None or rest.last < high * began or began - rest.last < min_fall or rank_trend(losses[first:]) < -1:
        return None
    return Standstill(
        "rests",
        first,
        rest.last,
        rest.first,
        "the loss came to {value:.4g} at once, and no lower from step {first} to step {last}, "
        f"in the {len(losses)} points that there are",
    )


def _resting(
    parts: list[np.ndarray], middle: Floats, began: float, error: float, rest: float, high: float, min_fall: float
) -> Standstill | None:
    """Return a curve that stays where it was after a quarter of the run, without any trend."""
    quarter = BLOCKS // 4
    level = median(middle[quarter:])
    fall = began - level
    if level < high * began or fall < min_fall or 4 * error > rest * fall:
        return None
    within = np.abs(middle - level) <= rest * fall
    trend = abs(median(middle[quarter : 2 * quarter]) - median(middle[-quarter:]))
    if not within[quarter:].all() or trend > 3 * np.sqrt(2 / quarter) * error:
        return None
    higher = np.flatnonzero(middle - level > max(2 * error, rest * fall / 4))
    first = min(int(higher[-1]) + 1, BLOCKS - 1) if len(higher) else 0
    return Standstill(
        "rests",
        int(parts[first][0]),
        level,
        level + rest * fall,
        "the loss came to {value:.4g} by step {first}, and no lower to step {last}",
    )
