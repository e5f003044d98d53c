"""From some step on devices wait for the exchange between them."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.hardware import comm_time_frac, dataloader_stall_frac
from ckaudit.rules.systems.communication_rising import communication_rising
from ckaudit.rules.systems.low_utilization import low_utilization
from ckaudit.rules.systems.step_time_jump import step_time_jump
from ckaudit.rules.systems.straggler import straggler
from ckaudit.rules.systems.throughput_drop import throughput_drop
from ckaudit.run.series import Series


@cause(
    prior=0.0,
    good_checkpoint="newest",
    explains=[communication_rising],
    follows=[low_utilization, throughput_drop, step_time_jump],
    wants=[comm_time_frac, dataloader_stall_frac],
    knob="Let the exchange overlap with the backward pass, in fewer and larger buckets; put ranks that talk much on one node.",
    inspect="The share of communication by rank and time, errors and speed of every link, and what else uses the network.",
    runbook="Nothing is wrong with the model: time one reduction of equal size on every link, and drain the node of the slowest.",
)
def communication_bound(
    findings: Findings, comm: Series | None, stall: Series | None, *, much: float = 0.3, strong: float = 2.0, medium: float = 1.0
) -> Iterator[Evidence]:
    """From some step on devices wait for the exchange between them.

    More than `much` of a step is communication at the end (M45). One slow rank makes all others wait inside the exchange, and so
    does data that comes late on one rank. Log odds are first guesses.
    """
    if comm is not None and (comm_share := comm.late_median()) is not None and comm_share > much:
        yield supports(strong, f"{comm_share:.0%} of a step is communication (median)", comm.name)
    if slow := findings.first(straggler):
        yield contradicts(strong, f"one rank is slow, and the others wait for it in the exchange: {slow.message}", slow)
    if stall is not None and (wait := stall.late_median()) is not None:
        if wait > much / 2:
            yield contradicts(medium, f"{wait:.0%} of a step is waiting for data", stall.name)
        else:
            yield supports(medium, f"only {wait:.0%} of a step is waiting for data", stall.name)
