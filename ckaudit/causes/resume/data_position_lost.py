"""The training was taken up again from the beginning of the data."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.data import batch_repeat_distance
from ckaudit.rules.data.repeated_batch import repeated_batch
from ckaudit.rules.loss.overfitting import overfitting
from ckaudit.rules.resume.seam_jump import seam_jump
from ckaudit.rules.rule import FACTS
from ckaudit.run.run_facts import resume_steps
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[repeated_batch],
    follows=[seam_jump, overfitting],
    wants=[batch_repeat_distance, FACTS],
    knob="Save the sampler's position and epoch with the weights, and restore them: skip what was seen, or seed by the step.",
    inspect="Batch hashes on the two sides of the resume; the sampler's seed, epoch and start index after loading.",
    runbook="Go back to the checkpoint of the resume and skip the batches that were seen; what came twice cannot be unlearnt.",
)
def data_position_lost(
    findings: Findings, distance: Series | None, facts: Manifest | None, *, near: int = 10, decisive: float = 4.0
) -> Iterator[Evidence]:
    """The training was taken up again from the beginning of the data.

    Within `near` steps after a resume the batches are those of the run's first steps: each was seen as many steps before as the
    resume's own step says. Log odds are first guesses.
    """
    first = findings.first(repeated_batch)
    borders = resume_steps(facts)
    if not borders:
        yield contradicts(decisive, "the run was never taken up again", "run.json")
        return
    for seam in borders if distance is not None else ():
        again = distance.steps[(distance.values[:, 0] == seam) & (distance.steps > seam)] if distance is not None else []
        if len(again) and again[0] <= seam + near:
            yield supports(
                decisive,
                f"from step {again[0]} on, after the resume from step {seam}, {len(again)} batches are those of {seam} "
                "steps before, in their order",
                first,
            )
            return
    yield contradicts(decisive, "the repeats do not begin at a resume", first)
