"""Parts of the gradient arrive as zeros."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.gradients import gradient_zero_fraction
from ckaudit.rules.gradients.dead_parameter import dead_parameter
from ckaudit.rules.gradients.vanishing_gradient import vanishing_gradient
from ckaudit.rules.gradients.zero_gradients import zero_gradients
from ckaudit.rules.rule import FACTS
from ckaudit.rules.systems.rank_divergence import rank_divergence
from ckaudit.run.series import Floats, Series


@cause(
    prior=-1.0,
    explains=[zero_gradients],
    follows=[dead_parameter, rank_divergence, vanishing_gradient],
    wants=[gradient_zero_fraction, FACTS],
    knob="Turn off overlapped and compressed reduction; then renew driver and collective library.",
    inspect="The collective's log and version; whether the lost tensors share a bucket, a rank or a link.",
    runbook="Save a checkpoint. Reduce the same gradients twice and compare, on all devices and on half of them.",
)
def gradients_lost_in_communication(
    findings: Findings,
    zeros: Series | None,
    facts: Manifest | None,
    *,
    min_checkpoints: int = 3,
    clear: float = 0.5,
    decisive: float = 4.0,
    strong: float = 2.0,
    medium: float = 1.0,
    weak: float = 0.5,
) -> Iterator[Evidence]:
    """Parts of the gradient arrive as zeros: whole tensors, now this one, now that one, for a single step.

    A gradient that is lost is back at the next checkpoint, and other causes of zeros look different:

    - A gradient is lost where all of it is zero, and less than `clear` of it at the checkpoints beside. Fewer than
      `min_checkpoints` lost gradients may be chance.
    - Where the same tensors are zero each time, they are those before a layer that lets nothing through.
    - What is too small for half precision shows in parts of many tensors.
    - A single rank sends nothing to another, and loses a gradient on its own device alone.
    - Log odds are on the common scale (`causes/cause.py`).
    """
    if zeros is None or findings.first(zero_gradients) is None:
        return
    ranks = facts.world_size if facts is not None else UNSET
    if ranks is not UNSET and ranks < 2:
        yield contradicts(medium, "run.json speaks of one rank: the device or its driver would have lost them", "run.json")
    lost = _lost(np.where(zeros.finite, zeros.values, np.nan), clear)
    if lost.sum() < min_checkpoints:
        yield contradicts(decisive, "no gradient is zero for a single checkpoint only", zeros.name)
        return
    supporting = f"{int(lost.sum())} gradients are all zeros for a single checkpoint, and as ever before and after"
    yield supports(strong, supporting, zeros.name)
    groups, tensors = lost[lost.any(axis=1)], int(lost.any(axis=0).sum())
    if tensors > 1 and len(groups) > 1:
        if (groups == groups[0]).all():
            yield contradicts(decisive, f"they are of the same {tensors} tensors at all {len(groups)} checkpoints", zeros.name)
        else:
            yield supports(medium, f"they are of {tensors} tensors at {len(groups)} checkpoints, in no order", zeros.name)
    inner = zeros.values[zeros.finite & (zeros.values < 1)]
    if np.mean(inner > 0) < clear:
        yield supports(medium, "gradients that are not lost are whole", zeros.name)
    else:
        yield contradicts(strong, "parts of other gradients are zero too", zeros.name)
    if ranks is not UNSET and ranks > 1:
        yield supports(weak, f"{ranks} ranks exchange gradients", "run.json")


def _lost(values: Floats, clear: float) -> Floats:
    """Return which cells are all zeros between two that are not, shape (T - 2, P)."""
    with np.errstate(invalid="ignore"):
        return np.asarray((values[1:-1] == 1) & (values[:-2] < clear) & (values[2:] < clear))
