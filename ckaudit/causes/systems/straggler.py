"""One rank is slower than the others, and all wait for it."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.ranks import behind_others, rank_step_time, slowest, straggler_ratio
from ckaudit.rules.systems.communication_rising import communication_rising
from ckaudit.rules.systems.low_utilization import low_utilization
from ckaudit.rules.systems.slow_input import slow_input
from ckaudit.rules.systems.step_time_jump import step_time_jump
from ckaudit.rules.systems.straggler import straggler as slow_rank
from ckaudit.rules.systems.throughput_drop import throughput_drop
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    good_checkpoint="newest",
    explains=[slow_rank],
    follows=[step_time_jump, throughput_drop, low_utilization, communication_rising, slow_input],
    wants=[rank_step_time, straggler_ratio],
    knob="Move the slow rank to another node, or take the node out; give every rank rows of equal length.",
    inspect="Step time by rank: whether it is always the same one; its clocks, its input time, and the length of its rows.",
    runbook="Note the rank's node; run the same batch on it and on a healthy one, and drain it if it is slow alone.",
)
def straggler(
    findings: Findings,
    times: Series | None,
    ratio: Series | None,
    *,
    faithful: float = 0.7,
    strong: float = 2.0,
    medium: float = 1.0,
    limit: float = slow_rank.thresholds["max_ratio"],
) -> Iterator[Evidence]:
    """One rank is slower than the others, and all wait for it.

    From the first finding on, the same rank is the slowest at `faithful` of the checkpoints or more. It is over the `limit` of
    the rule in the second half as well, by the median. Where ranks take turns, their work is unequal. Log odds are first guesses.
    """
    slow = findings.first(slow_rank)
    since = (slow.first_step or 0) if slow else 0
    late, whose = ratio, "the slowest rank takes {:.2f} times as long as the median rank"
    if times is not None and (often := slowest(times, times.finite.all(axis=1) & (times.steps >= since))) is not None:
        label, share = often
        if share >= faithful:
            yield supports(strong, f"{label} is the slowest at {share:.0%} of the checkpoints", times.name)
            late, whose = behind_others(times).only(label.__eq__), label + " takes {:.2f} times as long as the others"
        else:
            yield contradicts(medium, f"ranks take turns: none is the slowest at more than {share:.0%} of them", times.name)
    if late is not None and (usual := late.late_median()) is not None:
        if usual > limit:
            yield supports(medium, whose.format(usual) + ", to the last", late.name)
        else:
            yield contradicts(medium, "it is over: " + whose.format(usual), late.name)
