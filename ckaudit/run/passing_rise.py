"""How a curve loses part of what it had gained, stays so for a while, and comes back."""

import numpy as np
from msgspec import Struct

from ckaudit.run.medians import medians_of_three
from ckaudit.run.rises import CLEAR_DEVIATIONS, sustained_rise
from ckaudit.run.series import Floats


class PassingRise(Struct, frozen=True):
    """A rise that is over.

    Attributes:
        first: First row that stands above half of the way from the level before to the peak.
        last: Last such row.
        peak: Row of the highest value between the two.
        low: Level before, the lowest median of three points so far.
        lost: Share of the fall from the highest of the first three points to that level that the rise took back.
    """

    first: int
    last: int
    peak: int
    low: float
    lost: float


def passing_rise(values: Floats, *, min_points: int = 3, min_share: float = 0.1) -> PassingRise | None:
    """Return the largest rise of a curve that came back by more than half, None where there is none.

    A curve is held against its own lowest level so far, in medians of three points; the rise is the stretch around the largest
    excess over it that stays above half of that excess. It counts where the curve up to the end of that stretch ends
    above its lowest level for good (`sustained_rise`), by `CLEAR_DEVIATIONS`: what anybody would have said who looked then.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_points: Least points of the stretch; a single evaluation or batch makes no level.
        min_share: Least rise over the level before.
    """
    if len(values) < 2 * min_points:
        return None
    smooth = medians_of_three(values)
    lowest = np.minimum.accumulate(smooth)
    excess = smooth - lowest
    peak = int(np.argmax(excess))
    low, half = float(lowest[peak]), float(lowest[peak] + excess[peak] / 2)
    below = np.flatnonzero(smooth <= half)
    before, after = below[below < peak], below[below > peak]
    if not len(before) or not len(after) or smooth[-1] > half:
        return None
    first, last = int(before[-1]) + 1, int(after[0]) - 1
    gained = float(values[:3].max()) - low
    if last - first + 1 < min_points or gained <= 0:
        return None
    if sustained_rise(values[: last + 1], min_share=min_share, min_deviations=CLEAR_DEVIATIONS) is None:
        return None
    top = first + int(np.argmax(values[first : last + 1]))
    return PassingRise(first=first, last=last, peak=top, low=low, lost=float(excess[peak]) / gained)
