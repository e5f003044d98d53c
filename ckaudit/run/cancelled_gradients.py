"""Gradients that are no sign of an illness: those that cancel by construction, and those not finite that were never applied."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ckaudit.contract.schema.tensor_names import other_attention_projections
from ckaudit.run.column_builder import HALF_TYPES
from ckaudit.run.series import Mask, Series
from ckaudit.run.tensors import TensorTable

TAKEN_OUT = "biases and scales that a normalization or a softmax takes out"
KINDS = {"key_bias": "key biases", "unused": "parts that the forward pass does not use"}


def cancelled(
    gradient: Series | None,
    table: TensorTable,
    types: Series | None = None,
    *,
    rounding: float = 1e-4,
    rounding_half: float = 2**-8,
) -> frozenset[str]:
    """Return the tensors whose gradient cancels out, by what is known of them or by the weight beside them.

    A bias adds up what its own module's weight multiplies with the input. Where the weight has a gradient and the bias has
    none above rounding, the path is open and the parts of the sum cancel: behind it, a normalization subtracts what
    is the same everywhere, a softmax is blind to it, or a loss of distances takes the difference of two outputs.

    Args:
        gradient: Gradient norms, shape (T, P).
        table: What is known of the tensors.
        types: Element types of weights and module outputs, as `element_type` numbers them.
        rounding: What float32 leaves of a sum that cancels, relative to the weight's gradient (measured: up to 1.4e-6).
        rounding_half: The same where the model computes in half precision: the place of a bfloat16 (measured: up to 1.4e-3,
            while other biases have 0.06 and more).
    """
    known = frozenset(name for name in table.facts if table.no_gradient_reason(name) is not None)
    if gradient is None:
        return known
    known |= {name for name in gradient.labels if table.no_gradient_reason(name) is not None}
    # What the first forward pass did not use may be used later.
    late = {name for name in known & {*gradient.labels} if table.no_gradient_reason(name) == "unused"}
    is_half_precision = types is not None and bool(np.isin(types.values[types.finite], HALF_TYPES).any())
    return _vanishing(gradient, table, rounding_half if is_half_precision else rounding) | known - late


def half_precision_gains(names: Sequence[str], table: TensorTable, types: Series | None) -> frozenset[str]:
    """Return the gains of normalizations that are kept in half precision: an update of 1 below 0.002 rounds to none there."""
    if types is None:
        return frozenset()
    half = {
        label for label, of in zip(types.labels, types.values.T, strict=True) if np.isin(of[np.isfinite(of)], HALF_TYPES).any()
    }
    return frozenset(name for name in names if f"weights/{name}" in half and table.kind(name) == "norm")


def waiting_factors(slow: Mask, labels: Sequence[str]) -> Mask:
    """Return where query and key stand still together while the value beside them moves, shape (T, P).

    Logits are products of the two. As long as all keys look alike neither has a gradient to speak of, and under plain descent
    both wait, though the path through the values is open.

    Args:
        slow: Whether a tensor stands still, shape (T, P).
        labels: Names of the tensors.
    """
    places, waiting = {label: place for place, label in enumerate(labels)}, np.zeros(slow.shape, bool)
    for label, place in places.items():
        other, value = other_attention_projections(label) or ("", "")
        if other in places and value in places:
            waiting[:, place] = slow[:, place] & slow[:, places[other]] & ~slow[:, places[value]]
    return waiting


def left_out(gradient: Series, table: TensorTable, types: Series | None = None) -> list[str]:
    """Return the sentence on the trainable tensors that rules leave out since no gradient is to be expected; none without any.

    One that is known to have no gradient and has one all the same is not counted.
    """
    without_gradient = cancelled(gradient, table, types)
    vanishing = _vanishing(gradient, table, 2**-8)
    without = {name for name in without_gradient if name not in gradient.labels or _is_zero(gradient, name)}
    without |= {name for name in without_gradient if table.no_gradient_reason(name) == "taken_out_by_norm"}
    idle = {name for name in without if name not in gradient.labels and table.no_gradient_reason(name) != "unused"}
    names = [
        name
        for name in dict.fromkeys((*gradient.labels, *table.facts))
        if name in without_gradient & (vanishing | without) - idle and table.is_trainable(name)
    ]
    if not names or not len(gradient.steps):
        return []
    kinds = Counter(KINDS.get(table.no_gradient_reason(name) or "", TAKEN_OUT) for name in names)
    listed = ", ".join(f"{kind} ({count})" for kind, count in kinds.items())
    begin = "1 tensor has no gradient by construction and is" if len(names) == 1 else ""
    begin = begin or f"{len(names)} tensors have no gradient by construction and are"
    return [f"{begin} left out: {listed}"]


def _vanishing(gradient: Series, table: TensorTable, rounding: float) -> frozenset[str]:
    """Return the biases that seldom have a gradient above rounding while the weight of their module has one.

    Rounding leaves something now and then, and so does a unit that switches on or off for some rows. Of what is exactly zero at
    every checkpoint though its part of the graph is known, and not autograd's, the backward pass is missing.
    """
    columns = {name: place for place, name in enumerate(gradient.labels)}
    vanishing = set()
    for name, place in columns.items():
        weight = columns.get(f"{name[:-4]}weight") if name.endswith(".bias") else None
        if weight is None:
            continue
        both = gradient.finite_in(place) & gradient.finite_in(weight) & (gradient.values[:, weight] > 0)
        bias_norms, weight_norms = gradient.values[both, place], gradient.values[both, weight]
        is_made = bias_norms.any() or name not in table.facts or bool(table.facts[name].backward)
        if is_made and len(bias_norms) and bool(np.median(bias_norms / weight_norms) < rounding):
            vanishing.add(name)
    return frozenset(vanishing)


def unexplained_zero_gradients(gradient: Series, table: TensorTable) -> frozenset[str]:
    """Return the biases that are left out though they never have a gradient and no operator is recorded that could make one.

    Their parts cancel exactly, as in a loss of distances, or nobody wrote their backward pass: only the program tells.
    """
    unknown = [name for name in _vanishing(gradient, table, 2**-8) if name not in table.facts and _is_zero(gradient, name)]
    return frozenset(name for name in unknown if table.no_gradient_reason(name) is None)


def _is_zero(gradient: Series, name: str) -> bool:
    column = gradient.labels.index(name)
    known = gradient.finite_in(column)
    return bool(known.any()) and not gradient.values[known, column].any()


def never_applied(norm: Series) -> Mask:
    """Tell which gradient norms that were not finite cannot have reached the weights, shape (T, P).

    A gradient that is not finite makes weights so if it is applied, and weights that are not finite never give a finite
    gradient again. Where one comes later, the update was left out, as a loss scaler does it. At the end of the record, where
    nothing comes later, as many in a row count as were left behind before.
    """
    return _left_behind(norm.nonfinite, norm.finite & (norm.values > 0))


def never_applied_counts(count: Series) -> Mask:
    """Do as `never_applied` for counts of elements of a gradient that are not finite, shape (T, P)."""
    return _left_behind(count.nonfinite | (count.finite & (count.values > 0)), count.finite & (count.values == 0))


def _left_behind(bad: Mask, good: Mask) -> Mask:
    behind = np.zeros(bad.shape, bool)
    for column in np.flatnonzero(bad.any(axis=0) & good.any(axis=0)):
        last = int(np.flatnonzero(good[:, column])[-1])
        behind[:last, column] = bad[:last, column]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], behind[:, column], [False])).astype(int)))
        longest = int((edges[1::2] - edges[::2]).max(initial=0))
        if bad[last:, column].sum() <= longest:
            behind[last:, column] = bad[last:, column]
    return behind
