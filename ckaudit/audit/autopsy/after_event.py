"""What was back in its range after the event, and since which step."""

from collections.abc import Iterator, Sequence

import numpy as np

from ckaudit.audit.autopsy.files import EventFile
from ckaudit.audit.autopsy.flight_recorder import channels
from ckaudit.audit.autopsy.ranges import RANGES, is_back
from ckaudit.audit.autopsy.result import KINDS, Departure, Kind, Moment, Return
from ckaudit.metrics.gradients import grad_global_norm, gradient_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.metric import Metric
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import update_norm
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps

LOGGED: dict[Kind, Metric] = {
    "loss": train_loss_raw,
    "gradient_norm": grad_global_norm,
    "learning_rate": learning_rate,
    "gradient": gradient_norm,
    "update": update_norm,
}


def returns(run: Run, files: Sequence[EventFile], told: Sequence[Moment], event: int) -> Iterator[Return]:
    """Yield of each number that left its range what the rest of the record says of it."""
    boxes = [(each.history.steps, channels(each.history)) for each in files if each.history and each.history.steps[-1] > event]
    left = {(each.kind, each.name): each for moment in told for each in moment.departures if each.kind != "batch"}
    for each in sorted(left.values(), key=lambda each: KINDS.index(each.kind)):
        later = dict(_logged(run, each, event))
        for steps, found in boxes:
            match = next((channel for channel in found if (channel.kind, channel.name) == (each.kind, each.name)), None)
            if match is not None:
                later |= {step: value for step, value, known in zip(steps, match.values, match.recorded, strict=True) if known}
        kept = sorted(step for step in later if step > event)
        yield _return(each, np.array(kept, np.int64), np.array([later[step] for step in kept]))


def _return(each: Departure, steps: Steps, values: Floats, *, lasting: int = 3) -> Return:
    """Return the first step of `lasting` in a row that are back, or of as many as there are to the end."""
    back = is_back(values, each.usual, RANGES[each.kind].above)
    start = next((row for row in range(len(back)) if back[row : row + lasting].all()), None)
    step = None if start is None else int(steps[start])
    return Return(kind=each.kind, name=each.name, step=step, seen_until=int(steps[-1]) if len(steps) else None)


def _logged(run: Run, each: Departure, event: int) -> Iterator[tuple[int, float]]:
    series: Series = LOGGED[each.kind](run)
    label = each.name or (series.labels[0] if series.labels else "")
    if label not in series.labels:
        return
    column = series.labels.index(label)
    rows = np.flatnonzero(series.recorded[:, column] & (series.steps > event))
    yield from zip(series.steps[rows].tolist(), series.values[rows, column].tolist(), strict=True)
