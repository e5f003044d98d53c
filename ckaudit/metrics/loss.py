"""Losses of training and evaluations, and their comparison."""

import math
from itertools import accumulate, islice

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.reductions import without_repeats
from ckaudit.run.medians import median
from ckaudit.run.negligible_changes import SOLVED
from ckaudit.run.robust import MEDIAN_STANDARD_ERROR_FACTOR, difference_noise
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, Steps, at, empty, single
from ckaudit.run.tensors import loss_vocabulary

LOGGED_AS = ("train_loss_raw", "loss", "train_loss_ema")
"""Names of the training loss, the most informative first."""

OPENING = 0.05
"""Share of the steps in which a warm-up may raise the loss. A rise that is back within them costs no more, because large learning
rates leave a sharp valley this way (Lewkowycz et al. 2020)."""

HARD_BATCH = 0.25
"""Share of its first value that the loss may reach on a batch of hard examples in a solved task."""


@metric(unit="nats/token", reads=LOGGED_AS, source="catalogue M03, F11", memory=1)
def train_loss_raw(run: Run) -> Series:
    r"""Training loss of each step, mean over non-pad targets.

    $$L = -\tfrac1N \sum_i \log p(y_i \mid x_{<i})$$

    Shape (T, 1): logged steps; checkpoints fill what the log lacks. If it is not logged, "loss" counts, as in checkpoints, or
    else its moving average.
    """
    logged = next(filter(None, map(run.scalar, LOGGED_AS)), empty("train_loss_raw"))
    labels = ("train_loss_raw",) if logged.labels == (logged.name,) else logged.labels
    return replace(logged, name="train_loss_raw", labels=labels)


@metric(
    unit="nats/token",
    reads=[train_loss_raw, "loss_function.classes", "loss_function.value"],
    source="playbook D1.1; a uniform guess costs the log of the choices",
    memory=None,
)
def initial_loss_excess(run: Run) -> Series:
    r"""Loss of the untrained model minus that of a uniform guess.

    $$L_1 - \ln V$$

    Shape (1, 1): the first step. V is the vocabulary in run.json, or the classes of the loss function if the training loss is its
    value. Near 0 is healthy; far above, the head is badly scaled or targets are wrong; far below, the model is already trained or
    sees its targets. Not recorded if neither is known, if the loss is not over tokens, or if the log begins later.
    """
    loss = train_loss_raw(run)
    classes = _classes(run, loss)
    vocabulary = loss_vocabulary(run.manifest) or classes
    first = np.flatnonzero(loss.steps <= 1)[-1:]
    if vocabulary is None or not len(first):
        return empty("initial_loss_excess")
    rows = replace(loss, steps=loss.steps[first], values=loss.values[first], recorded=loss.recorded[first])
    return rows.mapped(lambda values: values - math.log(vocabulary), "initial_loss_excess", "nats/token")


def _classes(run: Run, loss: Series, *, tolerance: float = 0.01) -> float | None:
    """Return the classes of the loss function if the loss at its first checkpoint is its value, within `tolerance`."""
    classes, value = run.value("loss_function.classes").recorded_rows(), run.value("loss_function.value").recorded_rows()
    if not classes or not value or not loss or not len(classes.steps):
        return None
    step = classes.steps[:1]
    given, logged = at(value, step).values[0, 0], at(loss, step).values[0, 0]
    if not 1 <= classes.values[0, 0] < np.inf:
        return None
    return float(classes.values[0, 0]) if abs(logged - given) <= tolerance * abs(given) else None


@metric(unit="nats/token", reads=["train_loss_ema", train_loss_raw], source="catalogue M04; Kingma & Ba 2015, section 3")
def train_loss_ema(run: Run, *, beta: float = 0.98) -> Series:
    r"""Exponential moving average of the training loss.

    $$m_t = \beta m_{t-1} + (1 - \beta) L_t, \qquad \mathrm{ema}_t = m_t / (1 - \beta^t)$$

    Shape (T, 1). As logged by the trainer, else computed; the division corrects the bias of the start at 0. A point that is not
    finite is NaN and does not enter the average.

    Args:
        run: The run.
        beta: Weight of the past (catalogue M04 gives 0.95 to 0.999).
    """
    recorded = run.scalar("train_loss_ema")
    if recorded:
        return recorded
    loss = train_loss_raw(run)
    values = np.full(loss.values.shape, np.nan)
    for column in range(len(loss.labels)):
        known = loss.finite_in(column)
        losses = loss.values[known, column]
        sums = accumulate(((1 - beta) * losses).tolist(), lambda past, value: beta * past + value, initial=0.0)
        weights: Floats = -np.expm1(np.arange(1, len(losses) + 1) * math.log(beta))
        values[known, column] = np.fromiter(islice(sums, 1, None), float, len(losses)) / weights
    return replace(loss, values=values)


@metric(unit="1", reads=[train_loss_ema], source="catalogue M05")
def train_ppl(run: Run) -> Series:
    r"""Perplexity of the training loss: the number of equally likely tokens that the loss corresponds to.

    $$\exp(\mathrm{ema}_t)$$

    Shape (T, 1). Infinite if the loss exceeds about 709 nats. Not recorded if the loss is not over tokens.
    """
    if run.loss_kind == "other":
        return empty("train_ppl")
    return train_loss_ema(run).mapped(np.exp, "train_ppl", "1")


@metric(unit="nats/token", reads=["val_loss"], source="catalogue M53", memory=1)
def val_loss(run: Run) -> Series:
    r"""Loss on held-out text, at each evaluation.

    $$L_{val} = -\tfrac1N \sum_i \log p(y_i \mid x_{<i})$$

    Shape (E, V): evaluations by held-out sets, usually one. A value that is logged again until the next evaluation counts once.
    """
    return without_repeats(run.scalar("val_loss"))


@metric(unit="nats/token", reads=[val_loss, train_loss_raw, "train_loss_ema"], source="F12")
def train_loss_at_evals(run: Run) -> Series:
    r"""Training loss around each evaluation.

    $$\operatorname{median}\{ L_s : s > 0.9\,t \}$$

    Shape (E, 1), from three to twenty losses. The trainer's own moving average counts if it is logged; see train_level. Not
    recorded before the first finite loss.
    """
    evals = val_loss(run)
    level = train_level(run, evals.steps)
    return single("train_loss_at_evals", "nats/token", evals.steps, level, np.isfinite(level))


@metric(unit="nats/token", reads=[val_loss, train_loss_at_evals], source="catalogue M55, F12")
def train_val_gap(run: Run) -> Series:
    r"""Held-out loss minus training loss.

    $$g(t) = L_{val}(t) - L_{train}(t)$$

    Shape (E, V): evaluations by held-out sets; the training loss is train_loss_at_evals. Not recorded before the first training
    loss; NaN if the evaluation is NaN.
    """
    evals, level = val_loss(run), train_loss_at_evals(run)
    known = evals.recorded & level.recorded
    return replace(evals, values=np.where(known, evals.values - level.values, np.nan), recorded=known)


@metric(unit="nats/token", reads=["slice_val_loss"], source="catalogue M56, F13", memory=1)
def slice_val_loss(run: Run) -> Series:
    r"""Held-out loss of each named slice.

    $$L_S = \tfrac{1}{|S|} \sum_{i \in S} \ell_i$$

    Shape (E, P): evaluations by slices. Not recorded for an empty slice.
    """
    return run.scalar("slice_val_loss")


@metric(unit="1", reads=["loss_part"], source="Bowman et al. 2016; Goodfellow et al. 2014", memory=1)
def loss_part(run: Run) -> Series:
    r"""Terms of the training loss whose curves show more than that of their sum.

    $$L = L_{reconstruction} + \beta L_{kl} \qquad L_{generator},\; L_{discriminator}$$

    Shape (T, P): logged steps by `generator` and `discriminator`, `reconstruction` and `kl`, or by the names of terms that are
    logged beside their sum. A term may include its weight in the sum or not.
    """
    return run.scalar("loss_part")


def train_level(run: Run, steps: Steps, *, points: int = 20, min_points: int = 3, max_age: float = 0.1) -> Floats:
    """Return the training loss around each of `steps`, shape (T,).

    It is the trainer's own average if that is logged, else the median of the last finite losses: at most `points`, and none older
    than `max_age` of the step, because a loss falls with the logarithm of the step and older ones belong to another model. At
    least `min_points` count, so that a single spike does not show. NaN before the first loss.
    """
    recorded = run.scalar("train_loss_ema")
    if recorded:
        return at(recorded, steps).values[:, 0]
    loss = train_loss_raw(run)
    known = np.flatnonzero(loss.finite[:, 0]) if loss else np.empty(0, np.int64)
    times, values = loss.steps[known], loss.values[known, :1].ravel()
    ends = np.searchsorted(times, steps, side="right")
    recent = np.searchsorted(times, (1 - max_age) * steps, side="right")
    starts = np.maximum(ends - points, np.maximum(np.minimum(recent, ends - min_points), 0))
    level = np.full(len(steps), np.nan)
    whole = ends - starts == points
    level[whole] = _medians_before(values, ends[whole], points)
    for row in np.flatnonzero(~whole & (ends > 0)):
        level[row] = median(values[starts[row] : ends[row]])
    return level


def _medians_before(values: Floats, ends: Steps, points: int, *, piece: int = 50_000) -> Floats:
    """Return the median of the `points` values before each of `ends`, shape (K,), in pieces to limit memory."""
    medians = np.empty(len(ends))
    if len(ends):
        windows = np.lib.stride_tricks.sliding_window_view(values, points)
        for first in range(0, len(ends), piece):
            rows = slice(first, first + piece)
            medians[rows] = np.median(windows[ends[rows] - points], axis=1)
    return medians


def is_solved(loss: Series | None, steps: Steps) -> Mask:
    """Return at which steps the loss is below a tenth of its first, shape (T, 1); false if unknown."""
    if loss is None or not loss.finite.any():
        return np.zeros((len(steps), 1), bool)
    return np.asarray(at(loss, steps).values[:, :1] < SOLVED * loss.values[loss.finite][0])


def is_down_to_rounding(loss: Series | None, step: int | None = None, *, left: float = 1e-6) -> bool:
    """Tell whether a loss has fallen below float32's rounding of its first value, by a step or at its end."""
    if loss is None:
        return False
    known = loss.values[loss.finite[:, 0] & (loss.steps <= (np.inf if step is None else step)), 0]
    return bool(len(known) and 0 <= known[-1] <= left * known[0])


def where_unsolved(series: Series, loss: Series | None) -> Series:
    """Return a series without the steps at which the task is solved, where chance rules; unchanged if no step would be left."""
    left = series.recorded & ~is_solved(loss, series.steps)
    if not (left & series.finite).any():
        return series
    return replace(series, recorded=left, values=np.where(left, series.values, np.nan))


def ratio_to_guess(loss: Series | None, *, max_nats: float = 12.0) -> float:
    """Return the loss as a multiple of the largest loss of a token model, at least 1; its gradients scale by the same factor.

    Limits are made for a mean in nats; the gradient of a sum over pixels or of a squared error in large units exceeds them by
    this factor.

    Args:
        loss: A series of one column; None if unknown.
        max_nats: Loss of a guess among 160,000 tokens.
    """
    values = loss.values[loss.finite][-100:] if loss is not None else np.empty(0)
    return max(1.0, float(np.median(np.abs(values))) / max_nats) if len(values) else 1.0


def learnt_since(loss: Series, step: int, *, until: int | None = None, around: int = 10) -> float:
    """Return the share of the loss around a step that is gone at a later one; 0 if there are too few points between them.

    Args:
        loss: A series of one column.
        step: The step.
        until: The later step; None: the end.
        around: Points on either side of the step, and before the later one, whose median counts; half of the points between them
            if there are fewer.
    """
    rows = np.flatnonzero(loss.finite[:, 0])
    steps, values = loss.steps[rows], loss.values[rows, 0]
    place = int(np.searchsorted(steps, step))
    end = len(values) if until is None else int(np.searchsorted(steps, until, side="right"))
    around = min(around, (end - place) // 2)
    if around < 1:
        return 0.0
    before, after = median(values[max(0, place - around) : place + around]), median(values[end - around : end])
    return float(1 - after / before) if before > 0 else 0.0


def untrained_loss(values: Floats) -> float:
    """Return about the loss of the untrained model: the first loss, or the median of the first five if that is higher.

    In a log with a line per hundred steps, only the first line belongs to an untrained model.

    >>> untrained_loss(np.array([2.0, 3.0, 3.5, 3.2, 1.0])), untrained_loss(np.array([9.0, 1.0, 0.8]))
    (3.0, 9.0)
    """
    known = values[np.isfinite(values)][:5]
    return max(float(known[0]), median(known)) if len(known) else 0.0


def stays_solved(loss: Series | None, first: int, last: int, *, around: int = 10) -> bool:
    """Tell whether a loss is nearly zero after an interval of steps, and not much higher before and within it.

    Args:
        loss: A series of one column.
        first: First step of the interval.
        last: Last step of the interval.
        around: Points before and after it whose medians count.
    """
    if loss is None:
        return False
    rows = np.flatnonzero(loss.finite[:, 0])
    steps, values = loss.steps[rows], loss.values[rows, 0]
    before, after = values[steps < first][-around:], values[steps > last][:around]
    within = values[(steps >= first) & (steps <= last)]
    if not len(before) or not len(after) or not len(within):
        return False
    untrained = untrained_loss(values)
    return median(after) < SOLVED * untrained and max(median(before), median(within)) < HARD_BATCH * untrained


def ends_at_best(loss: Series | None, *, felt: float, since: int | None = None, parts: int = 10, min_points: int = 10) -> bool:
    """Tell whether a loss ends about as low as at its lowest, by medians of parts; false if unknown.

    Args:
        loss: A series of one column.
        felt: Share of its range by which it may be higher.
        since: First step of the end; None: the last part is the end.
        parts: Number of parts; fewer if a part would have less than two points.
        min_points: With fewer points the answer is false.
    """
    known = np.flatnonzero(loss.finite[:, 0]) if loss is not None else np.empty(0, np.int64)
    if loss is None or len(known) < min_points:
        return False
    values = loss.values[known, 0]
    levels = [median(part) for part in np.array_split(values, min(parts, len(values) // 2))]
    last = values[loss.steps[known] >= since] if since is not None else values[:0]
    end = median(last) if len(last) else levels[-1]
    return end <= min(levels) + felt * (max(levels) - min(levels))


def ends_no_higher(loss: Series | None, *, felt: float, last: float = math.inf, deviations: float = 3.0) -> bool:
    """Tell whether the last third of a loss is no higher than the thirds before it; false if unknown.

    Args:
        loss: A series of one column.
        felt: Share of its range by which it may be higher.
        last: Step up to which it is judged.
        deviations: Standard errors of such a median up to which it is no higher.
    """
    values = loss.values[loss.finite[:, 0] & (loss.steps <= last), 0] if loss is not None else np.empty(0)
    if len(values) < 3:
        return False
    *before, end = (median(part) for part in np.array_split(values, 3))
    error = MEDIAN_STANDARD_ERROR_FACTOR * float(np.nan_to_num(difference_noise(values))) / math.sqrt(len(values) / 3)
    return end - min(before) <= max(felt * (max(*before, end) - min(*before, end)), deviations * error)


def is_in_opening(last: int | None, steps: Steps) -> bool:
    """Tell whether an event that ends at a step is over within `OPENING` of all steps.

    >>> is_in_opening(20, np.array([10, 400])), is_in_opening(21, np.array([10, 400])), is_in_opening(None, np.array([10]))
    (True, False, False)
    """
    return last is not None and bool(len(steps)) and last <= OPENING * float(steps[-1])


def without_solved_steps(series: Series, loss: Series | None, *, none: float = 0.0) -> Series:
    """Return a series of gradients without the steps at which both loss and gradient are exactly zero.

    A loss of exactly zero has a gradient of exactly zero, for example if all rows keep a margin. That is not a problem.

    Args:
        series: Series of gradients, shape (T, P).
        loss: The training loss.
        none: Value that stands for no gradient: a norm of 0, or a share of zeros of 1.
    """
    if loss is None or not loss or not series.labels:
        return series
    gone = loss.steps[loss.finite[:, 0] & (loss.values[:, 0] == 0)]
    keep = ~(np.isin(series.steps, gone) & ((series.values == none) | ~series.recorded).all(axis=1))
    if keep.all():
        return series
    return replace(series, steps=series.steps[keep], values=series.values[keep], recorded=series.recorded[keep])
