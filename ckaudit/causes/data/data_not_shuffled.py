"""Sources come one after the other."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.data import token_kl_drift
from ckaudit.metrics.loss import slice_val_loss
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.data.batches_of_one_kind import batches_of_one_kind
from ckaudit.rules.data.source_drift import source_drift
from ckaudit.rules.data.text_statistics_drift import text_statistics_drift
from ckaudit.rules.data.token_drift import token_drift
from ckaudit.rules.evaluation.probes_forgotten import probes_forgotten
from ckaudit.rules.evaluation.slice_regression import slice_regression
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.loss_oscillates import loss_oscillates
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    good_checkpoint="none",
    explains=[batches_of_one_kind, token_drift, source_drift, slice_regression, loss_spike],
    follows=[
        activation_drift,
        exploding_gradient,
        frequent_clipping,
        loss_oscillates,
        loss_rises,
        overfitting,
        probes_forgotten,
        text_statistics_drift,
        train_val_inverted,
        update_out_of_band,
    ],
    wants=[token_kl_drift, slice_val_loss],
    knob="Shuffle over all sources before batching, with a buffer that is larger than the longest of them.",
    inspect="The source of each batch over time, and the order of the shards in the loader's configuration.",
    runbook="Nothing is worth keeping of a model that has just forgotten the other sources: shuffle and begin again.",
)
def data_not_shuffled(
    findings: Findings,
    tokens: Series | None,
    slices: Series | None,
    *,
    near: int = 5,
    even: float = 0.15,
    swing: float = 1.5,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Sources come one after the other, or classes, so that each change is a shock and the last one is forgotten.

    Where a batch was seen to hold targets of one kind, there is nothing to guess. Otherwise:

    - The loss jumps where the tokens change, within `near` steps, and does so more than once.
    - The distances between the jumps are alike where the sources are equally long: their spread is below `even` of their mean.
    - Slices of held-out text take turns: one stands above `swing` times its best while another is at its own best.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    if sorted_batches := findings.first(batches_of_one_kind):
        yield supports(decisive, sorted_batches.message, sorted_batches)
        return
    spikes = [finding.first_step for finding in findings.of(loss_spike) if finding.first_step is not None]
    drifts = [finding.first_step for finding in findings.of(token_drift, source_drift) if finding.first_step is not None]
    comes_back = tokens is not None and _comes_back(tokens)
    met = [step for step in drifts if any(abs(step - spike) <= near for spike in spikes)]
    if len(met) > 1:
        yield supports(
            strong, f"{len(met)} times the tokens change and the loss jumps at the same step, first at {met[0]}", "token_drift"
        )
    elif len(drifts) > 2:
        yield supports(medium, f"tokens or sources change {len(drifts)} times", "token_drift")
    elif not (drifts and comes_back):
        yield contradicts(strong, "tokens and sources do not change again and again", "token_drift")
    if len(spikes) > 2 and (apart := np.diff(spikes)).std() < even * apart.mean():
        yield supports(medium, f"the jumps come every {apart.mean():.0f} steps", "loss_spike")
    if comes_back:
        yield supports(medium, "the tokens go away from the first ones and come back", token_kl_drift.name)
    if slices is not None and (turns := _take_turns(slices, swing)):
        yield supports(medium, f"held-out slices take turns: {turns[0]} is worst when {turns[1]} is best", slices.name)


def _comes_back(tokens: Series, *, low: float = 0.1, high: float = 0.5) -> bool:
    """Tell whether the tokens' divergence, once over `high` nats, falls again below `low`, or below a quarter of its highest."""
    known = tokens.values[tokens.finite]
    far = np.flatnonzero(known > high)
    return bool(len(far) and (known[far[0] :] < max(low, float(known.max()) / 4)).any())


def _take_turns(slices: Series, swing: float) -> tuple[str, str] | None:
    """Return a slice that stands above `swing` times its best while another is at its own best, and that other one."""
    values = np.where(slices.finite, slices.values, np.nan)
    if len(values) < 4 or not np.isfinite(values).all():
        return None
    best = np.minimum.accumulate(values, axis=0)
    for column, row in enumerate(values[2:].argmin(axis=0) + 2):
        risen = values[row] / best[row]
        if risen.max() > swing:
            return slices.labels[int(risen.argmax())], slices.labels[column]
    return None
