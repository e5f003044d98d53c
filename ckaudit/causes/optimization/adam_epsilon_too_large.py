"""Adam's epsilon outweighs the second moment."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.update_size import movement_per_rate, per_element
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.movement import epsilon_to_gradient, step_over_rate
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.attention.uniform_heads import uniform_heads
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.precision.skipped_updates import skipped_updates
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.learning_rate_zero import learning_rate_zero
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.rules.updates.updates_held_back import updates_held_back
from ckaudit.rules.weights.weights_shrink import weights_shrink
from ckaudit.run.run_facts import is_plain_descent
from ckaudit.run.series import Series, at


@cause(
    prior=-1.5,
    good_checkpoint="none",
    explains=[updates_held_back, update_out_of_band, barely_moving, loss_not_falling, uniform_heads],
    follows=[weights_shrink],
    wants=[step_over_rate, learning_rate, gradient_norm, optimizer_adapts, epsilon_to_gradient, FACTS],
    knob="Set Adam's eps back to 1e-8, or at least far below the root of the second moment.",
    inspect="The optimizer's eps against the size of a gradient's elements, tensor by tensor.",
    runbook="Nothing to save: restart with the smaller eps; updates must be a tenth of the learning rate per element or more.",
)
def adam_epsilon_too_large(
    findings: Findings,
    step: Series | None,
    rate: Series | None,
    gradient: Series | None,
    adapts: Series | None,
    epsilon: Series | None,
    facts: Manifest | None,
    *,
    small: float = 0.1,
    usual_eps: float = 1e-8,
    strong: float = 3.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Adam's epsilon outweighs the second moment, so that updates shrink.

    An epsilon that is felt shows beside the gradient, or in how little the weights move:

    - Where the epsilon is recorded, it is held against the gradient of the median matrix, per element. A thousandth of that
      gradient is not felt, and an epsilon of about `usual_eps` is not too large, whatever the gradient.
    - Where the epsilon is not recorded, Adam moves an element by a tenth of the rate and more, whatever the gradient. Where no
      matrix moves by `small` of the rate, something is added to the second moment in every denominator.
    - A gradient whose elements are no larger than a thousand times `usual_eps` would be too small itself.
    - Log odds are first guesses.
    """
    if adapts is not None and is_plain_descent(adapts):
        yield contradicts(2 * strong, "the optimizer is plain descent, it has no epsilon", adapts.name)
        return
    if low := findings.first(learning_rate_zero):
        yield contradicts(strong, f"the rate itself is zero: {low.message}", low)
        return
    if skipped := findings.first(skipped_updates):
        yield contradicts(strong, f"an update that is left out is not a small one: {skipped.message}", skipped)
    if stuck := [finding for finding in findings.of(barely_moving) if finding.value == 0]:
        yield contradicts(2 * strong, f"epsilon makes an update small, and never zero: {stuck[0].message}", stuck[0])
    if clipped := [finding for finding in findings.of(frequent_clipping) if finding.severity != "note"]:
        yield contradicts(strong, f"epsilon is large only beside what clipping leaves: {clipped[0].message}", clipped[0])
    if epsilon is not None and epsilon.finite.any():
        yield from _recorded(epsilon, _epsilon_of(epsilon, gradient, facts), 10 * usual_eps, strong)
        return
    moves = movement_per_rate(step, rate)
    if moves is None:
        return
    moved = float(moves.max())
    if moved >= small:
        yield contradicts(
            strong, f"there are matrices whose elements move by {moved:.2g} of the rate, as under Adam", step_over_rate.name
        )
        return
    if adapts is not None and adapts.finite.any():
        yield supports(medium, "the optimizer is one of Adam's kin", adapts.name)
    else:
        yield contradicts(strong, "nothing says that the optimizer has an epsilon, or steps by the rate", "optimizer")
    largest = _largest(gradient, facts)
    if largest is not None and largest < 1e3 * usual_eps:
        yield contradicts(strong, f"the gradient itself is small, {largest:.1g} per element", gradient_norm.name)
    elif largest is not None:
        yield supports(
            strong,
            f"no matrix moves by more than {moved:.1g} of the rate per element, where Adam moves all by 0.1 and more; "
            f"yet gradients are up to {largest:.1g} per element, {largest / usual_eps:.0e} times the usual epsilon",
            step_over_rate.name,
        )


def _epsilon_of(ratio: Series, gradient: Series | None, facts: Manifest | None) -> float | None:
    """Return the optimizer's epsilon, from its recorded ratio to the gradient per element; None without recorded gradients."""
    size = per_element(gradient, facts)
    if size is None:
        return None
    labels = [label for label in ratio.labels if label in size.places]
    sizes = at(size, ratio.steps).values[:, [size.places[label] for label in labels]]
    products = ratio.values[:, [ratio.places[label] for label in labels]] * sizes
    known = products[np.isfinite(products)]
    return float(np.median(known)) if known.size else None


def _recorded(
    epsilon: Series, given: float | None, usual: float, weight: float, *, felt: float = 1.0, unfelt: float = 1e-3
) -> Iterator[Evidence]:
    """Judge by the epsilon that the optimizer was given, over the gradient per element of the median matrix and checkpoint.

    Args:
        epsilon: The ratio, shape (C, P).
        given: The epsilon itself; None: not known.
        usual: An epsilon below this is as usual.
        weight: Log odds of a judgement, for or against.
        felt: Ratio from which on updates are half as long as they should be.
        unfelt: Ratio that no update feels.
    """
    middle = float(np.nanmedian(np.where(epsilon.finite, epsilon.values, np.nan)))
    if given is not None and given < usual:
        yield contradicts(weight, f"epsilon is {given:.1g}, as usual: it is the gradient that is small", epsilon.name)
    elif middle > felt:
        yield supports(weight, f"epsilon is {middle:.2g} times the gradient of an element of the median matrix", epsilon.name)
    elif middle < unfelt:
        yield contradicts(weight, f"epsilon is {middle:.1g} of the gradient of an element: no update feels it", epsilon.name)


def _largest(gradient: Series | None, facts: Manifest | None) -> float | None:
    """Return the largest matrix's gradient per element, the median over checkpoints."""
    size = per_element(gradient, facts)
    if size is None:
        return None
    known = size.only(lambda name: bool(size.finite[:, size.places[name]].any()))
    return float(np.nanmedian(np.where(known.finite, known.values, np.nan), axis=0).max()) if known.labels else None
