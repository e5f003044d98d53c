"""Ranks that should hold the same weights do not."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.words import replica_agreement
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.systems.rank_divergence import rank_divergence
from ckaudit.run.series import Series


@cause(
    prior=0.0,
    explains=[rank_divergence],
    follows=[loss_spike, exploding_gradient, loss_rises],
    wants=[replica_agreement],
    knob="Find what one rank does alone after gradients are averaged: clipping, a skipped step, dropout or noise in the update.",
    inspect="Parameter hashes tensor by tensor on two ranks, at the first step that they differ; norms and biases first.",
    runbook="Stop. Broadcast the weights of one rank, or go back to the last checkpoint at which the hashes were equal.",
)
def replicas_diverged(
    findings: Findings, agreement: Series | None, *, strong: float = 3.0, medium: float = 1.0
) -> Iterator[Evidence]:
    """Ranks that should hold the same weights do not.

    Equal weights with equal gradients stay equal bit by bit. Hashes that differ and stay so mean that an update was not the same
    everywhere. Log odds are first guesses.
    """
    first = findings.first(rank_divergence)
    if first is None or agreement is None or not agreement.finite.any():
        return
    values = agreement.values[agreement.finite]
    if values[0] >= 1:
        yield supports(strong, f"the ranks held the same weights until step {first.first_step}", first)
    else:
        yield supports(medium, "the ranks hold different weights from the first check on", first)
    bad = np.flatnonzero(values < 1)
    if len(bad) and (values[bad[0] :] < 1).all():
        yield supports(medium, "and never agree again", first)
    elif len(bad):
        yield contradicts(medium, "they agree again later: a hash may have been taken in the middle of an update", first)
