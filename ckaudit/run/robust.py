"""What a curve of any length tells: its noise, a rise that stays, a fall that never comes, a jump that is back.

All of it holds for any number of points from three on, for any unit and any sign. A long curve is first reduced to the medians of
equal parts, so that every length is judged alike. Noise is taken from second differences, in which neither a trend nor a single
jump is seen. Where few points tell little of it, what logged losses usually scatter stands in (`PRIOR_NOISE`), as a prior does:
the size of a change then carries the verdict, and `noise_is_known` says so.
"""

import math
from bisect import insort

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.run.series import Floats, Steps

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation times this is the standard deviation of normal values (Rousseeuw & Croux 1993)."""

PARTS = 48
"""A curve is reduced to the medians of at most so many parts."""

BLOCKS = 24
"""The same of a curve that is judged by its whole course, in which single parts count less."""

MEDIAN_COST = 1.2533
"""The standard error of a median over that of a mean, of normal values: the square root of pi / 2."""

ENOUGH_FOR_NOISE = 8
"""Of fewer points even pure noise often falls and then rises without a step back: so do 13 % of all orders of 5, 0.3 % of 8."""

PRIOR_NOISE = 0.02
"""Noise of a logged loss as a share of its level: between the 1 and 10 % that public logs have, nearer to the lower end."""

PRIOR_POINTS = 2.0
"""How many second differences that prior weighs as much as."""

TRIM = 0.75
"""Share of the second differences that count, the smallest: the others belong to spikes and to the bend of a steep start."""

TRIMMED_TO_SIGMA = 1.65
"""Root mean square of the smallest three quarters of normal values times this is their standard deviation."""

ZOOM = 8
"""The last part of a long curve is looked at once more by itself: an eighth, in which 48 parts are 400 of the whole."""

ZOOM_DEVIATIONS = 5.0
"""Neighbouring points of a long log share batches and rates, and scatter together: a rise of so few must stand out further."""


FEW = 3.0
"""Few points tell their noise badly: what stands out of it must do so further, by this over their number (Student's t)."""


class Rise(Struct, frozen=True):
    """A level at the end that is higher than one before, and stays so.

    Attributes:
        lowest: Row of the middle of the level before.
        onset: First row of the higher level.
        low: Level before.
        end: Level of the end.
        deviations: The rise over its standard error.
        noise_is_known: Whether there are points enough to know the noise; if not, the size of the rise speaks.
    """

    lowest: int
    onset: int
    low: float
    end: float
    deviations: float
    noise_is_known: bool

    @property
    def share(self) -> float:
        """The rise over the level before, infinite where that is not positive."""
        return (self.end - self.low) / self.low if self.low > 0 else math.inf


def difference_noise(values: Floats) -> float:
    r"""Return the standard deviation of the noise of a curve.

    $$\hat\sigma = 1.4826 \operatorname{median} |y_{i-1} - 2 y_i + y_{i+1}| / \sqrt 6$$

    A straight line has none, and a jump touches two of the differences only. NaN for fewer than three points.

    Args:
        values: Finite, shape (N,).

    >>> difference_noise(np.arange(10.0))
    0.0
    """
    if len(values) < 3:
        return math.nan
    return MAD_TO_SIGMA * float(np.median(np.abs(np.diff(values, 2)))) / math.sqrt(6)


def log_noise(values: Floats) -> float:
    """Return the noise of a positive curve as a share of its level, 0 of one that is not positive.

    The noise of a loss shrinks with the loss, so that the calm end of a curve says little of how far its start scatters.

    Args:
        values: Finite, shape (N,), three at least.
    """
    return difference_noise(np.log(values)) if values.min() > 0 else 0.0


def parts_of(values: Floats, parts: int = PARTS) -> tuple[Steps, Floats]:
    """Return the first row of each of at most `parts` equal parts of a curve, and their medians.

    Args:
        values: Finite, in the order of steps, shape (N,).
        parts: Most parts.
    """
    if len(values) <= parts:
        return np.arange(len(values)), np.asarray(values, np.float64)
    width, longer = divmod(len(values), parts)  # the first parts are one point longer
    cut = longer * (width + 1)
    levels = [np.median(values[:cut].reshape(-1, width + 1), axis=1)] if longer else []
    levels.append(np.median(values[cut:].reshape(-1, width), axis=1))
    starts = np.concatenate([np.arange(longer) * (width + 1), cut + np.arange(parts - longer) * width])
    return starts, np.concatenate(levels)


def noise_around(differences: Floats, level: float, *, prior: float = PRIOR_NOISE, weight: float = PRIOR_POINTS) -> float:
    """Return the noise that second differences and a prior tell together.

    Args:
        differences: Second differences over the square root of 6, in any order; neighbours share points, so each counts half.
        level: What the prior is a share of.
        prior: Noise as a share of the level before anything was seen.
        weight: How much that counts.
    """
    known = np.sort(np.abs(differences))[: max(1, int(TRIM * len(differences)))]
    count = len(differences) / 2
    if count + weight == 0:
        return 0.0
    seen = TRIMMED_TO_SIGMA**2 * float(np.mean(np.square(known))) if len(known) else 0.0
    return math.sqrt((weight * (prior * level) ** 2 + count * seen) / (weight + count))


def sustained_rise(
    values: Floats, *, min_share: float = 0.1, min_deviations: float = 3.5, min_share_alone: float = 0.5,
    prior: float = PRIOR_NOISE,
) -> Rise | None:  # fmt: skip
    """Return how a curve ends above its own lowest level, None where it does not.

    Of all places where its points may be split in two, the one where the second part stands highest above the lowest level that
    the first part ended at, over the noise: the test of a mean against isotonic means (Robertson, Wright & Dykstra 1988). The
    mean of the second part counts for no more than twice its middle and twice its last three points, for no single point makes
    a level.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_share: Rise over the lowest level; of a curve that is not positive throughout, half as much again as its range before.
        min_deviations: Rise over its standard error; pure noise reaches 3.5 at the best of its splits in one log of a hundred.
        min_share_alone: The same share of a log of three or four points, whose end may be a single one.
        prior: Noise as a share of the level, where few points tell little of it.
    """
    if len(values) < 3:
        return None
    with np.errstate(all="ignore"):
        rise = _rise_of_parts(values, min_share, min_deviations, min_share_alone, prior)
        if rise is None and len(values) > ZOOM * PARTS:
            first = len(values) - len(values) // ZOOM
            late = _rise_of_parts(values[first:], min_share, ZOOM_DEVIATIONS, min_share_alone, prior)
            if late and late.end - late.low > 1.3 * _taken_back(values[: first + late.onset], len(values) - first - late.onset):
                rise = replace(late, lowest=first + late.lowest, onset=first + late.onset)
    return rise


def falls_on(after: Floats, rise: Rise, *, given_back: float = 0.2) -> bool:
    """Tell whether a curve falls steadily again from where it jumped to, by `given_back` of its rise at least.

    Args:
        after: The curve from the onset of its rise on, finite, shape (N,).
        rise: How it rose.
        given_back: Share of the way from the level before to the highest level after.
    """
    if len(after) < 5:
        return False
    _, levels = parts_of(after, PARTS // 4)
    top = int(np.argmax(levels))
    peak, end = float(levels[top]), float(np.median(levels[-2:]))
    return top <= len(levels) // 3 and rank_trend(levels) < -2 and peak - end >= given_back * (peak - rise.low)


def looks_like_a_score(values: Floats, *, min_points: int = 5) -> bool:
    """Tell whether a curve rises from its first level on and levels off, as an accuracy, a percentage or a reward does.

    It lies between 0 and 1, or between 0 and 100 and ends above 50, or begins below zero; its second half gains less than its
    first, no single step makes most of its rise, and hardly any step goes back.

    Args:
        values: Finite, in the order of steps, shape (N,).
        min_points: Fewer have no shape.
    """
    if len(values) < min_points:
        return False
    _, levels = parts_of(values, PARTS // 4)
    rise, middle = float(levels[-1] - levels[0]), len(levels) // 2
    is_bounded = values.min() >= 0 and (values.max() <= 1 or 50 < levels[-1] <= values.max() <= 100)
    if not (is_bounded or levels[0] < 0 < levels[-1]) or rise <= 0.2 * float(np.abs(levels).max()):
        return False
    gains = np.diff(levels)
    levels_off = levels[middle] - levels[0] > 0.6 * rise
    return bool(levels_off and gains.max() < 0.8 * rise and -gains[gains < 0].sum() < 0.2 * rise)


def _rise_of_parts(values: Floats, min_share: float, min_deviations: float, min_share_alone: float, prior: float) -> Rise | None:
    starts, levels = parts_of(values)
    scale = float(np.abs(levels).max())
    if scale == 0 or not math.isfinite(scale) or (len(values) < ENOUGH_FOR_NOISE and levels.min() <= 0 < levels.max()):
        return None
    alone = len(values) < 5 or len(values) >= 3 * PARTS  # a part of three points and more is no single point
    min_share = min_share_alone if len(values) < 5 else min_share
    levels = levels / scale
    best = max(_splits(levels, min_share, alone, prior), default=None)
    if best is None or best[0] < min_deviations * (1 + FEW / len(levels)):
        return None
    deviations, split, width, low, end = best
    noise_is_known = len(values) >= ENOUGH_FOR_NOISE
    lowest, onset = split - (width + 1) // 2, split - 1
    if not noise_is_known:  # any point may count, so the rise begins right after the lowest
        lowest = onset = int(np.argmin(levels[:split]))
        low = float(levels[lowest])
    elif len(below := np.flatnonzero(levels <= low + (end - low) / 4)):
        onset = int(below[-1])
    return Rise(
        lowest=int(starts[lowest]), onset=_first_above(values, starts, onset, scale * (low + (end - low) / 4)), low=scale * low,
        end=scale * end, deviations=deviations, noise_is_known=noise_is_known,
    )  # fmt: skip


def _first_above(values: Floats, starts: Steps, part: int, limit: float) -> int:
    """Return the row after the last one of a part that is not above a limit, the part after it where it has one row."""
    end = int(starts[part + 1]) if part + 1 < len(starts) else len(values)
    below = np.flatnonzero(values[starts[part] : end] <= limit)
    return min(int(starts[part]) + (int(below[-1]) if len(below) else 0) + 1, len(values) - 1)


def _splits(levels: Floats, min_share: float, alone: bool, prior: float) -> list[tuple[float, int, int, float, float]]:
    """Return deviations, split, points of the level before it, that level and the end, of the splits that rise the most.

    Args:
        levels: Shape (P,).
        min_share: See sustained_rise.
        alone: Whether there may be a second part of one level.
        prior: See sustained_rise.
    """
    count = len(levels)
    splits = np.arange(1, count if alone else count - 1)
    sums = np.concatenate([[0.0], np.cumsum(levels)])
    lengths = splits[:, None] - np.arange(count)  # of the level from each point up to each split
    means = np.where(lengths > 0, (sums[splits, None] - sums[:count]) / np.maximum(lengths, 1), np.inf)
    begins = means.argmin(axis=1)
    low, widths = means[np.arange(len(splits)), begins], splits - begins
    middles = _middles_of_ends(levels)[splits]
    lasts = np.array([np.median(levels[max(split, count - 3) :]) for split in splits[-2:].tolist()])
    lasts = np.concatenate([np.full(max(0, len(splits) - 2), np.median(levels[-3:])), lasts])
    means = (sums[-1] - sums[splits]) / (count - splits)
    rises = np.minimum(means - low, 2 * (np.minimum(middles, lasts) - low))
    scores = rises / np.sqrt(1 / widths + 1 / (count - splits))
    bends, found = np.diff(levels, 2) / math.sqrt(6), []
    for place in np.argsort(-scores)[:8].tolist():
        split, level, end = int(splits[place]), float(low[place]), _end(levels[splits[place] :])
        enough = min_share * level if levels.min() > 0 else 1.5 * float(np.ptp(levels[:split]))
        if rises[place] <= 0 or end - level <= enough or rises[place] <= 1.3 * _taken_back(levels[:split], count - split):
            continue
        noise = noise_around(_bends_of_noise(bends, split), abs(level), prior=prior)
        lowest = float(low[: place + 1].min())
        found.append((float(scores[place]) / noise if noise > 0 else math.inf, split, int(widths[place]), lowest, end))
    return found


def _bends_of_noise(bends: Floats, split: int) -> Floats:
    """Return the second differences that noise makes: not the first ones, as long as they bend upwards like a decay.

    Args:
        bends: Second differences, shape (P - 2,).
        split: First point of the second part.
    """
    before = bends[: max(0, split - 2)]
    noisy = before[np.logical_or.accumulate(before <= 0)]
    return np.concatenate([noisy, bends[split:]])


def _middles_of_ends(levels: Floats) -> Floats:
    """Return the median of the points from each one on; of two the lower, for neither makes a level by itself."""
    seen: list[float] = []
    middles = np.empty(len(levels))
    for row in range(len(levels) - 1, -1, -1):
        insort(seen, float(levels[row]))
        half = len(seen) // 2
        middles[row] = seen[0] if len(seen) <= 2 else (seen[half] + seen[-half - 1]) / 2
    return middles


def _taken_back(before: Floats, width: int) -> float:
    """Return the largest rise of a level that a curve took back before: noise of neighbours that go together comes to that.

    Args:
        before: Shape (N,).
        width: Points of the level that is asked about; a third of `before` at most.
    """
    width = min(width, len(before) // 3)
    if width == 0:
        return 0.0
    sums = np.cumsum(np.concatenate([[0.0], before]))
    means = (sums[width:] - sums[:-width]) / width
    lowest = np.minimum.accumulate(means[:-width])
    return max(0.0, float((means[width:] - lowest).max()))


def _end(after: Floats) -> float:
    """Return the level at the end of a part that may climb: the mean of two points, else the median of its last third."""
    return float(after.mean() if len(after) < 3 else np.median(after[-max(3, len(after) // 3) :]))


def rank_trend(values: Floats) -> float:
    """Return how steadily a curve rises, in standard deviations of pure noise; below zero it falls (Mann 1945, Kendall 1975).

    >>> round(rank_trend(np.array([5.0, 4.0, 3.0, 2.0, 1.0])), 2)
    -2.2
    """
    count = len(values)
    first, second = np.triu_indices(count, 1)
    score = float(np.sign(values[second] - values[first]).sum())
    return float(np.sign(score)) * max(0.0, abs(score) - 1) / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def begins_with_its_run(steps: Steps) -> bool:
    """Tell whether a log begins where its run did: within its own interval, or the first twentieth of its steps.

    >>> begins_with_its_run(np.array([50, 100, 150])), begins_with_its_run(np.array([6900, 6910, 6920]))
    (True, False)
    """
    if len(steps) < 2:
        return False
    return bool(steps[0] <= max(1.5 * float(np.median(np.diff(steps))), 0.05 * float(steps[-1])))
