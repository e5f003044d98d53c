"""The training was taken up again without the optimizer's state."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.shared.rate_course import changes_at_resumes, known_rate
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.data.repeated_batch import repeated_batch
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.resume.optimizer_state_reset import optimizer_state_reset
from ckaudit.rules.resume.seam_jump import seam_jump
from ckaudit.rules.resume.weights_jump import weights_jump
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.update_out_of_band import update_out_of_band
from ckaudit.run.run_facts import later_sessions, resume_steps
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[optimizer_state_reset, seam_jump],
    follows=[loss_spike, exploding_gradient, frequent_clipping, update_out_of_band, weights_jump],
    wants=[learning_rate, FACTS],
    knob="Save optimizer.state_dict() with the weights and load it, after the model is on its device; else warm up anew.",
    inspect="Both moments of the optimizer after loading: their step count, norms and the tensors that they belong to.",
    runbook="Stop, go back to the checkpoint of the resume and load it whole; if its state is gone, resume with a short warm-up.",
)
def optimizer_state_lost(
    findings: Findings,
    rate: Series | None,
    facts: Manifest | None,
    *,
    change: float = 0.2,
    decisive: float = 4.0,
    strong: float = 2.0,
) -> Iterator[Evidence]:
    """The training was taken up again without the optimizer's state.

    The first loss after the resume is that of the restored weights. The updates after it ruin these weights, at a rate within
    `change` of the one before. Log odds are first guesses.
    """
    if not resume_steps(facts):
        yield contradicts(decisive, "the run was never taken up again", "run.json")
        return
    if reset := findings.first(optimizer_state_reset):
        yield supports(decisive, reset.message, reset)
    else:
        yield contradicts(strong, "no loss that starts well after a resume and is thrown off by its first updates", "RESUME002")
    if any(session.optimizer_restored is True for session in later_sessions(facts)) and not findings.of(optimizer_state_reset):
        yield contradicts(decisive, "the optimizer held its state before the first update", "run.json")
    for seam in changes_at_resumes(*known_rate(rate), facts):
        if abs(np.log(seam.change)) > np.log1p(change):
            yield contradicts(
                decisive,
                f"the learning rate is {seam.after:.3g} after the resume and {seam.before:.3g} before it",
                learning_rate.name,
            )
    if again := [
        finding for finding in findings.of(repeated_batch) if finding.first_step in {seam + 1 for seam in resume_steps(facts)}
    ]:
        yield contradicts(strong, again[0].message, again[0])
