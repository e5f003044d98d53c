"""The optimizer: learning rates, clipping against norms, groups against movement."""

import math
from collections.abc import Iterator
from operator import mul

from msgspec import UNSET

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import Place, Subject, check
from ckaudit.contract.schema.checkpoint import OptimizerState
from ckaudit.contract.schema.report import Finding


@check(kinds.NEGATIVE, reads=("optimizer.groups[].learning_rate", "optimizer.groups[].weight_decay"))
def group(subject: Subject) -> Iterator[Finding]:
    """Learning rate and weight decay of a group are at least 0."""
    for index, each in enumerate(_state(subject).groups or []):
        for field in ("learning_rate", "weight_decay"):
            value = getattr(each, field)
            if isinstance(value, float) and value < 0:
                yield subject.find(kinds.NEGATIVE, ("optimizer", "groups", index, field), "at least 0", value, where=field)


def _state(subject: Subject) -> OptimizerState:
    """Return what the file says of the optimizer, an empty state where it says nothing."""
    state = subject.document.optimizer
    return OptimizerState() if state is UNSET else state


@check(kinds.EMPTY_GROUPS, reads=("optimizer.groups[].tensors", "weight_deltas.*.norm"))
def group_tensors(subject: Subject) -> Iterator[Finding]:
    """Where all groups are empty, nothing moves."""
    groups = _state(subject).groups or []
    if groups and all(each.tensors == 0 for each in groups):
        moved = next((name for name, norm in subject.table("weight_deltas").rows("norm") if norm > 0), None)
        if moved is not None:
            place = ("optimizer", "groups", 0, "tensors")
            yield subject.find(kinds.EMPTY_GROUPS, place, f"at least 1: {moved} moved", 0, where="optimizer")


@check(
    kinds.CLIP_AND_NORM,
    kinds.CLIPPED_ABOVE_LIMIT,
    reads=("optimizer.clip_norm", "optimizer.clip_coefficient", "gradients.*.norm", "gradients_source", "scalars"),
)
def clipping(subject: Subject, *, precision: float = 5e-2) -> Iterator[Finding]:
    r"""Clipping by global norm scales gradients by a coefficient that limit and norm give (Pascanu et al. 2013, algorithm 1).

    $$c = \min(1, \text{clip\_norm} / \lVert g \rVert)$$

    Args:
        subject: The checkpoint.
        precision: Relative error: norms in bfloat16 (0.4 %), and summed in another order by sharded trainers.
    """
    state = _state(subject)
    limit, coefficient = state.clip_norm, state.clip_coefficient
    if not isinstance(limit, float) or limit == 0:
        return
    norm = (subject.document.scalars or {}).get("grad_global_norm")
    if isinstance(coefficient, float) and isinstance(norm, float) and norm > 0:
        expected = min(1.0, limit / norm)
        # Read after clipping, the norm is the limit itself and tells nothing.
        if abs(coefficient - expected) > precision and norm > limit * (1 + precision):
            place: Place = ("optimizer", "clip_coefficient")
            yield subject.find(kinds.CLIP_AND_NORM, place, f"{expected:.6g}, clip_norm over grad_global_norm", coefficient)
    total = root_sum_square(subject)
    if subject.document.gradients_source == "post_clip" and total is not None and total > limit * (1 + precision):
        at_least = f"at least the {total:.6g} of the clipped gradients"
        yield subject.find(kinds.CLIPPED_ABOVE_LIMIT, ("optimizer", "clip_norm"), at_least, limit)


def root_sum_square(subject: Subject) -> float | None:
    """Return the norm of all gradients together, None where one of them was not recorded, is not finite or is a part."""
    table = subject.table("gradients")
    if "norm" not in table.plain or any(where != "replicated" for _, where in table.recorded("placement")):
        return None
    norms = table.columns["norm"]
    return math.sqrt(sum(map(mul, norms, norms)))
