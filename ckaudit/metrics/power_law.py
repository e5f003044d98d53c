"""A power law with an offset through noisy points, by least absolute deviations, and how sure it is."""

from itertools import pairwise

import numpy as np
from msgspec import Struct

from ckaudit.run.medians import median
from ckaudit.run.series import Floats


class PowerLaw(Struct, frozen=True):
    """The curve E + A * x ** -alpha.

    Attributes:
        offset: E, what no amount of x brings the curve below; never negative.
        scale: A, never negative.
        exponent: alpha.
        offset_error: Standard error of E; NaN where it was not asked for, or the fit stands at a bound of E or alpha.
        exponent_error: Standard error of alpha; NaN where it was not asked for, or the fit stands at a bound of A or alpha.
    """

    offset: float
    scale: float
    exponent: float
    offset_error: float = np.nan
    exponent_error: float = np.nan

    def at(self, x: Floats) -> Floats:
        """Return the curve at x > 0, shape as given."""
        return np.asarray(self.offset + self.scale * x**-self.exponent)


def fit_power_law(
    x: Floats, y: Floats, *, groups: int = 0, bins: int = 192, lowest: float = 0.02, highest: float = 3.0
) -> PowerLaw:
    r"""Fit a power law with an offset.

    $$\min_{E \ge 0,\, A \ge 0,\, \alpha} \sum_i |y_i - E - A x_i^{-\alpha}|$$

    Absolute deviations leave spikes without weight. For a given exponent the rest is linear and is solved by reweighted
    least squares; the exponent is searched on a grid that closes in. Of many points the medians of `bins` stretches of
    log x are fitted. Errors are those of the jackknife: stretches of the record are left out in turn, so that noise that
    lasts is not taken for many observations (Künsch 1989). A fit held at a bound has none: its scatter is too small.

    Args:
        x: Positive and finite, shape (N,), at least three different ones.
        y: Finite, shape (N,).
        groups: Stretches left out in turn; 0: no errors.
        bins: Most points that are fitted.
        lowest: Smallest exponent; published ones of language models lie between 0.05 and 0.5.
        highest: Largest exponent.
    """
    x, y = _thinned(x, y, bins)
    middle = float(np.exp(np.mean(np.log(x))))
    kept = np.ones((1 + groups, len(x)))
    for number, part in enumerate(np.array_split(np.arange(len(x)), groups) if groups else []):
        kept[1 + number, part] = 0.0
    offset, scale, exponent = _search(np.log(x / middle), y, kept, np.log(lowest), np.log(highest))  # all (1 + groups,)
    held = not lowest * 1.01 < exponent[0] < highest / 1.01  # the search closes in on a bound without reaching it
    errors = [
        _jackknife(each[1:]) if groups and not held and bound[0] > 0 else np.nan
        for each, bound in ((offset, offset), (exponent, scale))
    ]
    return PowerLaw(float(offset[0]), float(scale[0] * middle ** exponent[0]), float(exponent[0]), *errors)


def _search(log_x: Floats, y: Floats, kept: Floats, low: float, high: float) -> tuple[Floats, Floats, Floats]:
    """Close in on the exponent of each set of `kept` points, shape (G, N); return offsets, scales and exponents, (G,)."""
    sets = np.arange(len(kept))
    lows, highs = np.full(len(kept), low), np.full(len(kept), high)
    for count, rounds in (17, 4), *[(9, 4)] * 5, *[(9, 12)] * 2:  # a rough cost tells which stretch is best
        grid = lows[:, None] + (highs - lows)[:, None] * np.linspace(0.0, 1.0, count)  # (G, K), log of the exponent
        offset, scale, cost = _linear(np.exp(-np.exp(grid)[:, :, None] * log_x), y, kept[:, None, :], rounds=rounds)
        best = np.argmin(cost, axis=1)
        lows, highs = grid[sets, np.maximum(best - 1, 0)], grid[sets, np.minimum(best + 1, count - 1)]
    return offset[sets, best], scale[sets, best], np.exp(grid[sets, best])


def _linear(basis: Floats, y: Floats, kept: Floats, *, rounds: int) -> tuple[Floats, Floats, Floats]:
    """Solve y = E + A * basis for each (G, K) by least absolute deviations; return E, A and the cost, all (G, K)."""
    least = 1e-9 * max(float(np.abs(y - median(y)).mean()), 1e-12)
    weights = np.broadcast_to(kept, basis.shape)
    for _ in range(rounds):
        total = weights.sum(axis=-1)
        mean_z, mean_y = (weights * basis).sum(axis=-1) / total, (weights * y).sum(axis=-1) / total
        apart = basis - mean_z[..., None]
        spread = (weights * apart * apart).sum(axis=-1)
        scale = np.maximum((weights * apart * y).sum(axis=-1) / np.maximum(spread, 1e-300), 0.0)
        offset = mean_y - scale * mean_z
        through = (weights * basis * y).sum(axis=-1) / (weights * basis * basis).sum(axis=-1)
        scale, offset = np.where(offset < 0, np.maximum(through, 0.0), scale), np.maximum(offset, 0.0)
        off = np.abs(y - offset[..., None] - scale[..., None] * basis)
        weights = kept / np.maximum(off, least)
    return offset, scale, (kept * off).sum(axis=-1)


def _jackknife(estimates: Floats) -> float:
    count = len(estimates)
    return float(np.sqrt((count - 1) / count * np.square(estimates - estimates.mean()).sum()))


def _thinned(x: Floats, y: Floats, bins: int) -> tuple[Floats, Floats]:
    """Return medians over stretches of equal length in log x, shape (<= bins,); few points as they are."""
    if len(x) <= bins:
        return x, y
    if (x[1:] < x[:-1]).any():
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
    marks = [0, *np.searchsorted(x, np.geomspace(x[0], x[-1], bins + 1)[1:-1]).tolist(), len(x)]
    parts = [(start, end) for start, end in pairwise(marks) if end > start]
    return x[[start + (end - start) // 2 for start, end in parts]], np.array([median(y[slice(*part)]) for part in parts])
