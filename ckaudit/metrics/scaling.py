"""Scaling: the power law that the training loss follows, what it will not go below, and where it leaves the law."""

import numpy as np
from msgspec import UNSET

from ckaudit.metrics.loss import train_level, train_loss_raw
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import relabelled
from ckaudit.metrics.power_law import PowerLaw, fit_power_law
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, Steps, at, empty, single

FIRST = 50
"""Points that a first fit needs: three parameters, and a decade of steps behind the warm-up."""

FEW = 12
"""Points from which on a record that ends before has one fit, of all of them: four for each parameter. Its error says more."""

Fits = list[tuple[int, PowerLaw]]


@metric(
    unit="nats/token",
    reads=[train_loss_raw, "tokens_seen", "scaling_law_residual"],
    source="catalogue M17; Kaplan et al. 2020; Hoffmann et al. 2022",
)
def scaling_law_residual(run: Run, *, growth: float = 1.25) -> Series:
    r"""How far the training loss stands above the power law that its own past follows.

    $$L_t - (E + A\,x_t^{-\alpha})$$

    Shape (T, 1): steps with a loss. The law is fitted anew each time the points have grown by `growth`, to the points
    between a tenth of the way and there, and judges those after it: a residual is a forecast that went wrong. x are the
    tokens seen where the log counts them, else steps. Not recorded for the first 50 points; NaN where the loss is not
    finite. A schedule that decays the learning rate takes the loss below its law. What the trainer logged counts where
    there is no loss.

    Args:
        run: The run.
        growth: How many times more points make a new fit.
    """
    loss = train_loss_raw(run)
    if not loss:
        return relabelled(run.scalar("scaling_law_residual"), "scaling_law_residual")
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
    r"""Exponent of the power law that the training loss follows, and its standard error.

    $$L = E + A\,x^{-\alpha}$$

    Shape (F, 2): "exponent" and "error", at each doubling of the points from 50 on, or at the end of fewer. An error as large as
    the exponent says that the record is too short to tell. The error is not recorded where the fit stands at the edge of its
    search.
    """
    steps, laws = _laws(run)
    return _with_error("exponent", steps, [(law.exponent, law.exponent_error) for law in laws])


@metric(
    unit="nats/token", reads=[train_loss_raw, "tokens_seen"], source="playbook D2.4 and D5.3; Hoffmann et al. 2022", worst="first"
)
def entropy_floor(run: Run) -> Series:
    r"""Loss that no amount of further training would go below, as the power law of the run has it, and its standard error.

    $$E \text{ of } L = E + A\,x^{-\alpha}$$

    Shape (F, 2): "floor" and "error", at each doubling of the points from 50 on, or at the end of fewer. It holds the entropy of
    the text and what a model of this size cannot learn. The error is not recorded where the floor is 0, the least it can be, or
    the exponent is at the edge of its search: the fit is held there, and its scatter says nothing.
    """
    steps, laws = _laws(run)
    return _with_error("floor", steps, [(law.offset, law.offset_error) for law in laws])


@metric(unit="nats/token", reads=[train_loss_raw, "train_loss_ema", "tokens_seen"], source="playbook D2.4 and D5.3")
def loss_above_floor(run: Run) -> Series:
    r"""How far the training loss still is from its floor.

    $$\bar L_t - E$$

    Shape (F, 1): at each doubling of the points from 50 on, or at the end of fewer; the loss is train_level.
    """
    steps, laws = _laws(run)
    return single("loss_above_floor", "nats/token", steps, train_level(run, steps) - np.array([law.offset for law in laws]))


@metric(
    unit="nats",
    reads=["data.token_histogram", "data.target_shift_match"],
    source="playbook PAN-1, n-gram baseline; Shannon 1948",
    memory=1,
)
def unigram_entropy(run: Run) -> Series:
    r"""Entropy of the tokens of a batch: the loss of a model that knows how often each token is, and nothing else.

    $$-\sum_b p(b) \log p(b)$$

    Shape (C, 1). Of buckets it is a lower bound. A loss above it after a few hundred steps has learnt no order at all; a
    held-out loss above it while the training loss falls far below is a leak. Not recorded where layers read both ways or
    across and the targets are not known to be the next tokens: then the tokens counted are not those that are to be told.
    """
    counts = run.value("data.token_histogram")
    if _tells_other_tokens(run):
        return empty("unigram_entropy")
    known: Mask = np.any(counts.recorded, axis=1)
    whole = np.where(counts.recorded, counts.values, 0.0)
    with np.errstate(all="ignore"):
        shares = whole / whole.sum(axis=1, keepdims=True)
        terms = np.where(shares == 0, 0.0, shares * np.log(shares))
    return single("unigram_entropy", "nats", counts.steps, np.where(known, -terms.sum(axis=1), np.nan), known)


def _tells_other_tokens(run: Run, *, min_match: float = 0.5) -> bool:
    """Return whether the inputs are not what is to be told, as of masked words or a translation."""
    attention = run.manifest.attention if run.manifest else UNSET
    ways = set() if attention is UNSET else {*attention.values()}
    match = run.value("data.target_shift_match")
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


def _fits(x: Floats, y: Floats, growth: float, groups: int, *, first: int = FIRST) -> Fits:
    """Return each fit with the number of points that were there; those it saw lie after a tenth of the way."""
    fits, count = [], first
    while count <= len(y):
        seen = slice(0, count)
        use = np.isfinite(y[seen]) & (x[seen] >= x[count - 1] / 10)
        if len(np.unique(x[seen][use])) > 2 * 3:
            fits.append((count, fit_power_law(x[seen][use], y[seen][use], groups=groups)))
        count = max(count + 1, int(count * growth))
    return fits


def _laws(run: Run, *, groups: int = 8) -> tuple[Steps, list[PowerLaw]]:
    """Return the laws at each doubling of the points, or at the end of few, and the steps where they were made."""
    if not train_loss_raw(run):
        return np.empty(0, np.int64), []
    steps, x, y = _points(run)
    first = FIRST if len(y) >= FIRST else max(FEW, len(y))
    fits = run.derived("power laws with errors", lambda: _fits(x, y, 2.0, groups, first=first))
    return steps[[count - 1 for count, _ in fits]], [law for _, law in fits]


def _with_error(name: str, steps: Steps, rows: list[tuple[float, float]]) -> Series:
    values = np.array(rows, float).reshape(-1, 2)
    known = np.isfinite(values) | np.array([True, False])
    return Series(name, "1", steps, (name, "error"), values, known)
