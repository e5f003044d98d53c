"""LOSS007: the loss is the same number again and again."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import is_down_to_rounding, train_loss_raw, val_loss
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule
from ckaudit.run.robust import is_zero_but_for_rounding
from ckaudit.run.run_facts import is_reinforcement_learning
from ckaudit.run.series import Floats, Series


@rule("LOSS007", severity="sev1", needs=[], wants=[train_loss_raw, val_loss, grad_global_norm, FACTS], unit="nats/token")
def loss_frozen(
    loss: Series | None,
    val: Series | None,
    gradient: Series | None,
    facts: Manifest | None,
    *,
    min_points: int = 3,
    min_share: float = 0.2,
    min_digits: float = 1e-3,
    solved_share: float = 0.01,
) -> Iterator[Hit | Skip]:
    """The loss is the same number again and again.

    ## What it checks
    The rule looks at the last points of the loss that are all equal, from `min_points` finite points on.

    - Exactly 0 after a loss above `solved_share` of the first is sev1: no training gets there in one step. Exactly 0 from the
      first point on is sev1 as well.
    - Another number that repeats exactly over `min_share` of all points, and over five at least, is sev2: two batches never cost
      the same to the last digit.
    - A held-out loss that repeats as long, at the last evaluations, is sev2: the same data do not cost the same after another
      update.
    - Repeated numbers count only where the log writes changes as small as `min_digits` of the number.
    ## Why it matters
    A logger that hides NaN writes 0, and a loop that lost its batch or its graph repeats itself: the curve says nothing any more.
    ## False alarms
    Some losses rightly repeat:

    - A line search that finds nothing lower repeats the last loss: a loss of a millionth of the first is left alone.
    - A task that is solved comes to 0 through small numbers.
    - A policy's loss of advantages whose mean is zero is 0 but for rounding from the beginning. Where the log rounds it to 0, a
      gradient that is not 0 shows this: a note.
    - A policy whose rewards have all become equal has a loss of 0: a note.
    - A log that is rounded to few digits repeats them.
    """
    if loss is None and val is None:
        yield needs_one_of(train_loss_raw, val_loss)
        return
    if val is not None:
        yield from _held_out(val, min_share, min_digits)
    if loss is None:
        return
    steps, values = loss.finite_points()
    if len(values) < min_points:
        yield Skip("too_few_points", f"{len(values)} finite points of the loss; {min_points} are needed")
        return
    first, value = _last_repeated(values)
    count = len(values) - first
    if value == 0:
        stopped = first > 0 and abs(values[first - 1]) > solved_share * abs(values[0])
        if count > 1 and first == 0 and gradient is not None and _mostly_flows(gradient):
            message = (
                "the loss is exactly 0 from its first point on, and its gradient is not: a policy's, or not what is trained on"
            )
            yield _hit(steps, first, value, "note", message)
        elif count > 1 and (stopped or first == 0) and not is_zero_but_for_rounding(values):
            is_policy, message = is_reinforcement_learning(facts), "the loss is exactly 0 since step {first}"
            equal = "; a policy learns nothing where all its rewards are equal"
            yield _hit(steps, first, value, "note" if is_policy else "sev1", message + (equal if is_policy else ""))
    elif is_down_to_rounding(loss):
        return
    elif count >= max(5, min_share * len(values)) and _is_fine(values, value, min_digits):
        yield _hit(steps, first, value, "sev2", "the loss is exactly {value:.6g} at every step since step {first}")


def _last_repeated(values: Floats) -> tuple[int, float]:
    """Return the row from which on all values are equal, and that value."""
    other = np.flatnonzero(values != values[-1])
    return int(other[-1]) + 1 if len(other) else 0, float(values[-1])


def _held_out(val: Series, min_share: float, min_digits: float) -> Iterator[Hit]:
    """Yield a held-out loss that is equal at all of the last evaluations: the evaluated model does not change."""
    steps, values = val.finite_points()
    if not len(values):
        return
    first, value = _last_repeated(values)
    if value and len(values) - first >= max(5, min_share * len(values)) and _is_fine(values, value, min_digits):
        message = "the held-out loss is exactly {value:.6g} at every evaluation since step {first}: other weights are evaluated"
        yield Hit.at(steps[first:], "sev2", message + " than are trained, or none are", where=val.name, value=value, worst=0)


def _mostly_flows(gradient: Series) -> bool:
    """Tell whether a gradient is finite wherever it was logged, and above zero at most steps."""
    known = gradient.values[gradient.recorded]
    return bool(len(known) and np.isfinite(known).all() and (known > 0).mean() > 0.5)


def _is_fine(values: Floats, value: float, digits: float) -> bool:
    """Tell whether the log can write a number that differs from this one by less than `digits` of it."""
    gaps = np.diff(np.unique(values))
    by_neighbours = bool(len(gaps)) and float(gaps.min()) < digits * abs(value)
    return by_neighbours or float(f"{value:.3g}") != value


def _hit(steps: "np.ndarray", row: int, value: float, severity: Severity, message: str) -> Hit:
    return Hit.at(steps[row:], severity, message, where="loss", value=value, worst=0)
