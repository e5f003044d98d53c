"""Targets do not belong to the inputs beside them."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence
from ckaudit.metrics.data import target_shift_match
from ckaudit.rules.dead_parameter import dead_parameter
from ckaudit.rules.dominant_tensor import dominant_tensor
from ckaudit.rules.loss_not_falling import loss_not_falling
from ckaudit.rules.overfitting import overfitting
from ckaudit.rules.target_equals_input import target_equals_input
from ckaudit.rules.target_misalignment import target_misalignment
from ckaudit.rules.train_val_inverted import train_val_inverted
from ckaudit.rules.uniform_heads import uniform_heads
from ckaudit.rules.update_out_of_band import update_out_of_band
from ckaudit.rules.vanishing_gradient import vanishing_gradient
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[target_misalignment],
    follows=[
        dead_parameter, dominant_tensor, loss_not_falling, overfitting, train_val_inverted, uniform_heads, update_out_of_band,
        vanishing_gradient,
    ],
    wants=[target_shift_match],
    knob="Make inputs and targets from one array, shifted by one exactly once, after shuffling, cropping and packing.",
    inspect="Where inputs and targets part in the loader: offsets, a second shift inside the model, a shuffle of one of the two.",
    runbook="Stop. Decode one row of inputs and of targets side by side; keep that batch as a test of the loader.",
)  # fmt: skip
def targets_misaligned(
    found: Findings, match: Series | None, *,
    chance: float = 0.2, most: float = 0.5, decisive: float = 4.0, strong: float = 2.0,
) -> Iterator[Evidence]:  # fmt: skip
    """Targets do not belong to the inputs beside them: they are shifted twice, or shuffled.

    Two unrelated tokens of a text are equal with the probability that its commonest tokens have, at most `chance`. Where more
    than `most` of the targets are right since it began, some are wrong, which is noise and no shift. Weights follow the scale
    that all causes share.
    """
    first = found.first(target_misalignment)
    if first is None:
        return
    if same := found.first(target_equals_input):
        yield contradicts(decisive, "the targets are the inputs themselves", same)
        return
    if match is None:
        return
    level = float(np.median(match.values[(match.steps >= (first.first_step or 0))[:, None] & match.finite]))
    if level < chance:
        yield supports(decisive, f"{level:.0%} of the targets follow their input, as many as of unrelated tokens", first)
    elif level > most:
        yield contradicts(strong, f"{level:.0%} of the targets are right: some are wrong, none is out of place", first)
