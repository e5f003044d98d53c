"""Measures of training and held-out losses for causes: a plateau, ratio, lost batch noise, a jump, and slices that diverge."""

import math
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from ckaudit.causes.cause import Findings
from ckaudit.metrics.loss import val_loss
from ckaudit.metrics.reductions import running_medians
from ckaudit.metrics.spikes import log_excess_at
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.run.falls import Plateau, flat_fall, plateau_of
from ckaudit.run.medians import median
from ckaudit.run.robust import difference_noise
from ckaudit.run.series import Floats, Series, at


class LossJump(Struct, frozen=True, kw_only=True):
    """The loss jumps within one step: by how much, and what became of both losses after it.

    Attributes:
        step: The first high loss.
        rise: By how much the training loss rises.
        stays: Share of that rise that is left at the end.
        held_out: By how much the held-out loss rises, from the last evaluation before to the higher of the first two after.
        beside: How much of the training loss's rise was left at that evaluation.
        held_out_stays: Share of the held-out loss's rise that is left at the last evaluation.
        is_as_new: Whether the first high loss is that of the run's first step, to a tenth: the model is untrained again.
    """

    step: int
    rise: float
    stays: float
    held_out: float
    beside: float
    held_out_stays: float
    is_as_new: bool

    @property
    def is_of_both(self) -> bool:
        """Whether the held-out loss jumps too, at least half as high as the training loss stands beside it."""
        return self.held_out > max(self.beside, 0.1 * self.rise) / 2


def loss_plateau(train: Series | None, val: Series | None) -> Plateau | None:
    """Return how the training loss stands still over the whole run, None where it does not."""
    if train is None or not train.labels:
        return None
    steps, losses = train.finite_points()
    return plateau_of(steps, losses, val) if len(losses) else None


def never_falls_below_start(train: Series | None, val: Series | None) -> float | None:
    """Return the level of a training loss that never came below its start; None where it did, or where that is not known."""
    if (stands := loss_plateau(train, val)) is not None:
        return stands.level if stands.kind == "flat" else None
    if train is None or not train.labels or train.finite[:, 0].sum() < 3:
        return None
    flat = flat_fall(train.finite_points()[1])
    return None if flat is None else flat.last


def train_over_held_out(train: Series | None, val: Series | None) -> tuple[float, float] | None:
    """Return how many times the held-out loss the training loss is, at the first evaluation and at the last."""
    if train is None or val is None or not train.labels:
        return None
    with np.errstate(all="ignore"):
        ratio = at(train, val.steps).values[:, 0] / np.where(val.values[:, 0] > 0, val.values[:, 0], np.nan)
    ratio = ratio[np.isfinite(ratio)]
    return (float(ratio[0]), float(ratio[-1])) if len(ratio) > 1 else None


def first_and_last(train: Series) -> tuple[float, float] | None:
    """Return the first loss and the median of the last tenth of the points; None: there are none."""
    known = train.finite_points()[1] if train.labels else np.empty(0)
    return (float(known[0]), median(known[-max(1, len(known) // 10) :])) if len(known) else None


def mirrored_held_out_loss(train: Series | None, val: Series | None, *, alike: float = 0.1) -> float | None:
    """Return the end of a rising held-out loss that mirrors the training loss with the other sign; None where it does not.

    At each evaluation of the second half the training loss is below zero, and the two add up to less than `alike` of either.
    """
    if train is None or val is None or not train.labels:
        return None
    known = np.flatnonzero(val.finite[:, 0])
    late = known[len(known) // 2 :]
    if len(late) < 2 or val.values[late[-1], 0] <= max(0.0, val.values[known[0], 0]):
        return None
    own, other = at(train, val.steps[late]).values[:, 0], val.values[late, 0]
    is_mirror = (own < 0) & (np.abs(own + other) < alike * np.abs(other))
    return float(other[-1]) if is_mirror.all() else None


def lost_batch_noise(
    train: Series | None, *, parts: int = 8, min_points: int = 160, low: float = 2e-3, times: float = 5.0
) -> float | None:
    """Return the share by which losses of neighbouring steps differ at the end, where all batches have become alike; else None.

    Losses of different samples differ: by 0.3 % and more in the lab, by 1 % in public logs. Every step sees the same samples
    where losses differ by less than `low` of their level, and `times` less than in an earlier part that went up and down by more
    than `low`. Losses that never differed are no sign: a batch of all rows, or a mean over them, makes a smooth curve.
    """
    if train is None or not train.labels:
        return None
    losses = train.finite_points()[1]
    if len(losses) < min_points:
        return None
    pieces = np.array_split(losses, parts)
    shares = np.array([difference_noise(part) / max(abs(median(part)), 1e-300) for part in pieces])
    earlier = [share for share, part in zip(shares[1:-1], pieces[1:-1], strict=True) if _goes_up_and_down(part)]
    return float(shares[-1]) if shares[-1] < low and max(earlier, default=0.0) > max(low, times * shares[-1]) else None


def _goes_up_and_down(values: Floats, *, min_turns: float = 1 / 3) -> bool:
    """Tell whether neighbouring differences change sign as often as noise does: two of three of pure noise, none of a slope."""
    signs = np.sign(np.diff(values))
    return bool((signs[1:] * signs[:-1] < 0).mean() >= min_turns)


class TrainingLossJump(NamedTuple):
    """Row and step of the first high loss, how many follow, the level before, the rise, and the share of it that is left."""

    row: int
    step: int
    after: int
    level: float
    rise: float
    stays: float


def training_loss_jump(train: Series | None, step: int, *, back: int = 10, at_once: float = 0.6) -> TrainingLossJump | None:
    """Return the jump of the training loss around a step as `loss_jump` has it, whatever the held-out loss does."""
    if train is None or not train.labels:
        return None
    steps, losses = train.finite_points()
    row = int(np.searchsorted(steps, step))
    around = losses[max(0, row - back) : row + back]
    if row < 2 * back or len(around) < 2 * back:
        return None
    first = max(0, row - back) + 1 + int(np.argmax(np.diff(around)))
    level = median(losses[first - back : first])
    after = losses[first : first + back]
    rise = float(np.max(after)) - level
    # Of single batches that are hard, only the first counts: what follows is held against its running median.
    highest = float(running_medians(after, min(3, len(after))).max())
    if rise <= 0 or losses[first] - level < at_once * (highest - level):
        return None
    return TrainingLossJump(first, int(steps[first]), len(losses) - first, level, rise, (median(losses[-back:]) - level) / rise)


def loss_jump(train: Series | None, val: Series | None, step: int, *, back: int = 10, at_once: float = 0.6) -> LossJump | None:
    """Return the jump of both losses around a step, None where there is no jump or the rise takes more than one step.

    Args:
        train: The training loss.
        val: The held-out loss.
        step: Where a spike begins; the jump is searched in the `back` points before it and after it.
        back: Points whose median is the level before the jump.
        at_once: Least share of the rise that the first high loss has; instabilities grow over several steps.
    """
    own = training_loss_jump(train, step, back=back, at_once=at_once)
    if train is None or val is None or own is None:
        return None
    seen, known = val.finite[:, 0], train.finite[:, 0]
    steps, losses = train.steps[known], train.values[known, 0]
    first, level = own.row, own.level
    # An evaluation of the step before the jump may see what was done to the weights after that step.
    before, after = np.flatnonzero(seen & (val.steps < steps[first - 1])), np.flatnonzero(seen & (val.steps >= steps[first - 1]))
    if not len(before) or len(after) < 3:
        return None
    top = after[int(np.argmax(val.values[after[:2], 0]))]
    base, highest, last = (float(val.values[row, 0]) for row in (before[-1], top, after[-1]))
    near = losses[max(first, int(np.searchsorted(steps, val.steps[top])) - back // 2) :][:back]
    left = (last - base) / (highest - base) if highest > base else 0.0
    return LossJump(
        step=own.step,
        rise=own.rise,
        stays=own.stays,
        held_out=highest - base,
        beside=median(near) - level,
        held_out_stays=left,
        is_as_new=bool(abs(losses[first] - losses[0]) < 0.1 * abs(losses[0])),
    )


def diverging_slices(slices: Series, step: int, *, rise: float = 0.05) -> tuple[str, str] | None:
    """Return a slice whose loss has risen since a step and one whose loss has fallen, by `rise` each; None where all agree.

    Learning by heart raises the loss of all slices. A change of data raises the loss of slices that the new data leaves out, and
    lowers that of slices that it holds.

    Args:
        slices: Held-out loss of each slice, shape (E, S).
        step: The last evaluation at or before this step is compared with the last of all.
        rise: Relative change that counts.
    """
    before = int(np.searchsorted(slices.steps, step, side="right")) - 1
    if before < 0 or before == len(slices.steps) - 1:
        return None
    with np.errstate(all="ignore"):
        ratio = slices.values[-1] / slices.values[before]  # (S,)
    if not np.isfinite(ratio).any():
        return None
    up, down = int(np.nanargmax(ratio)), int(np.nanargmin(ratio))
    return (slices.labels[up], slices.labels[down]) if ratio[up] > 1 + rise and ratio[down] < 1 - rise else None


def too_high_at_first(
    loss: Series | None, *, ratio: float = 2.0, classes: int = initial_loss_off.thresholds["max_vocabulary"]
) -> tuple[int, float] | None:
    """Return step and loss of an untrained model that costs more than any guess; None where it does not, or is not known.

    The loss of step 0 or 1 is computed before the first update. A guess among `classes` costs their log, and no mean over
    targets is `ratio` times as high unless outputs, targets or a sum made it so.
    """
    known = np.flatnonzero((loss.steps <= 1) & loss.finite[:, 0]) if loss is not None and loss.labels else np.empty(0, int)
    if loss is None or not len(known):
        return None
    step, value = int(loss.steps[known[0]]), float(loss.values[known[0], 0])
    return (step, value) if value > ratio * math.log(classes) else None


def overshoot(loss: Series | None, *, updates: int = 4, ratio: float = 2.0) -> tuple[float, float] | None:
    """Return an untrained model's loss and the highest after its first updates, where that is `ratio` times as high; else None.

    A step against the gradient lowers the loss unless it is too long for the curvature (the descent lemma: longer than twice
    its inverse). A loss that is too high before any update says nothing of that.
    """
    if loss is None or not loss.labels or too_high_at_first(loss) is not None:
        return None
    known = loss.finite[:, 0] & (loss.steps <= 1 + updates)
    steps, values = loss.steps[known], loss.values[known, 0]
    if len(steps) < 2 or steps[0] > 1 or values[0] <= 0:
        return None
    highest = float(values[1:].max())
    return (float(values[0]), highest) if highest > ratio * values[0] else None


def best_explained_share(explained: Series | None, *, min_share: float = 0.1) -> float | None:
    """Return the largest share of its targets that a model explained, by medians of three checkpoints in a row; else None.

    One batch of few targets may look explained by chance; a share of `min_share` or less does not count.
    """
    if explained is None or explained.finite.sum() < 3:
        return None
    best = float(running_medians(explained.values[explained.finite], 3).max())
    return best if best > min_share else None


def gradient_of_broken_loss(loss: Series | None, gradient: Series | None, step: int) -> float | None:
    """Return the gradient norm of a step at which the loss is not finite, where the norm is finite and above zero; else None.

    The derivative of what is no number is none either: where the norm is a number, what broke the loss does not depend on the
    weights. A batch that has no target makes a gradient of zero, and a norm equal to that of the step before is not a new one.
    """
    if loss is None or gradient is None or not loss.nonfinite[loss.steps == step].any():
        return None
    rows = np.flatnonzero(gradient.finite[:, 0] & (gradient.steps <= step))[-2:]
    if len(rows) < 2 or gradient.steps[rows[1]] != step:
        return None
    before, now = gradient.values[rows, 0].tolist()
    return now if now > 0 and now != before else None


def gradient_at_jump(gradient: Series | None, step: int, *, before: int = 3) -> tuple[float, float] | None:
    """Return the gradient over its median: the largest in the steps before a jump, 0 without any, and the one at the jump.

    A batch that is unlike the rest raises loss and gradient at its own step; a model that leaves its basin shows in the gradient
    first. None where the gradient at the jump is not known.
    """
    if gradient is None or not (rows := gradient.finite[:, 0] & (gradient.steps == step)).any():
        return None
    earlier = gradient.finite[:, 0] & (gradient.steps < step) & (gradient.steps >= step - before)
    return float(gradient.values[earlier, 0].max(initial=0.0)), float(gradient.values[rows, 0][0])


def breaks_in_evaluation_alone(findings: Findings, loss: Series | None) -> str:
    """Return a sentence where only the held-out loss is known to break: the training loss never did, or was not recorded."""
    broken = {finding.where for finding in findings.of(nonfinite_values)}
    is_alone = broken == {val_loss.name} and (loss is None or not loss.nonfinite.any())
    return "evaluations alone break: nothing says that the training does" if is_alone else ""


def has_finite_loss_before(loss: Series | None, step: int, *, within: int | None = None) -> bool:
    """Tell whether a finite loss was recorded before a step; true also where no loss was recorded at all.

    A loss from the first half of the way to the step does not count: a log that stopped recording it tells no healthy state.

    Args:
        loss: The training loss.
        step: The step.
        within: Steps before it in which it must have been recorded; None: in the second half of the way.
    """
    since = step / 2 if within is None else step - within
    return loss is None or bool((loss.finite[:, 0] & (loss.steps < step) & (loss.steps >= since)).any())


def has_gradient_before(norm: Series | None, step: int, *, within: int) -> bool:
    """Tell whether a gradient norm was recorded in the `within` steps before one: a loss alone shows little of an illness."""
    return norm is not None and bool((norm.finite[:, 0] & (norm.steps < step) & (norm.steps >= step - within)).any())


def count_jumps_since(
    flags: Series | None, loss: Series | None, since: int, *, apart: int = 10, min_log_excess: float = 6.0
) -> int:
    """Return how often the loss jumps from a step on: flags less than `apart` points behind another are of the same jump.

    A flag that is less than `min_log_excess` deviations away on a logarithmic scale is the noise of batches that differ much.
    """
    if flags is None or loss is None:
        return 0
    rows = np.flatnonzero((flags.values[:, 0] == 1) & (flags.steps >= since))
    rows = rows[log_excess_at(loss.values[:, 0], np.searchsorted(loss.steps, flags.steps[rows])) > min_log_excess]
    return int((np.diff(rows, prepend=-apart) >= apart).sum())
