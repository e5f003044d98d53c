"""The four derived numbers in words, the same for every renderer."""

from collections.abc import Iterator

from ckaudit.contract.schema.report import Derived, GradToWeight, Report, Tau
from ckaudit.reports.words import number

NAMES = ("divergence_step", "tau", "spike_flags", "grad_to_weight")


def sentences(report: Report, *, missing: bool = False) -> list[tuple[str, str]]:
    """Return name and value of each derived number that is known; with `missing`, the reason for each of the others too."""
    derived = report.derived
    if derived is None:
        return []
    known = dict(_known(derived))
    rest = {name: f"not known: {derived.reasons[name]}" for name in NAMES if missing and name in derived.reasons}
    return [(name, (known | rest)[name]) for name in NAMES if name in known or name in rest]


def _known(derived: Derived) -> Iterator[tuple[str, str]]:
    if derived.divergence_step is not None:
        yield "divergence_step", f"{derived.divergence_step}"
    if derived.tau is not None:
        yield "tau", _tau(derived.tau)
    if derived.spike_flags is not None:
        yield "spike_flags", _steps(derived.spike_flags, derived.spike_flags_count or 0)
    if derived.grad_to_weight is not None:
        yield "grad_to_weight", _ratio(derived.grad_to_weight)


def _tau(tau: Tau) -> str:
    easy, hard = tau.slices
    trend = "" if tau.trend is None else f", {number(tau.trend, digits=2)} per 1,000 steps"
    peak = "" if tau.peak_step == tau.last_step else f"; at most {number(tau.peak, digits=3)} at step {tau.peak_step}"
    return f"{number(tau.last, digits=3)} nats at step {tau.last_step} ({hard} less {easy}{trend}){peak}"


def _steps(steps: list[int], count: int, *, max_steps: int = 6) -> str:
    if not count:
        return "none"
    more = f" and {count - max_steps:,} more" if count > max_steps else ""
    return f"{count:,}: step{'s' if count > 1 else ''} {', '.join(map(str, steps[:max_steps]))}{more}"


def _ratio(ratio: GradToWeight) -> str:
    outside = [f"{count} {where}" for count, where in ((ratio.below, "below 1e-4"), (ratio.above, "above 0.1")) if count]
    ends = f"{number(ratio.min, digits=2)} ({ratio.min_where}) to {number(ratio.max, digits=2)} ({ratio.max_where})"
    hint = f"; {', '.join(outside)} of {ratio.tensors} tensors, under Adam only a hint" if outside else ""
    return f"{ends} at step {ratio.step}{hint}"
