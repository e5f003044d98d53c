"""One rank is slower than the others, and all wait for it."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence
from ckaudit.metrics.ranks import rank_step_time, straggler_ratio
from ckaudit.rules.communication_rising import communication_rising
from ckaudit.rules.low_utilization import low_utilization
from ckaudit.rules.slow_input import slow_input
from ckaudit.rules.step_time_jump import step_time_jump
from ckaudit.rules.straggler import straggler as slow_rank
from ckaudit.rules.throughput_drop import throughput_drop
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[slow_rank],
    follows=[step_time_jump, throughput_drop, low_utilization, communication_rising, slow_input],
    wants=[rank_step_time, straggler_ratio],
    knob="Move the slow rank to another node, or take the node out; give every rank rows of equal length.",
    inspect="Step time by rank: whether it is always the same one; its clocks, its input time, and the length of its rows.",
    runbook="Note the rank's node; run the same batch on it and on a healthy one, and drain it if it is slow alone.",
)
def straggler(
    _: Findings, times: Series | None, ratio: Series | None, *, faithful: float = 0.7, strong: float = 2.0, medium: float = 1.0
) -> Iterator[Evidence]:
    """One rank is slower than the others, and all wait for it.

    The same rank is the slowest at `faithful` of the checkpoints or more; ranks that take turns have unequal work.
    Weights are starting values.
    """
    if times is not None and len(times.labels) > 1:
        known = times.finite.all(axis=1)
        slowest = times.values[known].argmax(axis=1)
        if len(slowest):
            counts = np.bincount(slowest, minlength=len(times.labels))
            top = int(counts.argmax())
            share = counts[top] / len(slowest)
            if share >= faithful:
                yield supports(strong, f"{times.labels[top]} is the slowest at {share:.0%} of the checkpoints", times.name)
            else:
                yield contradicts(medium, f"ranks take turns: none is the slowest at more than {share:.0%} of them", times.name)
    if ratio is not None and (usual := ratio.late_median()) is not None:
        if usual > 1.25:
            yield supports(
                medium, f"the slowest rank takes {usual:.2f} times as long as the median rank, to the last", ratio.name
            )
        else:
            yield contradicts(
                medium, f"it is over: the slowest rank takes {usual:.2f} times as long as the median one", ratio.name
            )
