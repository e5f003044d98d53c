"""The training waits for its data."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.hardware import comm_time_frac, compute_time_frac, dataloader_stall_frac
from ckaudit.rules.systems.low_utilization import low_utilization
from ckaudit.rules.systems.slow_input import slow_input
from ckaudit.rules.systems.step_time_jump import step_time_jump
from ckaudit.rules.systems.straggler import straggler
from ckaudit.rules.systems.throughput_drop import throughput_drop
from ckaudit.run.series import Series


@cause(
    prior=0.0,
    good_checkpoint="newest",
    explains=[slow_input],
    follows=[low_utilization, throughput_drop, step_time_jump, straggler],
    wants=[dataloader_stall_frac, compute_time_frac, comm_time_frac],
    knob="Give the loader more workers and a deeper prefetch; tokenize beforehand; move the data nearer than the network.",
    inspect="The share of the step before the forward pass, by rank and time; the loader's workers, store and decompression.",
    runbook="Nothing is wrong with the model: profile ten steps of the loader alone, and change it at the next resume.",
)
def input_bound(
    findings: Findings,
    stall: Series | None,
    compute: Series | None,
    comm: Series | None,
    *,
    much: float = 0.2,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The training waits for its data.

    The training waits where more than `much` of a step is spent before the forward pass (M44). Log odds are first guesses.
    """
    first = findings.first(slow_input)
    if stall is not None and (usual := stall.late_median()) is not None and usual > much:
        yield supports(strong, f"{usual:.0%} of a step is spent before the forward pass (median)", stall.name)
    elif stall is not None and first is not None:
        yield contradicts(medium / 2, "the wait for data is not usual: it comes and goes", stall.name)
    if compute is not None and (busy := compute.late_median()) is not None:
        if busy < 1 - much:
            yield supports(medium, f"only {busy:.0%} of it is computing", compute.name)
        else:
            yield contradicts(medium, f"{busy:.0%} of a step is computing", compute.name)
    if comm is not None and (comm_share := comm.late_median()) is not None and comm_share > much:
        yield contradicts(medium, f"{comm_share:.0%} of a step is communication", comm.name)
