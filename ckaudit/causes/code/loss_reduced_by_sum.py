"""The loss is a sum over tokens where a mean is meant."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.optimization.learning_rate_too_high import EXPLAINS, FOLLOWS
from ckaudit.causes.shared.loss_curves import train_over_held_out
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.loss import initial_loss_excess, train_loss_raw, val_loss
from ckaudit.metrics.loss_function import loss_to_function_ratio
from ckaudit.metrics.progress import tokens_per_update
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.rules.files.contradicted_claim import contradicted_claim
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.rules.precision.impossible_value import impossible_value
from ckaudit.run.medians import median
from ckaudit.run.run_facts import is_adaptive
from ckaudit.run.series import Series, at

SHOWN_BY_LOSSES = (initial_loss_off, train_val_inverted)
"""Illnesses that show a sum without a look at the loss function; all others that follow from a sum have many causes."""


@cause(
    prior=-1.5,
    good_checkpoint="none",
    explains=[*SHOWN_BY_LOSSES, *EXPLAINS, frequent_clipping],
    follows=[*FOLLOWS, impossible_value, contradicted_claim],
    wants=[train_loss_raw, val_loss, tokens_per_update, initial_loss_excess, loss_to_function_ratio, optimizer_adapts],
    knob="Divide the loss by the number of its targets, and by the micro-batches of an update, before the backward pass.",
    inspect="The call of the loss and its reduction; what accumulation and padding divide by.",
    runbook="Nothing to save: mend the reduction, restart, and see the first loss near the log of the vocabulary.",
)
def loss_reduced_by_sum(
    findings: Findings,
    train: Series | None,
    val: Series | None,
    tokens: Series | None,
    excess: Series | None,
    given: Series | None,
    adapts: Series | None,
    *,
    min_ratio: float = 5.0,
    within: float = 0.3,
    whole: float = 0.03,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The loss is a sum over tokens where a mean is meant.

    The training loss is then a multiple of the held-out loss. Its size says what was added up:

    - A sum over tokens is as many times the held-out loss as an update has tokens, to a share of `within`.
    - A multiple of 2 or more that is a whole number, to a share of `whole`, at the first and the last evaluation alike, is a sum
      over micro-batches: gradients are accumulated, and the loss is not divided by their number.
    - Any other multiple below `min_ratio` is no sum.
    - Where tokens were not counted, a multiple that is the same at the first and the last evaluation, to a share of `within`, is
      one of units. Noise makes a difference between the losses instead, which is small at first.
    - Where the loss function was seen, it tells at every checkpoint whether its mean is trained on, or a multiple of the mean
      that stays the same. Adam does not mind the factor.
    - Log odds are first guesses.
    """
    if by_function := [*_by_function(given, adapts, min_ratio, within, decisive)]:
        yield from by_function
        return
    if not findings.of(*SHOWN_BY_LOSSES):
        yield contradicts(decisive, "neither the first loss nor a held-out one tells of a sum", train_loss_raw.name)
        return
    ratio = _over_held_out(train, val)
    usual = median(tokens.values[tokens.finite]) if tokens is not None and tokens.finite.any() else None
    both = train_over_held_out(train, val)
    if both is not None and (parts := round(both[0])) >= 2 and all(abs(times / parts - 1) < whole for times in both):
        what = f"the training loss is {parts} times the held-out loss, at the first evaluation as at the last"
        yield supports(decisive, f"{what}: losses are added up where their mean is meant", val_loss.name)
        return
    if ratio is not None and ratio < min_ratio:
        yield contradicts(decisive, f"the training loss is {ratio:.2g} times the held-out loss: no sum of many", val_loss.name)
        return
    if ratio is not None:
        yield supports(strong, f"the training loss is {ratio:.3g} times the held-out loss", val_loss.name)
        if usual and abs(ratio / usual - 1) < within:
            yield supports(decisive, f"an update has {usual:.4g} tokens: the loss is their sum", tokens_per_update.name)
        if not usual and both is not None and min(both) > min_ratio and abs(both[1] / both[0] - 1) < within:
            yield supports(strong, f"it is the same multiple, {both[1]:.4g}, at the last evaluation", val_loss.name)
        return
    first = findings.first(initial_loss_off)
    if first is None or excess is None or train is None or not train.finite.any():
        return
    start = float(train.values[train.finite][0])
    guess = start - float(excess.values[-1, 0])
    if guess > 0 and start > min_ratio * guess:
        yield supports(medium, f"the first loss is {start / guess:.3g} times that of a guess", first)
        if usual and abs(start / guess / usual - 1) < within:
            yield supports(decisive, f"an update has {usual:.4g} tokens: the loss is their sum", tokens_per_update.name)
    else:
        yield contradicts(decisive, f"the first loss is {start:.3g}: no sum of many", first)


def _by_function(
    given: Series | None, adapts: Series | None, min_ratio: float, within: float, decisive: float
) -> Iterator[Evidence]:
    """Judge by the loss over the mean that the loss function returned; where that is only a few times, curves tell more."""
    multiples = given.values[given.finite] if given is not None else np.empty(0)
    if not multiples.size:
        return
    lowest, highest = float(multiples.min()), float(multiples.max())
    what = f"what is trained on is {lowest:.3g} times the mean loss of its targets"
    if abs(lowest - 1) < within:
        yield contradicts(decisive, what, loss_to_function_ratio.name)
    elif lowest >= min_ratio and highest > (1 + within) * lowest:
        yield contradicts(decisive, f"{what}, and {highest:.3g} times by then: it has other parts", loss_to_function_ratio.name)
    elif lowest >= min_ratio:
        yield supports(1.5 * decisive, what, loss_to_function_ratio.name)
        if adapts is not None and is_adaptive(adapts):
            yield contradicts(decisive, "the optimizer divides each gradient by its own size, and a factor with it", adapts.name)


def _over_held_out(train: Series | None, val: Series | None) -> float | None:
    """Return the median ratio of training to held-out loss at evaluations."""
    if train is None or val is None or not train.labels:
        return None
    with np.errstate(all="ignore"):
        ratio = at(train, val.steps).values[:, :1] / np.where(val.values > 0, val.values, np.nan)
    return float(np.nanmedian(ratio)) if np.isfinite(ratio).any() else None
