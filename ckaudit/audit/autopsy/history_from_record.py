"""A black box made of the run's own record, for an event checkpoint that has none."""

import numpy as np

from ckaudit.audit.autopsy.flight_recorder import channels
from ckaudit.audit.autopsy.ranges import Channel
from ckaudit.contract.numbers import Number, to_word
from ckaudit.contract.run_sections import History
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.run.run import Run
from ckaudit.run.series import Series

Column = list[Number | None]


def rebuilt(run: Run, event: int, *, most: int = 64) -> History:
    """Return what lines and checkpoints say of the last steps until an event, as a black box would.

    Args:
        run: The run.
        event: The step of the event.
        most: So many recorded steps are taken, as many as the Recorder's own box holds.
    """
    norms = run.series("gradients", "norm")
    known = [train_loss_raw(run), learning_rate(run), grad_global_norm(run), norms]
    recorded = [each.steps[each.recorded.any(axis=1)] for each in known if each]
    steps = np.unique(np.concatenate([*recorded, np.array([event], np.int64)]))
    steps = steps[steps <= event][-most:]
    return History(
        steps=steps.tolist(),
        loss=_column(known[0], 0, steps),
        learning_rate=_column(known[1], 0, steps),
        gradient_norms={label: _column(norms, place, steps) for place, label in enumerate(norms.labels)},
    )


def channels_of_record(run: Run, history: History) -> list[Channel]:
    """Return the channels of a rebuilt box; the global gradient norm is the logged one, where there is one."""
    words = _column(grad_global_norm(run), 0, np.array(history.steps, np.int64))
    values = np.array([np.nan if word is None else float(word) for word in words])
    recorded = np.array([word is not None for word in words], bool)
    found = channels(history)
    if not recorded.any():
        return found
    logged = Channel(kind="gradient_norm", name="", values=values, recorded=recorded, words=tuple(words))
    return [*(each for each in found if each.kind != "gradient_norm"), logged]


def _column(series: Series, place: int, steps: "np.typing.NDArray[np.int64]") -> Column:
    """Return one label of a series at some steps; None: not recorded."""
    if not series:
        return [None] * len(steps)
    rows = {int(step): row for row, step in enumerate(series.steps.tolist())}
    found = [rows.get(int(step)) for step in steps.tolist()]
    return [
        None if row is None or not series.recorded[row, place] else to_word(float(series.values[row, place])) for row in found
    ]
