"""Gradients that do not show a problem: those that cancel by construction, and non-finite ones that were never applied."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ckaudit.contract.schema.tensor_names import is_opaque_name, other_attention_projections, weight_names_of_bias
from ckaudit.run.column_builder import HALF_TYPES
from ckaudit.run.medians import median
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
    """Return the tensors whose gradient cancels, from what is known of them or from the weight of the same module.

    The gradient of a bias is a sum of the output gradients that also enter the gradient of its module's weight. If the weight has
    a gradient and the bias has none above rounding, the path is open and the terms of the sum cancel: a later normalization
    subtracts what is the same everywhere, a softmax ignores it, or a distance loss takes the difference of two outputs. A tensor
    of which neither name nor shape is known may be such a bias, if its gradient is no more than rounding and not exactly zero.

    Args:
        gradient: Gradient norms, shape (T, P).
        table: What is known of the tensors.
        types: Element types of weights and module outputs, as `element_type` numbers them.
        rounding: What float32 leaves of a cancelling sum, relative to the weight's gradient (measured: up to 1.4e-6).
        rounding_half: The same where the model computes in half precision: the place of a bfloat16 (measured: up to 1.4e-3, while
            other biases have 0.06 and more).
    """
    known = frozenset(name for name in table.facts if table.no_gradient_reason(name) is not None)
    if gradient is None:
        return known
    known |= {name for name in gradient.labels if table.no_gradient_reason(name) is not None}
    # A later forward pass may use what the first one did not.
    late = {name for name in known & {*gradient.labels} if table.no_gradient_reason(name) == "unused"}
    is_half_precision = types is not None and bool(np.isin(types.values[types.finite], HALF_TYPES).any())
    vanishing = _vanishing(gradient, table, rounding_half if is_half_precision else rounding)
    return vanishing | _unknown_and_rounding(gradient, table) | known - late


def half_precision_gains(names: Sequence[str], table: TensorTable, types: Series | None) -> frozenset[str]:
    """Return the normalization gains stored in half precision: an update of a gain of 1 by less than 0.002 is rounded away."""
    return frozenset(name for name in half_precision(names, types) if table.kind(name) == "norm")


def half_precision(names: Sequence[str], types: Series | None) -> frozenset[str]:
    """Return the tensors whose weights are stored in half precision, which rounds small updates away."""
    if types is None:
        return frozenset()
    half = {
        label for label, of in zip(types.labels, types.values.T, strict=True) if np.isin(of[np.isfinite(of)], HALF_TYPES).any()
    }
    return frozenset(name for name in names if f"weights/{name}" in half)


def waiting_factors(slow: Mask, labels: Sequence[str]) -> Mask:
    """Return where query and key both stand still while the value of the same attention moves, shape (T, P).

    Attention logits are products of query and key. As long as all keys are alike, both have almost no gradient. Under plain
    gradient descent both then stand still, although the path through the values is open.

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
    """Return a note on the trainable tensors that rules skip because they should have no gradient; an empty list if none.

    A tensor that should have no gradient but has one is not counted.
    """
    without_gradient = cancelled(gradient, table, types)
    vanishing = _vanishing(gradient, table, 2**-8)
    without = {name for name in without_gradient if name not in gradient.places or _is_zero(gradient, name)}
    without |= {name for name in without_gradient if table.no_gradient_reason(name) == "taken_out_by_norm"}
    idle = {name for name in without if name not in gradient.places and table.no_gradient_reason(name) != "unused"}
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
    """Return the biases whose gradient is mostly no more than rounding while the weight of their module has one.

    Now and then rounding leaves a remainder, and so does a unit that switches on or off for some rows. A bias is not returned if
    its gradient is exactly zero at every checkpoint and its graph is recorded without a node of autograd: its backward pass is
    missing.
    """
    columns = {name: place for place, name in enumerate(gradient.labels)}
    vanishing = set()
    for name, place in columns.items():
        weight = next((columns[other] for other in weight_names_of_bias(name) if other in columns), None)
        if weight is None:
            continue
        both = gradient.finite_in(place) & gradient.finite_in(weight) & (gradient.values[:, weight] > 0)
        bias_norms, weight_norms = gradient.values[both, place], gradient.values[both, weight]
        is_made = bias_norms.any() or name not in table.facts or bool(table.facts[name].backward)
        if is_made and len(bias_norms) and bool(np.median(bias_norms / weight_norms) < rounding):
            vanishing.add(name)
    return frozenset(vanishing)


def _unknown_and_rounding(
    gradient: Series, table: TensorTable, *, rounding: float = 1e-7, min_tensors: int = 10
) -> frozenset[str]:
    """Return the tensors of unknown name and shape with a gradient that float32 would leave of the median tensor's, not zero.

    A record of fewer than `min_tensors` tensors holds those that somebody chose to look at, and no key biases among them.
    """
    unknown = [name for name in gradient.labels if name not in table.facts and is_opaque_name(name)]
    if not unknown or len(gradient.labels) < min_tensors:
        return frozenset()
    sizes = {name: gradient.values[gradient.finite_in(place), place] for place, name in enumerate(gradient.labels)}
    usual = median([float(np.median(values)) for values in sizes.values() if len(values)])
    return frozenset(name for name in unknown if len(sizes[name]) and 0 < np.median(sizes[name]) < rounding * usual)


def unexplained_zero_gradients(gradient: Series, table: TensorTable) -> frozenset[str]:
    """Return the biases that are left out although they never have a gradient and no operator is recorded that explains it.

    Either their terms cancel exactly, as in a distance loss, or the backward pass is missing; only the training code can tell.
    """
    unknown = [name for name in _vanishing(gradient, table, 2**-8) if name not in table.facts and _is_zero(gradient, name)]
    return frozenset(name for name in unknown if table.no_gradient_reason(name) is None)


def _is_zero(gradient: Series, name: str) -> bool:
    column = gradient.places[name]
    known = gradient.finite_in(column)
    return bool(known.any()) and not gradient.values[known, column].any()


def never_applied(norm: Series) -> Mask:
    """Tell which non-finite gradient norms cannot have been applied to the weights, shape (T, P).

    Applying a non-finite gradient makes the weights non-finite, and such weights never give a finite gradient again. If a finite
    gradient follows later, the update was skipped, as a loss scaler does. At the end of the log, where no finite gradient can
    follow, up to as many in a row count as skipped as were skipped in a row before.
    """
    return _followed_by_finite(norm.nonfinite, norm.finite & (norm.values > 0))


def never_applied_counts(count: Series) -> Mask:
    """Do the same as `never_applied` for counts of non-finite gradient elements, shape (T, P)."""
    return _followed_by_finite(count.nonfinite | (count.finite & (count.values > 0)), count.finite & (count.values == 0))


def _followed_by_finite(bad: Mask, good: Mask) -> Mask:
    behind = np.zeros(bad.shape, bool)
    for column in np.flatnonzero(bad.any(axis=0) & good.any(axis=0)):
        last = int(np.flatnonzero(good[:, column])[-1])
        behind[:last, column] = bad[:last, column]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], behind[:, column], [False])).astype(int)))
        longest = int((edges[1::2] - edges[::2]).max(initial=0))
        if bad[last:, column].sum() <= longest:
            behind[last:, column] = bad[last:, column]
    return behind
