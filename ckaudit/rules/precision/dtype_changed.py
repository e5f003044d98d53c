"""AMP003: tensors change their precision."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.words import element_type
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.column_builder import DTYPES
from ckaudit.run.series import Series


@rule("AMP003", severity="sev2", needs=[element_type], unit="1")
def dtype_changed(types: Series, *, min_points: int = 2, lasting_points: int = 1) -> Iterator[Hit | Skip]:
    """Tensors change their precision.

    ## What it checks
    The element type of every weight and of every module's output, from checkpoint to checkpoint (at least `min_points`). A type
    other than the first one, at `lasting_points` checkpoints in a row up to the end, is a change.
    ## Why it matters
    Autocast was lost, or the weights were loaded in another type: steps take another time, small updates vanish or are kept, and
    what is compared with the time before is not the same training (SR-3).
    ## False alarms
    A planned change of precision is reported too; a type that comes back to the first one is not.
    """
    yield from too_few(types, min_points)
    for column, label in enumerate(types.labels):
        rows = np.flatnonzero(types.recorded[:, column])
        values = types.values[rows, column]
        if len(rows) < min_points or values[0] == values[-1]:
            continue
        start = int(np.flatnonzero(values != values[-1])[-1]) + 1
        if len(rows) - start < lasting_points:
            continue
        yield Hit.at(
            types.steps[rows[start:]],
            "sev2",
            f"{{where}} was {_name(values[start - 1])} and is {_name(values[-1])} from step {{first}} on",
            where=label,
            worst=0,
        )


def _name(number: float) -> str:
    return DTYPES[int(number)] if number < len(DTYPES) else "of another type"
