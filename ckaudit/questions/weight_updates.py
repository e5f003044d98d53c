"""Which weights are updated: by their updates, by what checkpoints show of them, or by one number for them all."""

import numpy as np

from ckaudit.causes.cause import Findings
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.questions.question import SeriesAnswer, not_recorded
from ckaudit.questions.values import last_row, points, row_of
from ckaudit.rules.loss.loss_frozen import loss_frozen
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.updates.barely_moving import barely_moving, idle_experts
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.cancelled_gradients import cancelled, half_precision, half_precision_gains
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Mask, Series, Steps, at
from ckaudit.run.tensors import table_of
from ckaudit.wording import first_names

MIN_CHECKPOINTS: int = barely_moving.thresholds["min_points"]
MIN_RELATIVE_MOVEMENT: float = barely_moving.thresholds["min_relative_movement"]
WARMUP_STEPS: int = update_out_of_band.thresholds["warmup"]


def unchanged_by_last_update(
    trainable: Series, gradient: Series | None, rate: Series | None, near: float, types: Series | None = None
) -> tuple[list[str], str, dict[str, float]]:
    """Return the trainable tensors that took part in the last update and did not change, with a sentence and numbers on it.

    In half precision one update may round to nothing: such a tensor counts if the recorded update before was nothing as well.
    """
    known = trainable.finite.any(axis=1)
    rows = np.flatnonzero(known & learning_rate_is_on(trainable.steps, rate, near))
    if not len(rows):
        rows = np.flatnonzero(known & learning_rate_is_on(trainable.steps, rate))
    if rate is None and len(rows) > 1 and not np.nan_to_num(trainable.values[rows[-1]]).any():
        rows = rows[:-1]  # a schedule that ends at zero: the update before it tells
    if not len(rows):
        return [], "", {}
    step = int(trainable.steps[rows[-1]])
    row = {name: value for name, value in row_of(trainable, int(rows[-1])).items() if not _is_dropped(name, step, gradient)}
    still = [name for name, value in row.items() if value == 0]
    if len(rows) > 1:
        before = row_of(trainable, int(rows[-2]))
        half = half_precision(still, types)
        still = [name for name in still if name not in half or not before.get(name)]
    text = f"step {step} updates {len(row) - len(still)} of {len(row)} trainable tensors"
    text += f", not {first_names(still, 3)}" if still else ""
    return still, text, {"tensors": float(len(row)), "still": float(len(still))}


def _is_dropped(name: str, step: int, gradient: Series | None) -> bool:
    """Tell whether a tensor has no gradient at a step at which others have one, though it has one at another step."""
    if gradient is None or name not in gradient.places or step not in gradient.steps:
        return False
    column, row = gradient.places[name], int(np.searchsorted(gradient.steps, step))
    return bool(gradient.recorded[row].any() and not gradient.recorded[row, column] and gradient.recorded[:, column].any())


def last_with_learning_rate(series: Series, rate: Series | None) -> tuple[int, float] | None:
    """Return the last step that had a learning rate, and the value there."""
    steps, values = points(series)
    known = np.flatnonzero(learning_rate_is_on(steps, rate))
    return (int(steps[known[-1]]), float(values[known[-1]])) if len(known) else None


def learning_rate_is_on(steps: Steps, rate: Series | None, near: float = 0.0) -> Mask:
    """Mark the steps whose learning rate is above zero and at least `near` of its peak; steps of unknown rate count."""
    if rate is None:
        return steps > 0
    lowest_rate = near * float(rate.values[rate.finite].max(initial=0.0))
    rates: Floats = np.nan_to_num(at(rate, steps).values, nan=np.inf)
    return np.logical_and(steps > 0, ((rates > 0) & (rates >= lowest_rate)).any(axis=1))


def answer_from_checkpoints(seen: Series, gradient: Series | None, findings: Findings) -> SeriesAnswer:
    """Say which tensors change from one checkpoint to the next: "bad" where a tensor with a gradient like others never does.

    A tensor without a gradient beside others that have one is frozen on purpose, as a LoRA's base is. Under plain descent a
    small gradient makes an update that rounding swallows: one below a hundredth of the median tensor's does not count (as in
    barely_moving). Where no tensor at all changes and the loss does not stand, other weights are trained than those shown.

    Args:
        seen: weight_statistics_change of the tensors that count.
        gradient: Gradient norm of each tensor.
        findings: Findings that are more than a note.
    """
    trained = set(gradient.labels if gradient is not None else ()) & set(seen.labels) or set(seen.labels)
    columns = {name: seen.values[seen.finite_in(place), place] for place, name in enumerate(seen.labels) if name in trained}
    shown = {name: values for name, values in columns.items() if len(values) >= MIN_CHECKPOINTS - 1}
    if not shown:
        return not_recorded(
            f"weights are shown at fewer than {MIN_CHECKPOINTS} checkpoints, and no update was measured", "update_norm"
        )
    still = [name for name, values in shown.items() if not values.any()]
    fed = _with_gradient(still, gradient)
    numbers = {"tensors": float(len(shown)), "still": float(len(still))}
    text = f"by step {seen.steps[-1]} {len(shown) - len(still)} of {len(shown)} trainable tensors have changed in what "
    text += "checkpoints show of them" + (f", not {first_names(fed or still, 3)}" if still else "")
    if len(still) == len(shown) and not _loss_stands(findings):
        text += ": unless the loss stands, these are not the weights that train"
        fed = []
    return SeriesAnswer(word="bad" if fed else "watch" if still else "good", sentence=text, numbers=numbers)


def no_weight_is_updated(relative: Series, rate_is_on: Mask, findings: Findings) -> bool:
    """Tell whether all updates after the warm-up are zero though there is a rate, and the loss stands where it began.

    A log that rounds a ratio to nothing looks the same, but its loss falls.

    Args:
        relative: The update of all weights over them.
        rate_is_on: Whether each of its finite points had a learning rate.
        findings: Findings that are more than a note.
    """
    steps, values = points(relative)
    late = values[rate_is_on & (steps > WARMUP_STEPS)]
    return len(late) >= MIN_CHECKPOINTS and not late.any() and _loss_stands(findings)


def _loss_stands(findings: Findings) -> bool:
    """Tell whether the loss stands where it began, by LOSS003 and LOSS007; a loss that came to rest later does not count."""
    return any((finding.first_step or 0) <= WARMUP_STEPS for finding in findings.of(loss_not_falling, loss_frozen))


def _with_gradient(names: list[str], gradient: Series | None) -> list[str]:
    """Return the tensors whose last gradient is at least a small share of the median tensor's."""
    if gradient is None or not names:
        return []
    _, last = last_row(gradient)
    limit = MIN_RELATIVE_MOVEMENT * median(list(last.values()))
    return [name for name in names if last.get(name, 0.0) > max(0.0, limit)]


def trained_tensors(series: Series, gradient: Series | None, facts: Manifest | None, types: Series | None) -> Series:
    """Return the trainable tensors of a series, without those whose gradient is zero by mathematics, and without single numbers.

    An update of a single number, as of a temperature, may be rounded away or held at a bound; that of a gain in half precision
    is rounded away.
    """
    tensors = table_of(facts)
    by_nature = {*cancelled(gradient, tensors, types), *half_precision_gains(series.labels, tensors, types)}
    by_nature |= idle_experts(gradient, tensors)
    by_nature |= {name for name, count in zip(series.labels, tensors.elements(series.labels), strict=True) if count == 1}
    return series.only(lambda name: tensors.is_trainable(name) and name not in by_nature)
