"""The learning rate starts at its peak."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.optimization.learning_rate_too_high import EXPLAINS, FOLLOWS, first_sign_of_large_updates
from ckaudit.causes.shared.loss_curves import breaks_in_evaluation_alone, too_high_at_first
from ckaudit.causes.shared.update_size import excess_rate
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence, Finding
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.data.batches_of_one_kind import batches_of_one_kind
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.rule import FACTS
from ckaudit.rules.weights.weight_scale_off import weight_scale_off
from ckaudit.run.run_facts import is_plain_descent
from ckaudit.run.series import Series

EARLY_STEPS = 100
"""Trouble within so many steps may be for want of a warm-up."""


@cause(
    prior=-1.5,
    good_checkpoint="none",
    explains=EXPLAINS,
    follows=FOLLOWS,
    wants=[learning_rate, FACTS, grad_global_norm, optimizer_adapts, train_loss_raw, update_to_weight_global],
    knob="Warm the learning rate up from zero over 1 to 5 % of the steps, or lower its peak.",
    inspect="The learning rate over the first hundred steps, beside the loss and the gradient norm.",
    runbook="Nothing to save: restart with a warm-up and compare the first five hundred steps on the same batches.",
)
def missing_warmup(
    findings: Findings,
    rate: Series | None,
    facts: Manifest | None,
    norm: Series | None,
    adapts: Series | None,
    loss: Series | None,
    update: Series | None,
    *,
    early: int = EARLY_STEPS,
    early_share: float = 0.25,
    shock: float = 20.0,
    strong: float = 2.5,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The learning rate starts at its peak, before the optimizer knows the gradient's size.

    A rate that starts above half of its peak is no proof, and what a warm-up would not have mended speaks against this cause:

    - Most small models are trained with a constant rate. Such a rate speaks for this cause a little, and half as much where the
      trouble does not begin early.
    - Trouble begins early within the first `early` steps, and within the first `early_share` of the run. Adam's second moment has
      a memory of 20 to 1,000 steps, and plain descent has none to fill.
    - An early gradient that is `shock` times its later median shows that the first updates were too large.
    - No warm-up mends what was wrong before the first update.
    - A warm-up is over when the peak is reached: where the peak itself is far too high, it helps nothing.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    first = first_sign_of_large_updates(findings)
    if alone := breaks_in_evaluation_alone(findings, loss):
        yield contradicts(2 * strong, alone, val_loss.name)
    if first is None:
        yield contradicts(2 * strong, "updates are too small, not too large", update_to_weight_global.name)
    onset = first.first_step if first is not None else None
    known = [int(series.steps[-1]) for series in (rate, loss) if series is not None and len(series.steps)]
    early = min(early, int(early_share * max(known))) if known else early
    is_early = onset is not None and onset <= early
    if rate is not None and (start := _start_over_peak(rate)) is not None:
        if start > 0.5:
            weight = medium if is_early else medium / 2
            yield supports(weight, f"the first recorded learning rate is {start:.0%} of the peak", rate.name)
            yield from _shock(norm, early, shock, medium / 2)
            if adapts is not None and is_plain_descent(adapts):
                yield contradicts(strong + medium, "plain descent has no moments that the first steps must fill", adapts.name)
        else:
            yield contradicts(strong, f"the learning rate starts at {start:.0%} of its peak and warms up", rate.name)
    yield from _unseen(rate, update, medium)
    if excess := excess_rate(rate, update, adapts):
        worse = f"a peak of {excess.peak:.3g} is {excess.times:.0f} times what would do, however slowly it is reached"
        yield contradicts(2 * strong, worse, update_to_weight_global.name)
    if untrained := _before_any_update(first, loss):
        yield contradicts(2 * strong, untrained, train_loss_raw.name)
    if other := findings.first(batches_of_one_kind, weight_scale_off):
        yield contradicts(strong + medium, f"it was so from the start for another reason: {other.message}", other)
    if facts is not None and facts.warmup_steps == 0:
        yield supports(1.5 * medium, "run.json plans no warm-up", "run.json")
    if is_early:
        yield supports(medium, f"the trouble begins at step {onset}, within the first {early}", first)
    elif onset is not None:
        yield contradicts(strong if onset > 5 * early else medium, f"the trouble begins only at step {onset}", first)


def _unseen(rate: Series | None, update: Series | None, medium: float) -> Iterator[Evidence]:
    """Judge by what was not recorded: the learning rate, and the updates."""
    if rate is None:
        yield contradicts(medium, "no learning rate is recorded: whether it warms up is not known", learning_rate.name)
    if update is None:
        unseen = "no updates are recorded: whether the first ones were too large cannot be seen"
        yield contradicts(medium / 2, unseen, update_to_weight_global.name)


def _before_any_update(first: Finding | None, loss: Series | None) -> str | None:
    """Return what was wrong with the loss before the first update, None where nothing is known to be."""
    if first is not None and first.code == dead_units.code and (first.first_step or 0) <= 1:
        return f"units were silent at step {first.first_step}, before any update"
    if (
        first is not None
        and first.where in (train_loss_raw.name, "loss")
        and first.first_step is not None
        and first.first_step <= 1
    ):
        return f"the loss of step {first.first_step} comes before any update: {first.message}"
    is_broken = first is not None and first.code == nonfinite_values.code
    if is_broken and first is not None and (first.where, first.first_step) == (grad_global_norm.name, 1):
        return "the gradient of step 1 is not finite before any update"
    if first_loss := too_high_at_first(loss):
        return f"the loss of step {first_loss[0]} is {first_loss[1]:.4g} before any update, more than any guess costs"
    return None


def _shock(norm: Series | None, early: int, shock: float, weight: float) -> Iterator[Evidence]:
    """Judge the largest gradient norm of the first steps against the median of the second half."""
    usual = norm.late_median() if norm is not None else None
    if norm is None or not usual:
        return
    young = np.where(norm.finite[:, 0] & (norm.steps <= early), norm.values[:, 0], 0.0)
    worst = int(np.argmax(young))
    if young[worst] > shock * usual:
        yield supports(
            weight,
            f"the gradient norm is {young[worst]:.3g} at step {norm.steps[worst]}, {young[worst] / usual:.0f} times its "
            "later median",
            norm.name,
        )


def _start_over_peak(rate: Series) -> float | None:
    """Return the first learning rate over the highest; None where the record starts late."""
    known = rate.values[:, 0][rate.finite[:, 0]]
    steps = rate.steps[rate.finite[:, 0]]
    if not known.size or steps[0] > 20 or known.max() <= 0:
        return None
    positive = known[known > 0]
    return float(positive[0] / np.max(known))
