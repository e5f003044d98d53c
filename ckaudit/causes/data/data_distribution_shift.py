"""From some step on the data comes from elsewhere."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.batches import has_no_token_shift, token_shift
from ckaudit.causes.shared.loss_curves import diverging_slices, gradient_at_jump, loss_jump, training_loss_jump
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.data import input_kl_drift, token_kl_drift
from ckaudit.metrics.loss import slice_val_loss, train_loss_raw, val_loss
from ckaudit.metrics.spikes import grad_norm_over_median
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.data.input_drift import input_drift
from ckaudit.rules.data.source_drift import source_drift
from ckaudit.rules.data.text_statistics_drift import text_statistics_drift
from ckaudit.rules.data.token_drift import token_drift
from ckaudit.rules.evaluation.probes_forgotten import probes_forgotten
from ckaudit.rules.evaluation.slice_regression import slice_regression
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.loss.train_val_inverted import train_val_inverted
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.rule import FACTS, is_written_by_ckaudit
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.series import Series

MIN_POINTS_AFTER = 20
"""How many losses after a jump show whether it stays; an instability may last for ten."""

CHANGES = (token_drift, input_drift, source_drift, text_statistics_drift)
"""Rules that see other data."""

LASTING_SHARE = 0.2
"""Share of a jump that is left at the end where it was no batch: new data is learnt, but more slowly than a batch is over."""


@cause(
    prior=-1.0,
    explains=[*CHANGES, overfitting, slice_regression, loss_spike, loss_rises],
    follows=[
        activation_drift,
        exploding_gradient,
        frequent_clipping,
        loss_not_falling,
        probes_forgotten,
        train_val_inverted,
        update_out_of_band,
    ],
    wants=[token_kl_drift, input_kl_drift, slice_val_loss, train_loss_raw, val_loss, grad_norm_over_median, FACTS],
    knob="Find what changed in the data at that step: a shard, a mixture weight, the tokenizer; mix the old data in again.",
    inspect="Shares of the sources and the divergence of the tokens over time, beside the held-out loss of each slice.",
    runbook="Keep the last checkpoint before the change; decode a batch from either side, and resume on the right data.",
)
def data_distribution_shift(
    findings: Findings,
    tokens: Series | None,
    inputs: Series | None,
    slices: Series | None,
    train: Series | None,
    val: Series | None,
    gradient: Series | None,
    facts: Manifest | None,
    *,
    near: int = 5,
    max_lead: float = 4.0,
    max_divergence: float = input_drift.thresholds["max_divergence"],
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """From some step on the data comes from elsewhere, and what was learnt before is forgotten.

    Data from elsewhere stays different to the end. How that shows depends on what was recorded:

    - The tokens go away from those of the first batch and stay away, and so do numbers, beyond `max_divergence`. A bad batch
      comes back; sources that come one after the other swing.
    - A jump of the loss within `near` steps of the change belongs to it.
    - Where tokens were not recorded, or the counts of each kind stay the same, the losses tell. Both jump; the training loss
      comes back, for the new data is learnt, and the held-out loss does not, for it is of the old data.
    - A gradient of more than `max_lead` times its median before the loss jumps does not come from new data.
    - Log odds are first guesses, to be fitted on runs of known truth.
    """
    drifted = findings.of(input_drift, source_drift, text_statistics_drift)
    now = token_shift(tokens) if tokens is not None else None
    if drifted:
        yield supports(strong, drifted[0].message, drifted[0])
    if now is not None and tokens is not None:
        yield supports(
            strong,
            f"since step {now[2]} the tokens are {now[1]:.2g} nats from the first ones, to the end; {now[0]:.2g} before",
            tokens.name,
        )
    elif not drifted and inputs is not None and (away := token_shift(inputs, min_drift=max_divergence)) is not None:
        where = f"since step {away[2]} the inputs are {away[1]:.2g} nats from the first ones, to the end; {away[0]:.2g} before"
        yield supports(strong, where, inputs.name)
        yield from (evidence for evidence in _by_curves(findings, train, val, facts, strong, medium) if evidence.weight > 0)
    elif not drifted:
        if tokens is not None and has_no_token_shift(tokens):
            yield contradicts(medium, "neither tokens nor sources have changed for good", tokens.name)
        yield from _by_curves(findings, train, val, facts, strong, medium)
        onset = findings.first(loss_spike, loss_rises)
        around = gradient_at_jump(gradient, onset.first_step or 0) if onset is not None else None
        if around is not None and around[0] > max_lead:
            yield contradicts(strong, "the gradient leads the loss: the model was leaving its basin on the old data", "GRAD002")
    drifts = findings.of(token_drift)
    if len(drifts) > 1:
        yield contradicts(medium, f"the tokens change {len(drifts)} times, to and fro", drifts[0])
    changes = findings.of(token_drift, input_drift)
    change = changes[0].first_step if changes else None
    spikes = findings.of(loss_spike)
    if change is not None and (together := [spike for spike in spikes if abs((spike.first_step or 0) - change) <= near]):
        yield supports(medium, f"the loss jumps with the change, at step {together[0].first_step}", together[0])
    turned = findings.first(overfitting, slice_regression)
    if turned is not None and now is not None and (turned.first_step or 0) >= now[2]:
        yield supports(medium, f"since the change, and not before, {turned.message}", turned)
    onset = findings.first(overfitting, slice_regression, token_drift, source_drift)
    if slices is not None and onset is not None and (two := diverging_slices(slices, onset.first_step or 0)):
        yield supports(medium, f"held-out {two[0]} gets worse while {two[1]} gets better", slices.name)


def _by_curves(
    findings: Findings, train: Series | None, val: Series | None, facts: Manifest | None, strong: float, medium: float
) -> Iterator[Evidence]:
    """Judge a run by its training and held-out losses, where its tokens say nothing."""
    spike = findings.first(loss_spike, loss_rises)
    if spike is not None and (jump := findings.before((spike.first_step or 0) + 1).of(learning_rate_jump)):
        yield contradicts(2 * strong, f"the data is not to blame for what came with the rate: {jump[0].message}", jump[0])
        return
    own = training_loss_jump(train, spike.first_step or 0) if spike is not None else None
    both = loss_jump(train, val, own.step) if own is not None else None
    stays = own is not None and own.stays > LASTING_SHARE and own.after >= MIN_POINTS_AFTER
    if own is not None and both is None and stays and findings.first(weights_jump) is None and is_written_by_ckaudit(facts):
        what = f"the loss jumps at step {own.step} and {own.stays:.0%} of it is left in the end; no weight was set"
        yield supports(medium, what, spike)
    elif both is not None and not both.is_of_both and stays:
        what = f"the training loss jumps at step {both.step} and stays up, the held-out loss does not: the model is what it was"
        yield supports(strong, what, val_loss.name)
    elif both is None or not both.is_of_both:
        yield contradicts(strong, "the two losses do not jump together, and no token or source tells of a change", val_loss.name)
    elif both.is_as_new:
        yield contradicts(
            2 * strong, f"at step {both.step} the loss is that of the first step: the model is new, not the data", spike
        )
    elif both.stays < 0.5 and both.held_out_stays > 1 - both.stays:
        yield supports(
            strong,
            f"both losses jump at step {both.step}; {1 - both.stays:.0%} of the training loss's rise is gone in the end, "
            "the held-out loss has not come back",
            val_loss.name,
        )
    else:
        yield contradicts(strong, f"both losses jump at step {both.step} and come back: the data is what it was", val_loss.name)
