"""A checkpoint was not written to its end."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.contract.violations import BAD_COMPRESSION, EMPTY, TRUNCATED
from ckaudit.metrics.observability import checkpoint_written
from ckaudit.rules.files.broken_checkpoint import broken_checkpoint
from ckaudit.rules.files.missing_checkpoint import missing_checkpoint
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[TRUNCATED, EMPTY, BAD_COMPRESSION],
    follows=[broken_checkpoint, missing_checkpoint],
    wants=[checkpoint_written],
    knob="Write to a temporary file, flush it to disk, and rename it when it is whole.",
    inspect="Free space and quota of the disk, and whether the writer was killed at that time.",
    runbook="Protect the last whole checkpoint before the next one takes its place; the broken file is of no use.",
)
def checkpoint_cut_off(
    findings: Findings, written: Series | None, *, few: float = 0.5, strong: float = 2.0, medium: float = 1.0, weak: float = 0.5
) -> Iterator[Evidence]:
    """A checkpoint was not written to its end.

    A file that ends in the middle is a strong sign; an empty one may be a place that was only reserved. Where more than `few` of
    the files cannot be read, the writer is wrong and no accident happened. Log odds are on the common scale (`causes/cause.py`).
    """
    cut, empty = findings.of(TRUNCATED), findings.of(EMPTY)
    if cut:
        yield supports(strong, f"{cut[0].file or 'a file'}: {cut[0].message}", cut[0])
    elif empty:
        yield supports(medium, f"{empty[0].file or 'a file'} was begun and holds nothing", empty[0])
    if written is not None:
        whole, total = int((written.values[written.recorded] == 1).sum()), int(written.recorded.sum())
        if total - whole > few * total:
            yield contradicts(strong, f"{total - whole} of {total} checkpoints cannot be read: the writer is wrong", written.name)
        elif whole:
            yield supports(weak, f"{whole} other checkpoints are whole", written.name)
