"""From some step on every step takes longer, for the same work."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.hardware import comm_time_frac, dataloader_stall_frac
from ckaudit.metrics.overhead import recording_share
from ckaudit.metrics.progress import tokens_per_update
from ckaudit.rules.files.recording_overhead import recording_overhead
from ckaudit.rules.systems.communication_rising import communication_rising
from ckaudit.rules.systems.low_utilization import low_utilization
from ckaudit.rules.systems.slow_input import slow_input
from ckaudit.rules.systems.step_time_jump import step_time_jump
from ckaudit.rules.systems.straggler import straggler
from ckaudit.rules.systems.throughput_drop import throughput_drop
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    good_checkpoint="newest",
    explains=[step_time_jump, throughput_drop],
    follows=[low_utilization],
    wants=[dataloader_stall_frac, comm_time_frac, tokens_per_update, recording_share],
    knob="Look at clocks, temperature and power limit of every device, and at what else runs on the node; then change the node.",
    inspect="Step time by rank around the step named, clocks and temperatures of the same minutes, other jobs on the machine.",
    runbook="Note the time of the cliff; run the same step on another node, and drain this one if it is faster there.",
)
def hardware_throttled(
    findings: Findings,
    stall: Series | None,
    comm: Series | None,
    tokens: Series | None,
    recording: Series | None,
    *,
    rise: float = 0.1,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """From some step on every step takes longer, for the same work.

    Any other reason for longer steps shows in their parts: the share of waiting, of communication or of recording rises by
    `rise`, or an update has more tokens. Log odds are first guesses.
    """
    first = findings.first(step_time_jump, throughput_drop)
    if first is None or first.first_step is None:
        return
    if jump := findings.first(step_time_jump):
        # Whatever lengthens a step looks like this: alone it makes no cause likelier than not.
        message = f"steps are slower from one moment on, as on a device that lowers its clock: {jump.message}"
        yield supports(0.6 * medium, message, jump)
    if waits := findings.first(slow_input, straggler, communication_rising, recording_overhead):
        yield contradicts(strong, f"something else takes the time: {waits.message}", waits)
    for share, part in ((stall, "waiting for data"), (comm, "communication"), (recording, "recording")):
        if share is not None and (sides := _around(share, first.first_step)):
            before, after = sides
            if after - before > rise:
                yield contradicts(strong, f"the share of {part} rises from {before:.0%} to {after:.0%}", share.name)
            elif part != "recording":
                yield supports(medium, f"the share of {part} does not rise with it ({before:.0%}, then {after:.0%})", share.name)
    if tokens is not None and (sides := _around(tokens, first.first_step)):
        before, after = sides
        if after > 1.1 * before:
            yield contradicts(strong, f"an update has {after:.4g} tokens, {before:.4g} before", tokens.name)
        else:
            yield supports(medium, f"the work is the same, {after:.4g} tokens an update", tokens.name)


def _around(series: Series, step: int) -> tuple[float, float] | None:
    """Return the medians before a step and from it on, None where one side is unknown."""
    sides = [series.values[rows][series.finite[rows]] for rows in (series.steps < step, series.steps >= step)]
    return (median(sides[0]), median(sides[1])) if all(side.size for side in sides) else None
