"""Checkpoints that were due are not there."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.contract.violations import TRUNCATED
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.rules.files.missing_checkpoint import missing_checkpoint
from ckaudit.rules.systems.monitoring_blackout import monitoring_blackout
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[missing_checkpoint],
    wants=[train_loss_raw],
    knob="Look why nothing was written at these steps (disk, upload, an eager clean-up), and let it fail loudly.",
    inspect="The writer's log at the steps named, and whatever moves or deletes files in the folder.",
    runbook="Write a checkpoint now and see it read back; what happened between the two neighbours cannot be told any more.",
)
def checkpoint_missing(
    findings: Findings, loss: Series | None, *, strong: float = 2.0, medium: float = 1.0
) -> Iterator[Evidence]:
    """Checkpoints that were due are not there, though the training went on.

    Steps that were logged within the gap tell a writer that failed from a training that stood still. Log odds are on the common
    scale (`causes/cause.py`).
    """
    gap = findings.first(missing_checkpoint)
    if gap is None or gap.first_step is None or gap.last_step is None:
        return
    yield supports(strong, gap.message, gap)
    if loss is not None:
        logged = int(((loss.steps >= gap.first_step) & (loss.steps <= gap.last_step)).sum())
        if logged:
            yield supports(medium, f"the log has {logged} steps of that time: the training went on", loss.name)
        else:
            yield contradicts(strong, "the log has nothing of that time either", loss.name)
    if dark := findings.first(monitoring_blackout):
        yield contradicts(medium, dark.message, dark)
    if cut := findings.first(TRUNCATED):
        yield contradicts(medium, f"a file was cut off: {cut.message}", cut)
