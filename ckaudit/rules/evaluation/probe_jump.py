"""PRB002: the answers to a fixed batch change in one jump."""

import math
from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.probes import fixed_probe_loss, logit_entropy_probe, output_kl_to_prev
from ckaudit.metrics.spikes import loss_over_median
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Floats, Series, has_precedent

AS_BEFORE = 3.0
"""Multiple of its usual size up to which a change between two checkpoints is like those before."""


@rule(
    "PRB002",
    severity="sev2",
    needs=[],
    wants=[fixed_probe_loss, logit_entropy_probe, output_kl_to_prev, loss_over_median],
    unit="1",
)
def probe_jump(
    probe: Series | None,
    entropy: Series | None,
    change: Series | None,
    training: Series | None,
    *,
    min_rise: float = 0.15,
    mads: float = 8.0,
    history: int = 5,
    max_train_ratio: float = 1.1,
) -> Iterator[Hit | Skip]:
    """The answers to a fixed batch change in one jump.

    ## What it checks
    The rule compares a fixed batch's answers from one checkpoint to the next.

    - The batch's loss rises by more than `min_rise` of itself (M57), or the entropy of its answers changes by as much (M23).
    - A change counts beyond `mads` robust deviations of at least `history` changes before it.
    - The divergence from the answers before (M25) counts by the same measure, in logarithms, and beyond three times the largest
      before it.
    - A jump is sev2 where the training loss saw nothing, and was never over `max_train_ratio` times its median since the
      checkpoint before: the model changed for others only, or the evaluation did. Else it is a note.
    - A jump is a note where the next checkpoint does not confirm it: the loss or the entropy is back, or the answers go on to
      change by more than three times as much as before.
    ## Why it matters
    A batch that never changes has no noise: a jump there comes from the model or the harness (SR-1, SR-3).
    ## False alarms
    Some jumps are ordinary, or are not compared:

    - Answers change fast at the start, and a falling loss is no jump.
    - A spike of the training loss explains the jump.
    - Between two checkpoints that are further apart than all before, answers change by more: these are not compared.
    - Running statistics of batch norm lag behind while the model learns fast: the loss of a fixed batch leaps and is back.
    """
    points = max((series.points for series in (probe, entropy, change) if series is not None), default=0)
    if not points:
        yield needs_one_of(fixed_probe_loss, logit_entropy_probe, output_kl_to_prev)
        return
    if points <= history + 1:
        yield Skip("too_few_points", f"{points} values of the fixed batch; more than {history + 1} are needed")
        return
    for series, what, only_up in ((probe, "loss", True), (entropy, "entropy of the answers", False)):
        if series is not None:
            yield from _jumps(series, what, training, min_rise, mads, history, max_train_ratio, up=only_up)
    if change is not None and change.points > history:
        yield from _far(change, training, mads, history, max_train_ratio)


def _jumps(
    series: Series, what: str, training: Series | None, rise: float, mads: float, history: int, spike: float, *, up: bool
) -> Iterator[Hit]:
    for column, label in enumerate(series.labels):
        known = np.flatnonzero(series.finite_in(column))
        values = series.values[known, column]
        steps = np.diff(values)
        signed = steps if up else np.abs(steps)
        compares = has_precedent(series.steps[known])[1:]
        for row in range(history, len(steps)):
            if not compares[row]:
                continue
            usual = MAD_TO_SIGMA * median(np.abs(steps[:row]))
            if signed[row] > max(rise * abs(values[row]), mads * usual):
                yield _hit(
                    f"the {what} of the fixed batch goes from {{limit:.4g}} to {{value:.4g}} in one checkpoint",
                    label,
                    int(series.steps[known[row]]),
                    int(series.steps[known[row + 1]]),
                    float(values[row + 1]),
                    float(values[row]),
                    training,
                    spike,
                    is_confirmed=row + 2 < len(values) and 2 * abs(values[row + 2] - values[row]) > abs(steps[row]),
                )


def _far(change: Series, training: Series | None, mads: float, history: int, spike: float) -> Iterator[Hit]:
    for column, label in enumerate(change.labels):
        known = np.flatnonzero(change.finite_in(column))
        values: Floats = change.values[known, column]
        compares = has_precedent(change.steps[known])
        for row in range(history, len(values)):
            if not compares[row]:
                continue
            before = np.log(np.maximum(values[:row], np.finfo(float).tiny))
            middle = median(before)
            scatter = min(mads * MAD_TO_SIGMA * median(np.abs(before - middle)), 700.0)
            limit = max(math.exp(min(middle + scatter, 700.0)), 3 * math.exp(float(before.max())))
            if values[row] > limit:
                yield _hit(
                    "the answers to the fixed batch are {value:.3g} nats from the checkpoint before; usual is {limit:.3g}",
                    label,
                    int(change.steps[known[row - 1]]),
                    int(change.steps[known[row]]),
                    float(values[row]),
                    math.exp(middle),
                    training,
                    spike,
                    is_confirmed=row + 1 < len(values) and bool(values[row + 1] <= AS_BEFORE * math.exp(middle)),
                )


def _hit(
    message: str,
    label: str,
    before: int,
    step: int,
    value: float,
    limit: float,
    training: Series | None,
    spike: float,
    *,
    is_confirmed: bool = True,
) -> Hit:
    inside = np.empty(0) if training is None else training.values[(training.steps > before) & (training.steps <= step), 0]
    seen = bool((np.nan_to_num(inside, nan=np.inf) > spike).any()) or not len(inside)
    return Hit.at(
        [step],
        "note" if seen or not is_confirmed else "sev2",
        message + ("" if seen else ", and the training loss did not change"),
        where=label,
        value=value,
        limit=limit,
        worst=0,
    )
