"""The arithmetic changes its precision in the middle of the run."""

from collections.abc import Iterator

from msgspec import UNSET

from ckaudit.causes.cause import Findings, cause, places_of, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.rules.loss.loss_spike import loss_spike
from ckaudit.rules.precision.dtype_changed import dtype_changed
from ckaudit.rules.resume.seam_jump import seam_jump
from ckaudit.rules.rule import FACTS
from ckaudit.rules.systems.low_utilization import low_utilization
from ckaudit.rules.systems.memory_creep import memory_creep
from ckaudit.rules.systems.step_time_jump import step_time_jump
from ckaudit.rules.systems.throughput_drop import throughput_drop


@cause(
    prior=0.0,
    explains=[dtype_changed],
    follows=[loss_spike, low_utilization, memory_creep, seam_jump, step_time_jump, throughput_drop],
    wants=[FACTS],
    knob="Put the step back under autocast, with the dtype it had; or cast the loaded weights to the type they had before.",
    inspect="The context around the forward pass, what a resume or an update of a library sets, and the dtype of what is loaded.",
    runbook="Save both sides of the change; losses before and after are no longer of the same arithmetic.",
)
def precision_changed(
    findings: Findings, facts: Manifest | None, *, strong: float = 2.0, medium: float = 1.0, weak: float = 0.5
) -> Iterator[Evidence]:
    """The arithmetic changes its precision in the middle of the run.

    Element types are recorded as they are: a change of several places at once is one switch. Log odds are on the common scale
    (`causes/cause.py`).
    """
    first = findings.first(dtype_changed)
    if first is None or first.first_step is None:
        return
    yield supports(strong, first.message, first)
    count = len(places_of(finding for finding in findings.of(dtype_changed) if finding.first_step == first.first_step))
    if count > 1:
        yield supports(medium, f"{count} places change at the same checkpoint: it is one switch", first)
    if slower := findings.first(step_time_jump, throughput_drop):
        yield supports(medium, f"the speed changes too: {slower.message}", slower)
    seams = [session.resumed_from for session in (facts.sessions if facts and facts.sessions is not UNSET else ())]
    if any(step is not UNSET and step < first.first_step for step in seams):
        yield supports(weak, "the run was taken up again before it", "run.json")
