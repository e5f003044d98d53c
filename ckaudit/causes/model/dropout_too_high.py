"""Dropout removes most of the signal."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import UNSET

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.activations import activation_sparsity
from ckaudit.metrics.loss import train_val_gap
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.activations.dropout_rate_high import dropout_rate_high
from ckaudit.rules.data.split_overlap import split_overlap
from ckaudit.rules.data.target_misalignment import target_misalignment
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.loss.initial_loss_off import initial_loss_off
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.rules.rule import FACTS
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-1.5,
    good_checkpoint="newest",
    explains=[dropout_rate_high, train_val_inverted, loss_not_falling],
    follows=[activation_drift, dead_units, exploding_gradient, loss_spike, zero_gradients],
    wants=[train_val_gap, activation_sparsity, FACTS],
    knob="Lower dropout to 0.1 or to nothing; large data sets need none.",
    inspect="The dropout of the configuration, and the training loss of one batch with dropout and without it.",
    runbook="Keep the last checkpoint: training goes on from it with less dropout, and nothing is lost but time.",
)
def dropout_too_high(
    findings: Findings,
    gap: Series | None,
    sparsity: Series | None,
    facts: Manifest | None,
    *,
    max_usual_dropout: float = 0.5,
    strong: float = 3.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Dropout removes most of the signal, so that the training loss lies above the held-out one and hardly falls.

    Srivastava et al. 2014 drop a half (`max_usual_dropout`) in the widest layers, and less elsewhere. Wrong targets and a loss
    that is summed raise the training loss alone as well, and speak against this cause. Log odds are first guesses, to be fitted
    on runs of known truth.
    """
    rates = [*_configured(facts), *_seen(sparsity)]
    if facts is not None and isinstance(facts.dropout, float):
        module = facts.dropout_module
        rates.append((facts.dropout, f"the dropout of {module}" if module else "the largest dropout of all modules"))
    if rates:
        highest, where = max(rates)
        if highest > max_usual_dropout:
            yield supports(strong, f"{where} is {highest:.2g}: more is removed than is left", "run.json")
        else:
            yield contradicts(strong, f"{where} is {highest:.2g} and no more", "run.json")
    else:
        yield contradicts(medium, "neither the configuration nor a module tells of dropout", "run.json")
    if gap is not None and (level := gap.late_median()) is not None:
        if level < 0:
            yield supports(medium, f"held-out text, which gets no dropout, does better by {-level:.2g}", gap.name)
        else:
            # Where a module is known to drop most, the gap may close for other reasons, as in a run that overfits besides.
            weight = medium if findings.first(dropout_rate_high) else strong
            yield contradicts(weight, "held-out text does no better than the training set", gap.name)
    if other := findings.first(target_misalignment, initial_loss_off, split_overlap):
        yield contradicts(strong, f"the two losses differ for another reason: {other.message}", other)


def _configured(facts: Manifest | None) -> Iterator[tuple[float, str]]:
    """Yield the dropout rates in the configuration, at any depth."""
    for given in (facts.model, facts.config) if facts is not None else ():
        if given is not UNSET:
            yield from _rates(given)


def _rates(given: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    for key, value in given.items():
        if isinstance(value, dict):
            yield from _rates(value)
        elif "drop" in key.lower() and isinstance(value, (int, float)) and 0 <= value < 1:
            yield float(value), key


def _seen(sparsity: Series | None) -> Iterator[tuple[float, str]]:
    """Yield the share of zeros behind each module that calls itself dropout, at the median checkpoint."""
    for column, name in enumerate(sparsity.labels if sparsity is not None else ()):
        known = sparsity.values[sparsity.finite_in(column), column] if sparsity is not None else np.empty(0)
        if "drop" in name.lower() and known.size:
            yield median(known), f"the share of zeros behind {name}"
