"""The training was taken up again with another learning rate."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Advice, Findings, cause, contradicts, supports
from ckaudit.causes.optimization.learning_rate_too_high import FOLLOWS
from ckaudit.causes.shared.rate_course import ResumeRates, changes_at_resumes, known_rate
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.gradients.exploding_gradient import exploding_gradient
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.resume.seam_jump import seam_jump
from ckaudit.rules.rule import FACTS
from ckaudit.rules.updates.barely_moving import barely_moving
from ckaudit.rules.updates.learning_rate_jump import learning_rate_jump
from ckaudit.rules.updates.learning_rate_zero import learning_rate_zero
from ckaudit.rules.updates.schedule_off_plan import schedule_off_plan
from ckaudit.run.run_facts import planned_rate, resume_steps
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[learning_rate_jump, schedule_off_plan, seam_jump],
    follows=[*FOLLOWS, barely_moving, learning_rate_zero],
    wants=[learning_rate, FACTS],
    knob="Save and restore the scheduler with the optimizer, and check the rate after the first resumed step.",
    inspect="The learning rate on the two sides of the resume: a schedule that began anew, a new config, a factor applied twice.",
    runbook="Stop and go back to the checkpoint of the resume: compare the restored rate with the logged one before going on.",
)
def learning_rate_wrong_after_resume(
    findings: Findings,
    rate: Series | None,
    facts: Manifest | None,
    *,
    change: float = 0.1,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence | Advice]:
    """The training was taken up again with another learning rate.

    The rate differs by more than `change` on the two sides of the resume, the planned change taken off. Without a resumed session
    this cause is ruled out. Log odds are first guesses.
    """
    steps, values = known_rate(rate)
    if not resume_steps(facts):
        yield contradicts(decisive, "the run was never taken up again", "run.json")
        return
    sides = changes_at_resumes(steps, values, facts)
    worst = max(sides, key=lambda seam: abs(np.log(seam.change)), default=None)
    if worst is None:
        return
    if abs(np.log(worst.change)) < np.log1p(change):
        yield contradicts(decisive, f"the rate goes on as it was after the resume, at {worst.after:.3g}", learning_rate.name)
        return
    is_factor = _is_factor(worst, facts, steps, values)
    yield supports(
        decisive,
        f"the rate is {worst.before:.3g} before the resume from step {worst.step} and {worst.after:.3g} after it, "
        f"{worst.change:.3g} times what the schedule goes on with{', to the last step' if is_factor else ''}",
        learning_rate.name,
    )
    if is_factor:
        yield Advice(
            f"Find the factor of {worst.change:.3g} in what the resume was configured with: the schedule stands where it should, "
            "its base rate does not."
        )
    yield from _began_anew(worst, facts, steps, medium)
    earlier = findings.before(worst.step + 1).of(loss_spike, exploding_gradient, schedule_off_plan)
    if earlier:
        yield contradicts(strong, f"the run was ill before the resume: {earlier[0].message}", earlier[0])


def _is_factor(seam: ResumeRates, facts: Manifest | None, steps: np.ndarray, values: np.ndarray, *, alike: float = 0.05) -> bool:
    """Tell whether the rate stays the same number of times its plan: then the place in the schedule is right."""
    later = steps > seam.step
    plan = planned_rate(facts, steps[later])
    if plan is None or not (plan > 0).any():
        return False
    times = values[later][plan > 0] / plan[plan > 0]
    return bool(np.ptp(times) < alike * times[0])


def _began_anew(seam: ResumeRates, facts: Manifest | None, steps: np.ndarray, medium: float) -> Iterator[Evidence]:
    """Tell whether the rate after the resume is the one planned for the first steps."""
    after = steps[steps > seam.step]
    plan = planned_rate(facts, after[:1] - seam.step)
    if plan is not None and abs(seam.after - plan[0]) < 0.02 * abs(plan[0]):
        yield supports(medium, "it is the rate planned for the first steps: the schedule began anew", learning_rate.name)
