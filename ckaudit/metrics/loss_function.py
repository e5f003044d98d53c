"""Inputs of the loss function: targets that inputs explain, batches of one class, and inputs of the wrong kind."""

import math

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import together
from ckaudit.run.column_builder import LOSS_FUNCTIONS
from ckaudit.run.falls import ends_lower, fall_accelerates, never_falls
from ckaudit.run.medians import median
from ckaudit.run.robust import MEDIAN_STANDARD_ERROR_FACTOR, difference_noise
from ckaudit.run.run import Run
from ckaudit.run.run_facts import may_have_taken_all_steps
from ckaudit.run.series import Floats, Mask, Series, Steps, at, empty, single
from ckaudit.run.tensors import loss_kind_of

MISFITS = ("probabilities", "no log-probabilities", "another shape")
"""Inputs that a loss function does not accept: the columns of `loss_input_misfit`."""

CUTTING = [float(LOSS_FUNCTIONS.index(name)) for name in ("smooth_l1_loss", "huber_loss")]
"""Loss functions that are quadratic for small errors and linear for large ones."""


@metric(
    unit="1",
    reads=[
        *("loss_function.value", "loss_function.constant_value", "loss_function.batch_constant_value"),
        *("loss_function.classes", "loss_function.targets", "loss_function.smoothing", "loss_function.function"),
        train_loss_raw,
    ],
    source="McFadden 1974, of entropies; the coefficient of determination, of squares",
    memory=1,
)
def explained_share(run: Run) -> Series:
    r"""Share of a constant guess's loss that the model saves, which only its inputs make possible.

    $$R^2 = 1 - L / L_0$$

    Shape (C, 1): checkpoints whose loss is that of one function of torch. $L_0$ is the entropy or the variance of the targets: of
    the same batch if it is large enough to estimate it, because batches differ, else of all batches so far. 0 for a model that
    knows only how often each target occurs, 1 for one that is always right; below 0 it knows less.
    """
    value, constant = run.value("loss_function.value"), run.value("loss_function.constant_value")
    if not value or not constant:
        return empty("explained_share")
    guess = _of_the_batch(run, value.steps, _exactly_at(constant, value.steps))
    with np.errstate(all="ignore"):
        shares = 1 - value.values[:, 0] / guess
    return _of_trained(run, value, "explained_share", shares, guess > 0)


@metric(unit="nats, or squares", reads=["loss_terms.*.value"], source="the sum of losses that is trained on", memory=1)
def loss_term_value(run: Run) -> Series:
    r"""Mean loss of each of several loss functions that are summed for training, without its weight in the sum.

    $$L_k$$

    Shape (C, K): checkpoints by loss functions, "cross_entropy/5" of five classes.
    """
    return replace(run.series("loss_terms", "value"), name="loss_term_value")


@metric(
    unit="1",
    reads=["loss_terms.*.value", "loss_terms.*.constant_value", "loss_terms.*.batch_constant_value", "loss_terms.*.targets"],
    source="as explained_share",
    memory=1,
    worst="low",
)
def loss_term_explained_share(run: Run) -> Series:
    r"""Share of a constant guess's loss that the model saves, for each of several loss functions that are summed for training.

    $$R_k^2 = 1 - L_k / L_{k,0}$$

    Shape (C, K): checkpoints by loss functions, "cross_entropy/5" of five classes. $L_{k,0}$ is that of the same batch if it has
    enough targets to estimate it, else of all batches so far. Not recorded if all targets are equal.
    """
    value, pooled = together(run.series("loss_terms", "value"), run.series("loss_terms", "constant_value"))
    if not value:
        return empty("loss_term_explained_share")
    batch, count = (_at_rows_of(run.series("loss_terms", name), value) for name in ("batch_constant_value", "targets"))
    guess = np.where((count >= TARGETS_OF_A_LARGE_BATCH) & (batch >= pooled.values / 2), batch, pooled.values)
    with np.errstate(all="ignore"):
        return replace(
            value,
            name="loss_term_explained_share",
            unit="1",
            values=np.where(guess > 0, 1 - value.values / guess, np.nan),
            recorded=value.recorded & (guess > 0),
        )


def constant_guess(train: Series, explained: Series) -> float | None:
    """Return the loss of a constant guess in the unit of the training loss: the median over checkpoints; None if unknown."""
    rows = explained.recorded_rows()
    costs = at(train, rows.steps).values[:, 0] / (1 - rows.values[:, 0])
    return median(costs[np.isfinite(costs)]) if np.isfinite(costs).any() else None


def never_beats_guess(train: Series, val: Floats, explained: Series, *, fell: float = 0.02, other_unit: float = 1.25) -> bool:
    """Tell whether no held-out loss is below the loss of a constant guess by the share `fell`.

    A held-out loss whose median exceeds `other_unit` times that guess has another unit, and the answer is false.
    """
    guess = constant_guess(train, explained)
    return guess is not None and len(val) > 2 and float(val.min()) >= (1 - fell) * guess and median(val) <= other_unit * guess


@metric(
    unit="1",
    reads=[
        *("loss_function.batch_constant_value", "loss_function.constant_value", "loss_function.value"),
        *("loss_function.classes", "loss_function.targets", "loss_function.smoothing", "loss_function.function"),
        train_loss_raw,
    ],
    source="Cover & Thomas 2006, section 2.6; the share of variance within groups",
    memory=1,
)
def batch_target_spread(run: Run) -> Series:
    r"""Entropy or variance of the targets of one batch, relative to that of all batches.

    $$s = L_{0,batch} / \min(L_0, \ln n)$$

    Shape (C, 1): checkpoints whose loss is that of one function of torch and that have $n \ge 16$ targets; for regressions
    without the logarithm, for classes only if so many draws cannot be of one class by chance ($n L_0 \ge 10$). About 1 if batches
    are drawn from all data, 0 if each holds targets of one class.
    """
    batch, constant = run.value("loss_function.batch_constant_value"), run.value("loss_function.constant_value")
    targets, classes = run.value("loss_function.targets"), run.value("loss_function.classes")
    if not batch or not constant or not targets:
        return empty("batch_target_spread")
    count, whole = _exactly_at(targets, batch.steps), _exactly_at(constant, batch.steps)
    if classes:
        whole = np.minimum(whole, np.log(count))
    with np.errstate(all="ignore"):
        spreads = batch.values[:, 0] / whole
    is_enough = (count >= 16) & (count * whole >= MIN_NATS_OF_BATCH if classes else True)
    return _of_trained(run, batch, "batch_target_spread", spreads, (whole > 0) & is_enough)


@metric(
    unit="1",
    reads=["loss_function.function", "loss_function.normalized_share", "loss_function.is_broadcast"],
    source="PyTorch: what torch.nn.functional says that each function takes",
    memory=1,
)
def loss_input_misfit(run: Run) -> Series:
    r"""Share of the loss function's inputs that it does not accept, by kind.

    $$m = \tfrac1N |\{i : x_i \notin X\}|$$

    Shape (C, 3): checkpoints by "probabilities", rows that sum to one where logits are expected; "no log-probabilities", rows
    that are none where these are expected; and "another shape", outputs that are each compared with several targets.
    """
    names = run.value("loss_function.function").recorded_rows()
    if not names:
        return empty("loss_input_misfit")
    steps, takes_logs = names.steps, np.isin(names.values[:, 0], TAKE_LOGS)
    normalized, crossed = (
        _exactly_at(run.value(f"loss_function.{field}"), steps) for field in ("normalized_share", "is_broadcast")
    )
    values = np.stack([np.where(takes_logs, np.nan, normalized), np.where(takes_logs, 1 - normalized, np.nan), crossed], axis=1)
    return Series("loss_input_misfit", "1", steps, MISFITS, values, np.isfinite(values))


MIN_NATS_OF_BATCH = 10.0
"""Entropy of a batch's targets above which all of them are of the most frequent class at most once in 20,000 batches by
chance."""

MAX_UNEXPLAINED = 0.02
"""Share of a constant guess's loss that counts as nothing: positions in a row, and repeated rows, save as much."""

SMALL_SAMPLE = 2.0
"""Standard errors of three to five values are this many times as wide as those of many (Student 1908)."""

COMES_FROM_ABOVE = 1.5
"""A loss at this multiple of its last level has yet to come down to it."""

TARGETS_OF_A_LARGE_BATCH = 128
"""Targets that determine the loss of a constant guess to a few percent, for up to 16 classes."""

LEARNT_SHARE = 0.1
"""Share of a constant guess's loss that only a model that has learnt saves."""


def has_used_inputs(explained: Series | None, *, min_share: float = LEARNT_SHARE) -> bool:
    """Tell whether a model saves a share of a constant guess's loss in the second half of its checkpoints: it has learnt."""
    late = explained.late_median() if explained is not None else None
    return late is not None and late > min_share


def rests_at_constant_guess(
    steps: Steps,
    losses: Floats,
    explained: Series | None,
    facts: Manifest | None,
    *,
    min_checkpoints: int = 3,
    min_steps: int = 200,
) -> int | None:
    """Return the row from which a model saves nothing of a constant guess's loss; None if it does, or still may.

    Its loss stands still, or has come down to the guess by the end of the training and no further. A token model rests at a guess
    for its first steps: there the noise of the losses must leave no doubt. A model that is worse than a constant guess but has
    come down is still on its way to it.
    """
    if explained is None or not len(explained.recorded_rows().steps):
        return None
    rows, middle = explained.recorded_rows(), steps[-1] / 2
    may_wait = loss_kind_of(facts) == "nats_per_token" and steps[-1] < min_steps
    late = int((rows.steps > middle).sum())
    saved = rows.values[-late if may_wait else -max(min_checkpoints, late) :, 0] if late else rows.values[:0, 0]
    first = int(np.searchsorted(steps, middle, side="right"))
    knew = rows.steps[rows.values[:, 0] > LEARNT_SHARE][-1:]
    thrown = steps[:first][losses[:first] > COMES_FROM_ABOVE * median(losses[first:])][-1:]
    since = int(np.searchsorted(steps, max([0, *knew, *thrown]), side="right"))
    if len(saved) < min_checkpoints:
        return None
    if median(saved) + 2 * _error_of_share(losses[first:], saved, paired=not may_wait) > LEARNT_SHARE:
        return None
    comes_from_above = median(saved) < -LEARNT_SHARE and ends_lower(losses, min_fall=LEARNT_SHARE)
    if comes_from_above or median(saved) > MAX_UNEXPLAINED:
        return None
    if never_falls(losses[first:], max_fall=LEARNT_SHARE) is not None:
        return since
    return since if may_have_taken_all_steps(steps, facts) and _ends_at_a_guess(losses[first:], saved) else None


def _ends_at_a_guess(losses: Floats, saved: Floats) -> bool:
    """Tell whether falling losses only come down to a constant guess from above, ever more slowly."""
    return median(saved[-max(1, len(saved) // 3) :]) <= MAX_UNEXPLAINED and not fall_accelerates(losses)


def _error_of_share(losses: Floats, saved: Floats, *, paired: bool) -> float:
    """Return the standard error of the median of explained shares, from the noise of the losses or their own if it is less.

    Args:
        losses: Losses of the same steps.
        saved: The shares.
        paired: Whether the noise of the shares counts: each uses the targets of its own batch, so differences between batches
            cancel.
    """
    level = abs(median(losses))
    by_losses = difference_noise(losses) / level if level and len(losses) > 2 else 0.0
    own = SMALL_SAMPLE * float(np.std(saved, ddof=1)) if paired else math.inf
    return MEDIAN_STANDARD_ERROR_FACTOR * min(by_losses, own) / math.sqrt(len(saved))


@metric(unit="1", reads=["loss_function.value", train_loss_raw], source="PyTorch: what torch.nn.functional returns", memory=1)
def loss_to_function_ratio(run: Run) -> Series:
    r"""Training loss divided by the value that the loss function returned in the same step.

    $$r = L / f$$

    Shape (C, 1): checkpoints. 1 if the function is the whole training loss, -1 if its sign is flipped, the number of targets if a
    sum replaces the mean, anything else if it is one part.
    """
    value = run.value("loss_function.value")
    if not value:
        return empty("loss_to_function_ratio")
    loss = _exactly_at(train_loss_raw(run), value.steps)
    with np.errstate(all="ignore"):
        ratio = loss / value.values[:, 0]
    known = value.finite[:, 0] & np.isfinite(ratio)
    return single("loss_to_function_ratio", "1", value.steps, np.where(known, ratio, np.nan), known)


@metric(unit="targets", reads=["loss_function.targets"], source="PyTorch: what torch.nn.functional is called on", memory=1)
def loss_targets(run: Run) -> Series:
    r"""Number of targets of the loss function in a step, without ignored ones.

    $$N = \sum_n \mathbb{1}[y_n \text{ counts}]$$

    Shape (C, 1): checkpoints whose loss is that of one function of torch. Rows of a classifier, tokens of a language model.
    """
    return run.value("loss_function.targets")


@metric(unit="1", reads=["loss_function.smoothing"], source="Szegedy et al. 2016, section 7", memory=1)
def label_smoothing(run: Run) -> Series:
    r"""Share of each target that the loss function spreads over all classes.

    $$y' = (1 - \epsilon)\, y + \epsilon / K$$

    Shape (C, 1): checkpoints. With ten classes, 0.1 costs a fifth of a uniform guess and 0.2 more than a third, which no model
    can save.
    """
    return run.value("loss_function.smoothing")


@metric(unit="1", reads=["loss_function.is_mixed"], source="Zhang et al. 2018 (mixup), equation 1", memory=1)
def targets_mixed(run: Run) -> Series:
    r"""Whether rows have targets of several classes, 0 or 1.

    $$y' = \lambda\, y_i + (1 - \lambda)\, y_j$$

    Shape (C, 1): checkpoints. With equal shares a perfect model loses half a nat, 0.22 of a uniform guess among ten classes.
    """
    return run.value("loss_function.is_mixed")


def _of_the_batch(run: Run, steps: Steps, pooled: Floats, *, min_targets: int = 16, per_class: int = 8) -> Floats:
    """Return the loss of a constant guess on each batch; on all batches so far if a batch is small or of one class."""
    batch = _exactly_at(run.value("loss_function.batch_constant_value"), steps)
    count = _exactly_at(run.value("loss_function.targets"), steps)
    classes = np.nan_to_num(_exactly_at(run.value("loss_function.classes"), steps), nan=0.0)
    is_known = (count >= np.maximum(min_targets, per_class * classes)) & (batch >= pooled / 2)
    return np.where(is_known, batch, pooled)


def _of_trained(run: Run, like: Series, name: str, values: Floats, known: Mask, *, tolerance: float = 0.1) -> Series:
    """Return a column of the checkpoints at which the training loss is that of the function, within `tolerance`.

    The recorded value of a function excludes label smoothing; with smoothing the loss is at least the unsmoothed share of it. For
    a function that is linear for large errors the squares are recorded, and the loss is a constant share of them if few errors
    are large. A loss that is a constant multiple of the function at every checkpoint, while the function changes by more than the
    tolerance, counts too: it is summed over the elements of a row, or weighted.
    """
    ratio = _exactly_at(loss_to_function_ratio(run), like.steps)
    smoothing = np.nan_to_num(_exactly_at(label_smoothing(run), like.steps))
    is_same = np.abs(ratio - 1) <= tolerance
    is_same |= (smoothing > 0) & (ratio >= (1 - smoothing) * (1 - tolerance))
    is_same |= _is_a_multiple(ratio, _exactly_at(run.value("loss_function.value"), like.steps), tolerance)
    cuts = np.isin(_exactly_at(run.value("loss_function.function"), like.steps), CUTTING) & np.isfinite(ratio)
    if cuts.any():
        is_same |= cuts & (np.abs(ratio / np.median(ratio[cuts]) - 1) <= tolerance)
    recorded = like.recorded[:, 0] & known & is_same & np.isfinite(values)
    return single(name, "1", like.steps, np.where(recorded, values, np.nan), recorded)


def has_auxiliary_loss(ratio: Series | None, *, tolerance: float = 0.1, min_checkpoints: int = 4) -> bool:
    """Tell whether a training loss exceeds its loss function and is not a multiple of it, so that another term is added.

    Args:
        ratio: `loss_to_function_ratio`.
        tolerance: Largest relative difference from 1, and from the median, with a single function.
        min_checkpoints: With fewer checkpoints the answer is false.
    """
    known = ratio.values[ratio.finite] if ratio is not None else np.empty(0)
    if len(known) < min_checkpoints or median(known) <= 1 + tolerance:
        return False
    return bool(np.quantile(np.abs(known / median(known) - 1), 0.75) > tolerance)


TAKE_LOGS = [LOSS_FUNCTIONS.index(name) for name in ("nll_loss", "ctc_loss")]
"""Functions that take log-probabilities."""


def _is_a_multiple(ratio: Floats, values: Floats, tolerance: float, *, min_checkpoints: int = 4) -> bool:
    """Tell whether a loss is a constant multiple of a function wherever both are known, although the function changes."""
    known = np.isfinite(ratio) & np.isfinite(values) & (values > 0)
    if known.sum() < min_checkpoints or not values[known].max() > (1 + tolerance) * values[known].min():
        return False
    return bool((np.abs(ratio[known] / np.median(ratio[known]) - 1) <= tolerance).all())


def _at_rows_of(series: Series, like: Series) -> Floats:
    """Return the values of a series in the rows and columns of another, NaN if it has none, shape (T, P)."""
    values = np.full(like.values.shape, np.nan)
    for column, label in enumerate(like.labels):
        if label in series.places:
            values[:, column] = _exactly_at(series.only(label.__eq__), like.steps)
    return values


def _exactly_at(series: Series, steps: Steps) -> Floats:
    """Return the values of one column at exactly these steps, NaN where it has none."""
    if not series:
        return np.full(len(steps), np.nan)
    lookup = at(series, steps)
    return np.where(lookup.age[:, 0] == 0, lookup.values[:, 0], np.nan)
