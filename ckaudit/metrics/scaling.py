"""Scaling: the power law of the training loss, its floor, and departures from it."""

from itertools import pairwise

import numpy as np
from msgspec import UNSET, Struct

from ckaudit.metrics.loss import train_level, train_loss_raw
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import logged_as
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, Steps, at, empty, single

FIRST_FIT_POINTS = 50
"""Points that a first fit needs: three parameters, and a decade of steps after the warm-up."""

MIN_FIT_POINTS = 12
"""Points from which a shorter log gets one fit of all its points: four for each parameter. Its error shows how good it is."""


class PowerLaw(Struct, frozen=True):
    """The curve E + A * x ** -alpha.

    Attributes:
        offset: E, the floor of the curve for any x; never negative.
        scale: A, never negative.
        exponent: alpha.
        offset_error: Standard error of E; NaN if it was not asked for, or if the fit is at a bound of E or alpha.
        exponent_error: Standard error of alpha; NaN if it was not asked for, or if the fit is at a bound of A or alpha.
    """

    offset: float
    scale: float
    exponent: float
    offset_error: float = np.nan
    exponent_error: float = np.nan

    def at(self, x: Floats) -> Floats:
        """Return the curve at x > 0, shape as given."""
        return np.asarray(self.offset + self.scale * x**-self.exponent)


Fits = list[tuple[int, PowerLaw]]


@metric(
    unit="nats/token",
    reads=[train_loss_raw, "tokens_seen", "scaling_law_residual"],
    source="catalogue M17; Kaplan et al. 2020; Hoffmann et al. 2022",
)
def scaling_law_residual(run: Run, *, growth: float = 1.25) -> Series:
    r"""Distance of the training loss above the power law fitted to its own past.

    $$L_t - (E + A\,x_t^{-\alpha})$$

    Shape (T, 1): steps with a loss. The law is fitted again each time the number of points has grown by `growth`, to the points
    from a tenth of x on, and predicts the points after it; a residual is a prediction error. x is tokens seen if the log counts
    them, else steps. Not recorded for the first 50 points; NaN if the loss is not finite. A learning-rate decay takes the loss
    below its law. The trainer's logged value counts if there is no loss.

    Args:
        run: The run.
        growth: Growth factor of the number of points between fits.
    """
    loss = train_loss_raw(run)
    if not loss:
        return logged_as(run, "scaling_law_residual")
    steps, x, y = _points(run)
    fits = run.derived(("power laws", growth), lambda: _fits(x, y, growth, 0))
    values = np.full(len(y), np.nan)
    ends = [start for start, _ in fits[1:]] + [len(y)] * bool(fits)
    for (start, law), end in zip(fits, ends, strict=True):
        values[start:end] = y[start:end] - law.at(x[start:end])
    return single("scaling_law_residual", "nats/token", steps, values, np.arange(len(y)) >= (fits[0][0] if fits else len(y)))


@metric(
    unit="1",
    reads=[train_loss_raw, "tokens_seen"],
    source="Kaplan et al. 2020, equation 1.2; Hoffmann et al. 2022",
    worst="first",
)
def scaling_law_exponent(run: Run) -> Series:
    r"""Exponent of the power law of the training loss, and its standard error.

    $$L = E + A\,x^{-\alpha}$$

    Shape (F, 2): "exponent" and "error", at each doubling of the points from 50 on, or at the end of fewer. An error as large as
    the exponent shows that the log is too short. The error is not recorded if the fit is at the edge of its search range.
    """
    steps, laws = _laws(run)
    return _with_error("exponent", steps, [(law.exponent, law.exponent_error) for law in laws])


@metric(
    unit="nats/token", reads=[train_loss_raw, "tokens_seen"], source="playbook D2.4 and D5.3; Hoffmann et al. 2022", worst="first"
)
def entropy_floor(run: Run) -> Series:
    r"""Loss that further training would not go below, from the power law of the run, and its standard error.

    $$E \text{ of } L = E + A\,x^{-\alpha}$$

    Shape (F, 2): "floor" and "error", at each doubling of the points from 50 on, or at the end of fewer. It includes the entropy
    of the text and what a model of this size cannot learn. The error is not recorded if the floor is 0, its smallest value, or if
    the exponent is at the edge of its search range: the fit is held there, and its scatter means nothing.
    """
    steps, laws = _laws(run)
    return _with_error("floor", steps, [(law.offset, law.offset_error) for law in laws])


@metric(unit="nats/token", reads=[train_loss_raw, "train_loss_ema", "tokens_seen"], source="playbook D2.4 and D5.3")
def loss_above_floor(run: Run) -> Series:
    r"""Distance of the training loss from its floor.

    $$\bar L_t - E$$

    Shape (F, 1): at each doubling of the points from 50 on, or at the end of fewer; the loss is train_level.
    """
    steps, laws = _laws(run)
    return single("loss_above_floor", "nats/token", steps, train_level(run, steps) - np.array([law.offset for law in laws]))


@metric(
    unit="nats",
    reads=["data.token_histogram", "data.target_shift_match", "loss_function.targets", "loss_function.constant_value"],
    source="playbook PAN-1, n-gram baseline; Shannon 1948",
    memory=1,
)
def unigram_entropy(run: Run) -> Series:
    r"""Entropy of the tokens of a batch: the loss of a model that knows only how often each token occurs.

    $$-\sum_b p(b) \log p(b)$$

    Shape (C, 1). With buckets it is a lower bound. A loss above it after a few hundred steps shows that no order is learnt; a
    held-out loss above it while the training loss falls far below is a leak. Not recorded if attention is bidirectional or cross
    attention and the targets are not known to be the next tokens: then the counted tokens are not the targets. Not recorded
    either if ckaudit's recorder counted embedded tokens and no vocabulary is declared, because they may be a classifier's inputs;
    nor if it recorded neither how targets relate to inputs nor causal attention. If the loss ignores tokens, such as padding, the
    entropy is that of the targets that count.
    """
    counts = run.value("data.token_histogram")
    if _tells_other_tokens(run):
        return empty("unigram_entropy")
    known: Mask = np.any(counts.recorded, axis=1)
    whole = np.where(counts.recorded, counts.values, 0.0)
    with np.errstate(all="ignore"):
        shares = whole / whole.sum(axis=1, keepdims=True)
        terms = np.where(shares == 0, 0.0, shares * np.log(shares))
    entropy = np.where(known, -terms.sum(axis=1), np.nan)
    return single("unigram_entropy", "nats", counts.steps, _of_targets(run, counts.steps, whole.sum(axis=1), entropy), known)


def _of_targets(run: Run, steps: Steps, tokens: Floats, entropy: Floats, *, max_share: float = 0.9) -> Floats:
    """Return the entropy of tokens, shape (C,); that of the targets if the loss covers at most `max_share` of the tokens."""
    targets, guess = (run.value(f"loss_function.{name}") for name in ("targets", "constant_value"))
    if not targets or not guess:
        return entropy
    counted, of_targets = (at(series, steps).values[:, 0] for series in (targets, guess))
    is_less = (tokens > 0) & (np.nan_to_num(counted, nan=np.inf) <= max_share * tokens)
    return np.where(is_less, of_targets, entropy)


def _tells_other_tokens(run: Run, *, min_match: float = 0.5) -> bool:
    """Return whether the inputs are not what the model predicts, as with masked tokens or a translation.

    ckaudit's recorder records how targets relate to inputs if it receives both. If it does not, only causal attention decides.
    """
    facts = run.manifest
    is_ours = facts is not None and str(facts.source).startswith("ckaudit")
    attention = facts.attention if facts else UNSET
    ways = set() if attention is UNSET else {*attention.values()}
    match = run.value("data.target_shift_match")
    if is_ours and facts and (facts.vocabulary is UNSET or (ways != {"causal"} and not match.finite.any())):
        return True
    is_next = match.finite.any() and median(match.values[match.finite]) >= min_match
    return bool(ways & {"bidirectional", "cross"}) and not is_next


def _points(run: Run) -> tuple[Steps, Floats, Floats]:
    """Return steps, amounts of training and losses of the recorded points with a positive amount, all shape (T,)."""
    loss, tokens = train_loss_raw(run), run.scalar("tokens_seen")
    known = loss.recorded[:, 0] & (loss.steps > 0)
    steps, values = loss.steps[known], loss.values[known, 0]
    if not tokens:
        return steps, steps.astype(float), values
    amounts = at(tokens, steps).values[:, 0]
    counted = amounts > 0
    return steps[counted], amounts[counted], values[counted]


def _fits(x: Floats, y: Floats, growth: float, groups: int, *, first: int = FIRST_FIT_POINTS) -> Fits:
    """Return each fit with the number of points available; it uses those from a tenth of x on."""
    fits, count = [], first
    while count <= len(y):
        seen = slice(0, count)
        use = np.isfinite(y[seen]) & (x[seen] >= x[count - 1] / 10)
        if len(np.unique(x[seen][use])) > 2 * 3:
            fits.append((count, fit_power_law(x[seen][use], y[seen][use], groups=groups)))
        count = max(count + 1, int(count * growth))
    return fits


def _laws(run: Run, *, groups: int = 8) -> tuple[Steps, list[PowerLaw]]:
    """Return the laws at each doubling of the points, or at the end of a short log, and the steps of the fits."""
    if not train_loss_raw(run):
        return np.empty(0, np.int64), []
    steps, x, y = _points(run)
    first = FIRST_FIT_POINTS if len(y) >= FIRST_FIT_POINTS else max(MIN_FIT_POINTS, len(y))
    fits = run.derived("power laws with errors", lambda: _fits(x, y, 2.0, groups, first=first))
    return steps[[count - 1 for count, _ in fits]], [law for _, law in fits]


def _with_error(name: str, steps: Steps, rows: list[tuple[float, float]]) -> Series:
    values = np.array(rows, float).reshape(-1, 2)
    known = np.isfinite(values) | np.array([True, False])
    return Series(name, "1", steps, (name, "error"), values, known)


# Fit of a power law with an offset by least absolute deviations, with standard errors.
def fit_power_law(
    x: Floats, y: Floats, *, groups: int = 0, bins: int = 192, lowest: float = 0.02, highest: float = 3.0
) -> PowerLaw:
    r"""Fit a power law with an offset.

    $$\min_{E \ge 0,\, A \ge 0,\, \alpha} \sum_i |y_i - E - A x_i^{-\alpha}|$$

    Absolute deviations give spikes little weight. For a given exponent the problem is linear and is solved by reweighted least
    squares; the exponent is searched on successively finer grids. Many points are reduced to the medians of `bins` stretches of
    log x. Errors come from the jackknife: stretches of the log are left out in turn, so that correlated noise does not count as
    many observations (Künsch 1989). A fit at a bound has no error, because its scatter is too small.

    Args:
        x: Positive and finite, shape (N,), at least three different ones.
        y: Finite, shape (N,).
        groups: Number of stretches to leave out in turn; 0: no errors.
        bins: Largest number of fitted points.
        lowest: Smallest exponent; published ones of language models lie between 0.05 and 0.5.
        highest: Largest exponent.
    """
    x, y = _thinned(x, y, bins)
    middle = float(np.exp(np.mean(np.log(x))))
    weights = np.ones((1 + groups, len(x)))
    for number, part in enumerate(np.array_split(np.arange(len(x)), groups) if groups else []):
        weights[1 + number, part] = 0.0
    offset, scale, exponent = _search(np.log(x / middle), y, weights, np.log(lowest), np.log(highest))  # all (1 + groups,)
    held = not lowest * 1.01 < exponent[0] < highest / 1.01  # the search approaches a bound without reaching it
    errors = [
        _jackknife(estimates[1:]) if groups and not held and bound[0] > 0 else np.nan
        for estimates, bound in ((offset, offset), (exponent, scale))
    ]
    return PowerLaw(float(offset[0]), float(scale[0] * middle ** exponent[0]), float(exponent[0]), *errors)


def _search(log_x: Floats, y: Floats, weights: Floats, low: float, high: float) -> tuple[Floats, Floats, Floats]:
    """Search the exponent of each weighted set of points, shape (G, N); return offsets, scales and exponents, (G,)."""
    sets = np.arange(len(weights))
    lows, highs = np.full(len(weights), low), np.full(len(weights), high)
    for count, rounds in (17, 4), *[(9, 4)] * 5, *[(9, 12)] * 2:  # a rough cost suffices to choose the best stretch
        grid = lows[:, None] + (highs - lows)[:, None] * np.linspace(0.0, 1.0, count)  # (G, K), log of the exponent
        offset, scale, cost = _linear(np.exp(-np.exp(grid)[:, :, None] * log_x), y, weights[:, None, :], rounds=rounds)
        best = np.argmin(cost, axis=1)
        lows, highs = grid[sets, np.maximum(best - 1, 0)], grid[sets, np.minimum(best + 1, count - 1)]
    return offset[sets, best], scale[sets, best], np.exp(grid[sets, best])


def _linear(basis: Floats, y: Floats, point_weights: Floats, *, rounds: int) -> tuple[Floats, Floats, Floats]:
    """Solve y = E + A * basis for each (G, K) by least absolute deviations; return E, A and the cost, all (G, K)."""
    smallest = 1e-9 * max(float(np.abs(y - median(y)).mean()), 1e-12)
    weights = np.broadcast_to(point_weights, basis.shape)
    for _ in range(rounds):
        total, weighted = weights.sum(axis=-1), weights * basis
        mean_z, mean_y = weighted.sum(axis=-1) / total, (weights * y).sum(axis=-1) / total
        apart = basis - mean_z[..., None]
        leverage = weights * apart
        spread = (leverage * apart).sum(axis=-1)
        scale = np.maximum((leverage * y).sum(axis=-1) / np.maximum(spread, 1e-300), 0.0)
        offset = mean_y - scale * mean_z
        if (offset < 0).any():
            through = (weighted * y).sum(axis=-1) / (weighted * basis).sum(axis=-1)
            scale, offset = np.where(offset < 0, np.maximum(through, 0.0), scale), np.maximum(offset, 0.0)
        off = np.abs(y - offset[..., None] - scale[..., None] * basis)
        weights = point_weights / np.maximum(off, smallest)
    return offset, scale, (point_weights * off).sum(axis=-1)


def _jackknife(estimates: Floats) -> float:
    count = len(estimates)
    return float(np.sqrt((count - 1) / count * np.square(estimates - estimates.mean()).sum()))


def _thinned(x: Floats, y: Floats, bins: int) -> tuple[Floats, Floats]:
    """Return medians over stretches of equal length in log x, shape (<= bins,); few points are unchanged."""
    if len(x) <= bins:
        return x, y
    if (x[1:] < x[:-1]).any():
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
    marks = [0, *np.searchsorted(x, np.geomspace(x[0], x[-1], bins + 1)[1:-1]).tolist(), len(x)]
    parts = [(start, end) for start, end in pairwise(marks) if end > start]
    return x[[start + (end - start) // 2 for start, end in parts]], np.array([median(y[slice(*part)]) for part in parts])
