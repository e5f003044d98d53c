"""Claims about losses: perplexities, the moving average, the gap and the noise of the gradient, against what they are made of."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.metrics.claims import Bounds, claim
from ckaudit.metrics.counters import shared_points
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.run.medians import median
from ckaudit.run.robust import resolution
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps, at

PRECISION = 1e-2
"""Relative error of a number that may be bfloat16 (0.4 %) or written with three digits (0.5 %)."""


@claim("train_ppl", reads=[train_loss_raw, "train_loss_ema"])
def _train_ppl(run: Run, *, precision: float = PRECISION) -> Iterator[Bounds]:
    """Exp of a training loss of these steps: of the raw one, of an average, or of a mean over the last lines.

    Whatever it averages, it lies between exp of the lowest and of the highest loss around it; see recent_range. Another
    base, or a sum in place of a mean, does not.
    """
    steps, claimed = _column(run.scalar("train_ppl"))
    low, high = recent_range(run, steps)
    with np.errstate(over="ignore", invalid="ignore"):
        slack = precision * np.exp(low), precision * np.exp(high)
        yield Bounds(
            "train_ppl", steps, claimed, np.exp(low) - slack[0] - rounding(claimed), np.exp(high) + slack[1] + rounding(claimed)
        )


@claim("val_ppl", reads=[val_loss])
def _val_ppl(run: Run, *, precision: float = PRECISION) -> Iterator[Bounds]:
    """Exp of the held-out loss of the same step and set (M54); a loss of few digits allows a range."""
    loss, series = val_loss(run), run.scalar("val_ppl")
    for label, column in zip(series.labels, _columns(series), strict=True):
        source = next((losses for name, losses in zip(loss.labels, _columns(loss), strict=True) if name == label), None)
        if source is None and len(loss.labels) == len(series.labels) == 1:
            (source,) = _columns(loss)
        if source is None:
            continue
        steps, both = shared_points([column, source])
        half = rounding(both[:, 1])
        with np.errstate(over="ignore"):
            low, high = np.exp(both[:, 1] - half) * (1 - precision), np.exp(both[:, 1] + half) * (1 + precision)
        around = rounding(both[:, 0])
        named = label if label == "val_ppl" else f"val_ppl/{label}"
        yield Bounds(named, steps, both[:, 0], low - around, high + around)


@claim("train_loss_ema", reads=[train_loss_raw])
def _train_loss_ema(run: Run, *, beta: float = 0.999, share: float = 0.05) -> Iterator[Bounds]:
    r"""A moving average, whatever its memory, lies between the lowest and the highest loss so far.

    One that starts at 0 and is not corrected for it may lie below the lowest, by as much as the largest `beta` of the
    catalogue (M04) explains: $(1 - \beta^n) \min$. Where the log begins late, an average may still remember higher losses
    from before, and only the lower bound holds. A `share` of the range is left for losses between the logged ones.
    Where `run.json` says which memory is meant, see `_remembered` too.
    """
    steps, claimed = _column(run.scalar("train_loss_ema"))
    loss_steps, losses = _column(train_loss_raw(run))
    lowest, highest = np.minimum.accumulate(losses), np.maximum.accumulate(losses)
    place = np.searchsorted(loss_steps, steps, side="right") - 1
    judged = place >= 0
    steps, claimed, place = steps[judged], claimed[judged], place[judged]
    bottom, highest_loss = lowest[place], highest[place]
    slack = share * (highest_loss - bottom) + PRECISION * np.abs(claimed)
    start = np.maximum(bottom, 0.0) * beta ** (place + 1.0)
    high = highest_loss + slack if len(loss_steps) and loss_steps[0] <= 1 else np.full(len(steps), np.inf)
    yield Bounds("train_loss_ema", steps, claimed, bottom - start - slack, high)
    beta_of_run = run.manifest.loss_ema_beta if run.manifest else UNSET
    if isinstance(beta_of_run, int | float) and 0 < beta_of_run < 1:
        yield from _remembered(steps, claimed, loss_steps, losses, beta=beta_of_run, share=share)


def _remembered(
    steps: Steps, floats: Floats, loss_steps: Steps, losses: Floats, *, beta: float, share: float, least_points: int = 10
) -> Iterator[Bounds]:
    r"""What is left of an average after as many steps as it remembers, and what the losses since can have added.

    $$e_{t+n} = \beta^n e_t + (1-\beta^n)\,\bar L, \qquad \min L \le \bar L \le \max L, \qquad n \ge 1/(1-\beta)$$

    After five such memories a correction for a start at 0 no longer counts. Of fewer than `least_points` losses the others
    are not known well enough.
    """
    if min(len(loss_steps), len(steps)) < least_points:
        return
    memory = 1.0 / (1.0 - beta)
    stride = max(memory, least_points * median(np.diff(loss_steps)))
    marks = np.searchsorted(steps, np.arange(max(5 * memory, steps[0]), steps[-1] + 1, stride))
    first, last = marks[:-1], marks[1:]
    begin, end = np.searchsorted(loss_steps, steps[first], side="right"), np.searchsorted(loss_steps, steps[last], side="right")
    filled = end > begin
    if not filled.any():
        return
    first, last, begin, end = first[filled], last[filled], begin[filled], end[filled]
    edges = np.stack([begin, end], axis=1).ravel()
    padded = np.append(losses, losses[-1])
    lowest, highest = np.minimum.reduceat(padded, edges)[::2], np.maximum.reduceat(padded, edges)[::2]
    weight = beta ** (steps[last] - steps[first]).astype(float)
    slack = share * (highest - lowest) + PRECISION * np.abs(floats[last])
    low, high = (weight * floats[first] + (1 - weight) * bound for bound in (lowest, highest))
    yield Bounds("train_loss_ema", steps[last], floats[last], low - slack, high + slack)


@claim("train_val_gap", reads=[val_loss, train_loss_raw, "train_loss_ema"])
def _train_val_gap(run: Run, *, precision: float = 1e-3) -> Iterator[Bounds]:
    """The held-out loss less the training loss around it (M55), whichever average of it was taken; see recent_range."""
    val = val_loss(run)
    if len(val.labels) != 1:
        return
    steps, both = shared_points([run.scalar("train_val_gap"), val])
    low, high = recent_range(run, steps)
    slack = rounding(both[:, 0]) + rounding(both[:, 1]) + precision * np.abs(both[:, 1])
    yield Bounds("train_val_gap", steps, both[:, 0], both[:, 1] - high - slack, both[:, 1] - low + slack)


@claim("grad_noise_scale", reads=["grad_noise_trace", "grad_noise_signal"])
def _grad_noise_scale(run: Run, *, precision: float = PRECISION) -> Iterator[Bounds]:
    """The ratio of its two parts at the same step (M16), where noise does not hide the gradient; few digits allow a range."""
    steps, columns = shared_points([run.scalar(f"grad_noise_{part}") for part in ("scale", "trace", "signal")])
    claimed, trace, signal = columns.T
    half = rounding(signal)
    low, high = np.where(signal > half, signal - half, np.nan), signal + half
    ends = np.array([(trace + sign * rounding(trace)) / bound for sign in (-1, 1) for bound in (low, high)])
    slack = precision * np.abs(claimed) + rounding(claimed)
    yield Bounds("grad_noise_scale", steps, claimed, ends.min(axis=0) - slack, ends.max(axis=0) + slack)


def recent_range(run: Run, steps: Steps, *, window: int = 50, wider: float = 0.5) -> tuple[Floats, Floats]:
    """Return the range in which a training loss of each step lies, whatever average it is; NaN before the first loss.

    It goes over the last `window` logged losses and the logged average, and is made `wider` by half on both sides, for
    steps between the lines have losses too.

    Args:
        run: The run.
        steps: Shape (T,).
        window: Points looked back on.
        wider: Share of the range added on each side.
    """
    loss_steps, losses = _column(train_loss_raw(run))
    place = np.searchsorted(loss_steps, steps, side="right") - 1
    ema = at(run.scalar("train_loss_ema"), steps).values
    ema = ema[:, 0] if ema.shape[1] else np.full(len(steps), np.nan)
    if not len(loss_steps):
        return ema, ema
    recent = np.lib.stride_tricks.sliding_window_view(np.concatenate((np.full(window - 1, losses[0]), losses)), window)
    low, high = np.fmin(recent.min(axis=1)[place], ema), np.fmax(recent.max(axis=1)[place], ema)
    low, high = np.where(place < 0, ema, low), np.where(place < 0, ema, high)
    with np.errstate(all="ignore"):
        return low - wider * (high - low), high + wider * (high - low)


def rounding(values: Floats) -> Floats:
    """Return half of the smallest step that each number and those before it were written in, shape (T,)."""
    return np.minimum.accumulate(resolution(values)) / 2 if len(values) else values


def _column(series: Series) -> tuple[Steps, Floats]:
    """Return the finite points of a series' first column."""
    steps, values = shared_points([series])
    return steps, values[:, 0]


def _columns(series: Series) -> list[Series]:
    return [series.only(lambda name, label=label: name == label) for label in series.labels]  # type: ignore[misc]
