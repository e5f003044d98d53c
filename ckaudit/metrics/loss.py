"""Losses: what the training and the evaluations cost, and how they compare."""

import math
from itertools import accumulate, islice

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.run.medians import median
from ckaudit.run.negligible_changes import SOLVED
from ckaudit.run.robust import MEDIAN_STANDARD_ERROR_FACTOR, difference_noise
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, Steps, at, empty, single
from ckaudit.run.tensors import loss_vocabulary

LOGGED_AS = ("train_loss_raw", "loss", "train_loss_ema")
"""Names of the training loss, the one that says most first."""

OPENING = 0.05
"""Share of the steps in which a warm-up may throw the loss up: what is back within them has cost no more, for large rates leave a
sharp valley so (Lewkowycz et al. 2020)."""

HARD_BATCH = 0.25
"""Share of its first that the loss of a batch of hard examples may come to in a task that is solved."""


@metric(unit="nats/token", reads=LOGGED_AS, source="catalogue M03, F11", memory=1)
def train_loss_raw(run: Run) -> Series:
    r"""Training loss of each step, mean over non-pad targets.

    $$L = -\tfrac1N \sum_i \log p(y_i \mid x_{<i})$$

    Shape (T, 1): logged steps; checkpoints fill what the log lacks. Where it was not logged, what went by the name of "loss",
    as in checkpoints, or else its moving average.
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
    r"""How much more than a uniform guess the untrained model costs.

    $$L_1 - \ln V$$

    Shape (1, 1): the first step, of the vocabulary that run.json names, or of the classes of the loss function where the loss
    that is trained on is its. Near 0 is well; far above, the head is badly scaled or targets are wrong; far below, the model is
    trained already or sees its targets. Not recorded where neither is known, where the loss is not one of tokens, nor where the
    log begins later.
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
    """Return the classes of the loss function, where the loss at its first checkpoint is its value, within `tolerance` of it."""
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

    Shape (T, 1). As the trainer logged it, else computed; the division takes out the bias of the start at 0.
    A point that is not finite is NaN and does not enter the average.

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
    r"""Perplexity of the training loss: among how many equally likely tokens the model hesitates.

    $$\exp(\mathrm{ema}_t)$$

    Shape (T, 1). Infinite where the loss is beyond about 709 nats. Not recorded where the loss is not one of tokens.
    """
    if run.loss_kind == "other":
        return empty("train_ppl")
    return train_loss_ema(run).mapped(np.exp, "train_ppl", "1")


@metric(unit="nats/token", reads=["val_loss"], source="catalogue M53", memory=1)
def val_loss(run: Run) -> Series:
    r"""Loss on held-out text, at each evaluation.

    $$L_{val} = -\tfrac1N \sum_i \log p(y_i \mid x_{<i})$$

    Shape (E, V): evaluations by held-out sets, usually one.
    """
    return run.scalar("val_loss")


@metric(unit="nats/token", reads=[val_loss, train_loss_raw, "train_loss_ema"], source="F12")
def train_loss_at_evals(run: Run) -> Series:
    r"""Training loss around each evaluation.

    $$\operatorname{median}\{ L_s : s > 0.9\,t \}$$

    Shape (E, 1), of three to twenty losses. The trainer's own moving average counts where it was logged; see train_level. Not
    recorded before the first finite loss.
    """
    evals = val_loss(run)
    level = train_level(run, evals.steps)
    return single("train_loss_at_evals", "nats/token", evals.steps, level, np.isfinite(level))


@metric(unit="nats/token", reads=[val_loss, train_loss_at_evals], source="catalogue M55, F12")
def train_val_gap(run: Run) -> Series:
    r"""How much worse the model does on held-out text than on what it trains on.

    $$g(t) = L_{val}(t) - L_{train}(t)$$

    Shape (E, V): evaluations by held-out sets; the training loss is train_loss_at_evals.
    Not recorded before the first training loss; NaN where the evaluation was NaN.
    """
    evals, level = val_loss(run), train_loss_at_evals(run)
    known = evals.recorded & level.recorded
    return replace(evals, values=np.where(known, evals.values - level.values, np.nan), recorded=known)


@metric(unit="nats/token", reads=["slice_val_loss"], source="catalogue M56, F13", memory=1)
def slice_val_loss(run: Run) -> Series:
    r"""Held-out loss of each named slice.

    $$L_S = \tfrac{1}{|S|} \sum_{i \in S} \ell_i$$

    Shape (E, P): evaluations by slices. Not recorded where a slice was empty.
    """
    return run.scalar("slice_val_loss")


@metric(unit="1", reads=["loss_part"], source="Bowman et al. 2016; Goodfellow et al. 2014", memory=1)
def loss_part(run: Run) -> Series:
    r"""Terms of the training loss whose course says something beside that of their sum.

    $$L = L_{reconstruction} + \beta L_{kl} \qquad L_{generator},\; L_{discriminator}$$

    Shape (T, P): logged steps by `generator` and `discriminator`, `reconstruction` and `kl`, or by the names of terms that stand
    beside their sum. With or without the weight that a term has in it.
    """
    return run.scalar("loss_part")


def train_level(run: Run, steps: Steps, *, points: int = 20, min_points: int = 3, max_age: float = 0.1) -> Floats:
    """Return the training loss around each of `steps`, shape (T,).

    It is the trainer's own average where that was logged, else the median of the last finite losses: of `points` at most, and of
    those that are `max_age` of the step old at most, for a loss falls by the logarithm of the step and an older one is of
    another model; but of `min_points`, so that a single spike does not show. NaN before the first loss.
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
    """Return the median of the `points` values before each of `ends`, shape (K,); a piece at a time, for they overlap."""
    medians = np.empty(len(ends))
    if len(ends):
        windows = np.lib.stride_tricks.sliding_window_view(values, points)
        for first in range(0, len(ends), piece):
            rows = slice(first, first + piece)
            medians[rows] = np.median(windows[ends[rows] - points], axis=1)
    return medians


def is_solved(loss: Series | None, steps: Steps) -> Mask:
    """Return at which steps the loss was below a tenth of its first, shape (T, 1); false where it is not known."""
    if loss is None or not loss.finite.any():
        return np.zeros((len(steps), 1), bool)
    return np.asarray(at(loss, steps).values[:, :1] < SOLVED * loss.values[loss.finite][0])


def is_down_to_rounding(loss: Series | None, step: int | None = None, *, left: float = 1e-6) -> bool:
    """Tell whether a loss has come down to what float32 rounds away beside its first value, by a step or at its end."""
    if loss is None:
        return False
    known = loss.values[loss.finite[:, 0] & (loss.steps <= (np.inf if step is None else step)), 0]
    return bool(len(known) and 0 <= known[-1] <= left * known[0])


def where_unsolved(series: Series, loss: Series | None) -> Series:
    """Return a series without the steps at which a task is solved, where chance rules; all of it where nothing would be left."""
    left = series.recorded & ~is_solved(loss, series.steps)
    if not (left & series.finite).any():
        return series
    return replace(series, recorded=left, values=np.where(left, series.values, np.nan))


def ratio_to_guess(loss: Series | None, *, max_nats: float = 12.0) -> float:
    """Return how many times a loss is as large as that of tokens can be, at least 1: its gradients are as many times larger.

    A sum over pixels, or a squared error in large units, is clipped by a limit that is made for a mean of nats.

    Args:
        loss: A series of one column; None: nobody knows.
        max_nats: What a guess among 160,000 tokens costs.
    """
    values = loss.values[loss.finite][-100:] if loss is not None else np.empty(0)
    return max(1.0, float(np.median(np.abs(values))) / max_nats) if len(values) else 1.0


def learnt_since(loss: Series, step: int, *, until: int | None = None, around: int = 10) -> float:
    """Return the share of the loss around a step that is gone at a later one; 0 where too few points lie between to tell.

    Args:
        loss: A series of one column.
        step: From when on.
        until: Up to when; None: to the end.
        around: Points on either side of the step, and before the later one, that a median is taken of; of a log that has fewer
            between them half of those.
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
    """Return about what an untrained model costs: the first loss, or the median of the first five where that is higher.

    Of a log with a line for every hundred steps the first line alone is of an untrained model.

    >>> untrained_loss(np.array([2.0, 3.0, 3.5, 3.2, 1.0])), untrained_loss(np.array([9.0, 1.0, 0.8]))
    (3.0, 9.0)
    """
    known = values[np.isfinite(values)][:5]
    return max(float(known[0]), median(known)) if len(known) else 0.0


def stays_solved(loss: Series | None, first: int, last: int, *, around: int = 10) -> bool:
    """Tell whether next to nothing is left of the first loss after a step, and hardly more before another and in between.

    Args:
        loss: A series of one column.
        first: The first step of what is looked at.
        last: The last.
        around: Points before and after it whose medians tell.
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
    """Tell whether a loss ends as low as at its lowest, by medians of parts; false where that is not known.

    Args:
        loss: A series of one column.
        felt: Share of its range by which it may be higher.
        since: Step from which on all of it counts as the end; None: the last part.
        parts: How many there are, or as many as have two points each.
        min_points: Fewer do not tell.
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
    """Tell whether the last third of a loss stands no higher than those before it; false where that is not known.

    Args:
        loss: A series of one column.
        felt: Share of its range by which it may be higher.
        last: Step up to which it is judged.
        deviations: Of the noise of such a median, within which it is no higher.
    """
    values = loss.values[loss.finite[:, 0] & (loss.steps <= last), 0] if loss is not None else np.empty(0)
    if len(values) < 3:
        return False
    *before, end = (median(part) for part in np.array_split(values, 3))
    error = MEDIAN_STANDARD_ERROR_FACTOR * float(np.nan_to_num(difference_noise(values))) / math.sqrt(len(values) / 3)
    return end - min(before) <= max(felt * (max(*before, end) - min(*before, end)), deviations * error)


def is_in_opening(last: int | None, steps: Steps) -> bool:
    """Tell whether what ends at a step was over within `OPENING` of all steps.

    >>> is_in_opening(20, np.array([10, 400])), is_in_opening(21, np.array([10, 400])), is_in_opening(None, np.array([10]))
    (True, False, False)
    """
    return last is not None and bool(len(steps)) and last <= OPENING * float(steps[-1])


def without_solved_steps(series: Series, loss: Series | None, *, none: float = 0.0) -> Series:
    """Return a series of gradients without the steps at which both loss and gradient are exactly zero.

    A loss of exactly zero, as of a margin that all rows keep, has a gradient of exactly zero, and nothing is wrong.

    Args:
        series: Of gradients, shape (T, P).
        loss: The training loss.
        none: Value that says that there is no gradient: a norm of 0, or a share of zeros of 1.
    """
    if loss is None or not loss or not series.labels:
        return series
    gone = loss.steps[loss.finite[:, 0] & (loss.values[:, 0] == 0)]
    keep = ~(np.isin(series.steps, gone) & ((series.values == none) | ~series.recorded).all(axis=1))
    if keep.all():
        return series
    return replace(series, steps=series.steps[keep], values=series.values[keep], recorded=series.recorded[keep])
