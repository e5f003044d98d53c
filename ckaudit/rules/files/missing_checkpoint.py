"""FILE001: a checkpoint that was due is not there."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from msgspec import UNSET

from ckaudit.contract.cadence import next_due, ordinal
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.observability import checkpoint_written
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.series import Series


@rule("FILE001", severity="sev2", needs=[checkpoint_written, FACTS], unit="checkpoints")
def missing_checkpoint(written: Series, facts: Manifest, *, min_missing: int = 1) -> Iterator[Hit | Skip]:
    """A checkpoint that was due is not there.

    ## What it checks
    The cadence that run.json declares against the analysis checkpoints found: a gap in which `min_missing` or more were due.
    ## Why it matters
    What happened between the two can no longer be told, and a writer that fails once may fail when it counts (M61).
    ## False alarms
    Only steps between the first and the last checkpoint count; a file that is there but cannot be read is no gap. A cadence
    that was changed on the way must be declared.
    """
    if facts.cadence is UNSET or not facts.cadence or any(cadence.every <= 0 for cadence in facts.cadence):
        yield Skip("not_recorded", "needs a cadence in run.json")
        return
    steps = [int(step) for step in np.unique(written.steps[written.recorded[:, 0]])]
    for older, newer in pairwise(steps):
        gone = ordinal(newer - 1, facts.cadence) - ordinal(older, facts.cadence)
        due = next_due(older, facts.cadence)
        if gone >= min_missing and due is not None:
            yield Hit(
                severity="sev2",
                where="checkpoints",
                first=due,
                last=newer - 1,
                worst=due,
                value=float(gone),
                limit=0.0,
                points=gone,
                message=f"{{value:.0f}} checkpoints that were due between steps {older} and {newer} are not there",
            )
