"""The course of a series in one word: steady, rising, falling, running away, collapsing, coming back, or up and down."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from ckaudit.metrics.trend import theil_sen
from ckaudit.run.medians import median
from ckaudit.run.series import Floats

Word = Literal["steady", "rising", "falling", "runaway", "collapse", "recovery", "oscillating", "too_few"]


class Course(Struct, frozen=True):
    """How a series went.

    Attributes:
        word: The verdict.
        start: Level at the start: the median of the first third.
        end: Level at the end: the median of the last third.
        ratio: End over start; NaN where the start is 0.
        p: Probability of so steady a rise or fall by chance (Mann-Kendall).
    """

    word: Word
    start: float
    end: float
    ratio: float
    p: float


def course(
    values: Sequence[float],
    *,
    min_change: float = 0.1,
    runaway_ratio: float = 4.0,
    lowest: float = 0.25,
    given_back: float = 0.25,
    came_back: float = 0.5,
) -> Course:
    """Say how a series went. Points that are not finite are left out; where they lie in time does not matter.

    Args:
        values: In order of time, shape (T,).
        min_change: Change between the ends that counts, as a share of the larger: the dashboards' stable series move by less
            than 8 %, their drop by 16 %.
        runaway_ratio: A rise to that many times is a runaway: the dashboards' logits grow nearly ten times, their drill of the
            activations half as much again, which is to be watched.
        lowest: A fall to less than that share is a collapse; for a rate of faults, such as overflows, that is the cure.
        given_back: Share of the whole way that went against the trend, from which on it is no trend but an oscillation.
        came_back: Share of a rise that was given back, from which on the series recovered.
    """
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    if len(known) < 2:
        return Course("too_few", np.nan, np.nan, np.nan, 1.0)
    third = max(1, len(known) // 3)
    start, end, top = median(known[:third]), median(known[-third:]), float(known.max())
    trend = theil_sen(np.arange(len(known), dtype=float), known)
    ratio = end / start if start else np.nan
    size = max(abs(start), abs(end))
    bump = (
        top - max(start, end) > min_change * abs(top)
        and top - end > came_back * (top - start)
        and end > start - min_change * size
    )
    word: Word
    if bump and _goes_up_then_down(known):
        word = "recovery"
    elif abs(end - start) <= min_change * size:
        word = "steady"
    elif len(known) > 3 and _against(known) > given_back:
        word = "oscillating"
    elif end > start:
        word = "runaway" if start <= 0 or ratio > runaway_ratio else "rising"
    else:
        word = "collapse" if abs(end) < lowest * abs(start) else "falling"
    return Course(word, start, end, ratio, trend.p)


def _against(values: Floats) -> float:
    """Return the share of the whole way that goes against the direction from the first to the last point."""
    moves = np.diff(values)
    whole = float(np.abs(moves).sum())
    return float(np.abs(moves[np.sign(moves) == -np.sign(values[-1] - values[0])]).sum()) / whole if whole else 0.0


def _goes_up_then_down(values: Floats, *, max_contrary_share: float = 0.25) -> bool:
    """Tell whether a series rises to its top and falls from there, but for a small share of the way."""
    top = int(np.argmax(values))
    parts = [part for part in (values[: top + 1], values[top:]) if len(part) > 1]
    return 0 < top < len(values) - 1 and all(_against(part) <= max_contrary_share for part in parts)
