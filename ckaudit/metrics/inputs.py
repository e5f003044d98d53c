"""Scale of a model's numeric inputs, from the batches or from the outputs of its first layer."""

import math

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.metrics.activations import activation_rms
from ckaudit.metrics.estimated_movement import cells_like
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import ratio, relabelled, together
from ckaudit.metrics.weights import weight_norm, weight_rms
from ckaudit.run.run import Run
from ckaudit.run.series import Series, at, empty, single


@metric(
    unit="1",
    reads=["data.input_mean", "data.input_std", activation_rms, weight_norm, weight_rms],
    source="FAULTS, TheDeepChecker missing_normalization",
    memory=1,
)
def input_scale(run: Run) -> Series:
    r"""Root mean square of a model's inputs, from the batches if recorded, or else estimated from the first layer.

    $$s = \sqrt{\mu^2 + \sigma^2}$$
    $$s = \sqrt{\mathrm{rms}(W x + b)^2 - \mathrm{rms}(b)^2} \cdot \sqrt{m} \,/\, \lVert W \rVert_F$$

    Shape (C, 1), labelled by "the batches" or by the first layer, with m outputs. The second form is exact for independent inputs
    of mean zero, and near 1 for normalized ones. Not recorded for a model that begins with an embedding, if half of the layer's
    output is its bias, or if run.json does not list the tensors in order. If the inputs of the first layer differ in scale from
    the batches by a factor of three, the model scales them itself, and the scale at that layer counts. For a model that begins
    with a normalization nothing is recorded.
    """
    seen = _of_batches(run)
    facts = run.manifest.tensors if run.manifest else UNSET
    name, first = next(iter((facts or {}).items()), ("", None))
    if first is not None and first.kind == "norm":
        return empty("input_scale")
    told = _of_first_layer(run, name, first) if first is not None else empty("input_scale")
    return told if seen and told and _differ(seen, told) else seen or told


def _differ(seen: Series, told: Series, *, ratio: float = 3.0) -> bool:
    """Tell whether the inputs of the first layer differ in scale from the batches, at the first checkpoint that shows both."""
    values = at(seen, told.steps).values[:, 0] / told.values[:, 0]
    known = values[np.isfinite(values) & (values > 0)]
    return len(known) > 0 and abs(math.log(known[0])) > math.log(ratio)


def _of_first_layer(run: Run, name: str, first: TensorFacts) -> Series:
    """Return the scale of the first layer's inputs, estimated from its outputs while its weights are random."""
    if first.kind == "embedding" or first.shape is UNSET or len(first.shape) < 2 or first.module is UNSET:
        return empty("input_scale")
    outputs, module = float(first.shape[0]), first.module
    rms = relabelled(activation_rms(run).only(lambda label: label == module), module)
    norm = relabelled(weight_norm(run).only(lambda label: label == name), module)
    if not rms.labels or not norm.labels:
        return empty("input_scale")
    own = relabelled(weight_rms(run).only(lambda label: label == f"{module}.bias"), module)
    if own.labels:
        squares = np.square(rms.values) - np.square(np.nan_to_num(cells_like(rms, own)))
        is_input = squares > np.square(rms.values) / 2
        rms = replace(rms, values=np.sqrt(np.where(is_input, squares, np.nan)), recorded=rms.recorded & is_input)
    return ratio(rms, norm).mapped(lambda values: np.asarray(values * math.sqrt(outputs)), "input_scale", "1")


def _of_batches(run: Run) -> Series:
    """Return the root mean square of numeric inputs, from mean and standard deviation of each batch."""
    mean, std = together(run.value("data.input_mean"), relabelled(run.value("data.input_std"), "data.input_mean"))
    if not mean or not std:
        return empty("input_scale")
    values = np.hypot(mean.values[:, 0], std.values[:, 0])
    known = mean.recorded[:, 0] & std.recorded[:, 0]
    return replace(single("input_scale", "1", mean.steps, np.where(known, values, np.nan), known), labels=("the batches",))
