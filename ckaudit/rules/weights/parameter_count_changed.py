"""MODEL001: the tensors are not those that were there before."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.weights import weight_norm
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series


@rule("MODEL001", severity="sev1", needs=[weight_norm], unit="tensors")
def parameter_count_changed(norm: Series, *, min_points: int = 2) -> Iterator[Hit | Skip]:
    """The tensors are not those that were there before.

    ## What it checks
    Which weight tensors each checkpoint names. A tensor came or went where it is in all checkpoints from some step on and in none
    before, or the other way round. At least `min_points` checkpoints are compared.
    ## Why it matters
    A tie between embedding and head was lost at a resume, or another model was loaded: two matrices drift apart where one was
    meant, and the optimizer knows nothing of the new one.
    ## False alarms
    A writer that names other tensors each time tells nothing: only a single change that splits the run in two counts. A model
    that grows on purpose changes its tensors too, and is reported.
    """
    yield from too_few(norm, min_points)
    rows = norm.recorded_rows()
    if rows.recorded.all() or len(rows.steps) < min_points:
        return
    changes = np.flatnonzero((rows.recorded[1:] != rows.recorded[:-1]).any(axis=1)) + 1
    if len(changes) != 1:
        return
    switch = int(changes[0])  # the row at which all tensors come or go
    step = int(rows.steps[switch])
    for came, what in ((True, "new"), (False, "gone")):
        names = [label for label, has_changed in zip(rows.labels, rows.recorded[switch] == came, strict=True) if has_changed]
        changed = [name for name in names if not rows.recorded[:, rows.places[name]].all()]
        if changed:
            yield Hit(
                severity="sev1",
                where=changed[0],
                also=tuple(changed[1:]),
                first=step,
                last=int(rows.steps[-1]),
                worst=step,
                value=float(rows.recorded[switch].sum()),
                limit=float(rows.recorded[switch - 1].sum()),
                points=len(rows.steps) - switch,
                joined_by=step,
                message="{where} is " + what + ": from step {first} on there are {value:.0f} tensors, before {limit:.0f}",
            )
