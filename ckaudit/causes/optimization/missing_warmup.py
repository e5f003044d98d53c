"""The learning rate starts at its peak."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.causes.optimization.learning_rate_too_high import EXPLAINS, FOLLOWS
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.rule import FACTS
from ckaudit.run.series import Series


@cause(
    prior=-1.5,
    explains=EXPLAINS,
    follows=FOLLOWS,
    wants=[learning_rate, FACTS, grad_global_norm],
    knob="Warm the learning rate up from zero over 1 to 5 % of the steps, or lower its peak.",
    inspect="The learning rate over the first hundred steps, beside the loss and the gradient norm.",
    runbook="Nothing to save: restart with a warm-up and compare the first five hundred steps on the same batches.",
)
def missing_warmup(
    findings: Findings,
    rate: Series | None,
    facts: Manifest | None,
    norm: Series | None,
    *,
    early: int = 100,
    shock: float = 20.0,
    strong: float = 2.5,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """The learning rate starts at its peak, before the optimizer knows the gradient's size.

    Trouble within the first `early` steps speaks for it, beyond five times as many against it: Adam's second moment has a
    memory of 20 to 1,000 steps. A gradient that is `shock` times its later median there shows the first updates were too large.
    Weights are starting values, to be fitted on runs of known truth.
    """
    if rate is not None and (start := _start_over_peak(rate)) is not None:
        if start > 0.5:
            yield supports(strong, f"the first recorded learning rate is {start:.0%} of the peak", rate.name)
            yield from _shock(norm, early, shock, medium / 2)
        else:
            yield contradicts(strong, f"the learning rate starts at {start:.0%} of its peak and warms up", rate.name)
    if facts is not None and facts.warmup_steps == 0:
        yield supports(medium, "run.json plans no warm-up", "run.json")
    first = findings.first(*EXPLAINS)
    if first is not None and first.first_step is not None:
        if first.first_step <= early:
            yield supports(medium, f"the trouble begins at step {first.first_step}, within the first {early}", first)
        elif first.first_step > 5 * early:
            yield contradicts(strong, f"the trouble begins only at step {first.first_step}", first)


def _shock(norm: Series | None, early: int, shock: float, weight: float) -> Iterator[Evidence]:
    """Judge the largest gradient of the first steps against the usual one of the later."""
    usual = norm.late_median() if norm is not None else None
    if norm is None or not usual:
        return
    young = np.where(norm.finite[:, 0] & (norm.steps <= early), norm.values[:, 0], 0.0)
    worst = int(np.argmax(young))
    if young[worst] > shock * usual:
        yield supports(
            weight,
            f"the gradient norm is {young[worst]:.3g} at step {norm.steps[worst]}, {young[worst] / usual:.0f} times its "
            "later median",
            norm.name,
        )


def _start_over_peak(rate: Series) -> float | None:
    """Return the first learning rate over the highest; None where the record starts late."""
    known = rate.values[:, 0][rate.finite[:, 0]]
    steps = rate.steps[rate.finite[:, 0]]
    if not known.size or steps[0] > 20 or known.max() <= 0:
        return None
    positive = known[known > 0]
    return float(positive[0] / np.max(known))
