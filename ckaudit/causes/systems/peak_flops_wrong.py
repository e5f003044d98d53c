"""The hardware's peak, by which utilisation is computed, is wrong."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.speed import mfu
from ckaudit.rules.precision.impossible_value import impossible_value
from ckaudit.rules.systems.low_utilization import low_utilization
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    good_checkpoint="newest",
    explains=[impossible_value],
    follows=[low_utilization],
    wants=[mfu],
    knob="Put the peak of the device and of the precision in use into run.json, times the number of devices; dense, not sparse.",
    inspect="peak_flops and flops_per_token in run.json: units (tera?), number of devices, matrix units or not, 6N or 2N.",
    runbook="The training is well: correct the two numbers; every utilisation shown so far is wrong by the same factor.",
)
def peak_flops_wrong(
    findings: Findings, used: Series | None, *, min_step_share: float = 0.5, decisive: float = 4.0, weak: float = 0.5
) -> Iterator[Evidence]:
    """The hardware's peak, by which utilisation is computed, is wrong, or the work of a token is.

    No hardware does more than its peak: a utilisation above 1 is decisive. Where it is above 1 at more than `min_step_share` of
    the steps, a wrong constant is to blame. Log odds are on the common scale (`causes/cause.py`).
    """
    above = [finding for finding in findings.of(impossible_value) if finding.where == mfu.name]
    if not above or above[0].value is None:
        yield contradicts(decisive, "the utilisation of the hardware is within 0 and 1, or not recorded", mfu.name)
        return
    factor = float(above[0].value)
    yield supports(decisive, f"a utilisation of {factor:.3g}: the peak is {factor:.3g} times too low at least", above[0])
    if used is not None and used.finite.any() and (used.values[used.finite] > 1).mean() > min_step_share:
        yield supports(weak, "it is above 1 at most steps: a constant is wrong, not a clock", used.name)
