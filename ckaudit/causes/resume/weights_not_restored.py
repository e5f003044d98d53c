"""The training was taken up again with weights other than those saved."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.rate_course import changes_at_resumes, known_rate
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.after_resume import loss_after_resume
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import weight_norm
from ckaudit.rules.activations.activation_drift import activation_drift
from ckaudit.rules.data.source_drift import source_drift
from ckaudit.rules.data.token_drift import token_drift
from ckaudit.rules.gradients.dominant_tensor import dominant_tensor
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.resume.optimizer_state_reset import optimizer_state_reset
from ckaudit.rules.resume.seam_jump import seam_jump
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.resume.weights_not_as_saved import weights_not_as_saved
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.run_facts import later_sessions, resume_steps
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[weights_not_as_saved, seam_jump, weights_jump],
    follows=[
        loss_spike,
        exploding_gradient,
        frequent_clipping,
        update_out_of_band,
        activation_drift,
        dominant_tensor,
        token_drift,
    ],
    wants=[loss_after_resume, learning_rate, FACTS, weight_norm],
    knob="Load with strict=True, and compare a hash or the norm of every tensor with what was saved.",
    inspect="The path that the resume loaded from, its missing and unexpected keys; weight norms on the two sides of the seam.",
    runbook="Stop and go back to the checkpoint of the resume: evaluate the saved and the loaded weights on one batch.",
)
def weights_not_restored(
    findings: Findings,
    above: Series | None,
    rate: Series | None,
    facts: Manifest | None,
    size: Series | None,
    *,
    far: float = 3.0,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The training was taken up again with weights other than those saved.

    The very first loss after the resume is that of the loaded weights, before any update. The weights are not those that were
    saved where this loss is more than `far` deviations above the line of the losses before, and more than a third as far as any
    that follows. Recorded norms of the weights are decisive, and tell which tensors differ. Log odds are first guesses.
    """
    borders = resume_steps(facts)
    if not borders:
        yield contradicts(decisive, "the run was never taken up again", "run.json")
        return
    if above is not None:
        yield from _by_first_loss(above, borders, far, strong)
    sides = changes_at_resumes(*known_rate(rate), facts)
    if changed := [seam for seam in sides if abs(np.log(seam.change)) > 0.1]:
        yield contradicts(
            strong,
            f"the learning rate is {changed[0].after:.3g} after the resume, {changed[0].before:.3g} before",
            "learning_rate",
        )
    elif sides:
        yield supports(medium, "the learning rate goes on as it was", learning_rate.name)
    if other := findings.first(weights_not_as_saved):
        yield supports(decisive, other.message, other)
    elif size is not None and any(
        session.weight_norms and session.resumed_from in size.steps for session in later_sessions(facts)
    ):
        yield contradicts(decisive, "every tensor had the norm that it was saved with", "RESUME004")
    if jump := next(
        (finding for finding in findings.of(weights_jump) if finding.first_step in {seam + 1 for seam in borders}), None
    ):
        yield supports(strong, jump.message, jump)
    if reset := findings.first(optimizer_state_reset):
        yield contradicts(strong, "the loss starts well after the resume and is thrown off later", reset)
    if drift := next((finding for finding in findings.of(token_drift, source_drift) if finding.first_step is not None), None):
        yield contradicts(medium, f"the data changes too: {drift.message}", drift)


def _by_first_loss(above: Series, borders: list[int], far: float, weight: float) -> Iterator[Evidence]:
    """Judge by the first loss after a resume, which no update has changed yet."""
    first_losses = _first_losses(above, borders)
    if not first_losses:
        return
    step, value, highest = max(first_losses, key=lambda loss: loss[2])
    if value > max(far, highest / 3):
        yield supports(
            weight,
            f"the first loss after the resume, before any update, is {value:.2g} deviations too high (step {step})",
            above.name,
        )
    else:
        yield contradicts(
            weight, f"the first loss after the resume is {value:+.2g} deviations off, and later ones {highest:+.2g}", above.name
        )


def _first_losses(above: Series, borders: list[int]) -> list[tuple[int, float, float]]:
    """Return the first step after each resume, how far its loss is off, and the furthest of those that follow."""
    first_losses = []
    for seam, end in zip(borders, [*borders[1:], np.iinfo(np.int64).max], strict=True):
        rows = np.flatnonzero((above.steps > seam) & (above.steps <= end))
        values = above.values[rows, 0]
        if len(rows) and np.isfinite(values[0]):
            first_losses.append((int(above.steps[rows[0]]), float(values[0]), float(np.nanmax(values))))
    return first_losses
