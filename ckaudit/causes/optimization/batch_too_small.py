"""The gradient of so small a batch is mostly noise."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.landscape import grad_noise_scale
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.loss_function import loss_targets
from ckaudit.metrics.progress import tokens_per_update
from ckaudit.rules.activations.dead_units import dead_units
from ckaudit.rules.attention.entropy_collapse import entropy_collapse
from ckaudit.rules.data.token_drift import token_drift
from ckaudit.rules.gradients.dominant_tensor import dominant_tensor
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.gradients.gradient_noise_too_high import gradient_noise_too_high, typical_jump
from ckaudit.rules.loss.loss_not_falling import loss_not_falling
from ckaudit.rules.loss.loss_rises import loss_rises
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.nonfinite_values import nonfinite_values
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-2.0,
    good_checkpoint="newest",
    explains=[gradient_noise_too_high, loss_spike, exploding_gradient, loss_not_falling, loss_rises],
    follows=[frequent_clipping, token_drift, dominant_tensor, entropy_collapse, update_out_of_band, dead_units],
    wants=[tokens_per_update, train_loss_raw, grad_noise_scale, FACTS, loss_targets],
    knob="Use more rows in a batch, or accumulate gradients over several, and then try the same learning rate again.",
    inspect="How far the loss jumps from step to step against how far it falls; the gradient noise scale where it is measured.",
    runbook="Nothing is broken: go on from the last checkpoint with a batch several times as large.",
)
def batch_too_small(
    findings: Findings,
    tokens: Series | None,
    loss: Series | None,
    noise: Series | None,
    facts: Manifest | None,
    targets: Series | None,
    *,
    rows: float = 4.0,
    jitter: float = 0.05,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The gradient of so small a batch is mostly noise.

    A batch has few rows below `rows` sequences, or where the loss function is given fewer targets than that. The loss of a small
    batch jumps by more than `jitter` of itself from step to step; a mean over many tokens does not. A loss that runs away is not
    judged so, for its climb makes as large a difference. Log odds are first guesses.
    """
    if tokens is not None and tokens.finite.any() and facts is not None and facts.sequence_length:
        count = median(tokens.values[tokens.finite]) / facts.sequence_length
        if count < rows:
            yield supports(strong, f"sequences in an update: {count:.3g}", tokens.name)
        elif count > 8 * rows:
            yield contradicts(strong, f"sequences in an update: {count:.3g}", tokens.name)
    if targets is not None and targets.finite.any() and 0 < (count := median(targets.values[targets.finite])) < rows:
        yield supports(2 * strong, f"targets that the loss function is given in a step: {count:.3g}", targets.name)
    runs_away = findings.first(loss_rises, nonfinite_values)
    if loss is not None and not runs_away and (jump := typical_jump(loss)) is not None:
        if jump > jitter:
            yield supports(medium, f"the loss differs by {jump:.0%} from one step to the next (median)", loss.name)
        else:
            yield contradicts(medium, f"the loss differs by {jump:.1%} from one step to the next (median)", loss.name)
    if noise is not None and noise.finite.any() and tokens is not None and facts is not None and facts.sequence_length:
        needed = median(noise.values[noise.finite])
        used = median(tokens.values[tokens.finite]) / facts.sequence_length
        if needed > 10 * used:
            yield supports(medium, f"the gradient's noise is worth {needed:.3g} examples, a batch has {used:.3g}", noise.name)
