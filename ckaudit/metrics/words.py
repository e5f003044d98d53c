"""Metrics from words in checkpoints: element types, the optimizer, tensors without one, and agreement of ranks."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled
from ckaudit.run.column_builder import OPTIMIZERS
from ckaudit.run.run import Run
from ckaudit.run.series import Series, empty, single

_OTHERS = {"SGD", "Adagrad", "Adadelta", "Adafactor"}
_BY_USUAL_SIZE = [place for place, name in enumerate(OPTIMIZERS) if name not in _OTHERS]


@metric(unit="type", reads=["weights.*.dtype", "activations.*.dtype"], source="analysis contract", memory=1, worst="first")
def element_type(run: Run) -> Series:
    r"""Element type of each weight tensor and of each module's output, as a number.

    $$d \in \{0, 1, 2, \dots\}$$

    Shape (C, P): checkpoints by "weights/NAME" and "activations/NAME". 0 is float32, 1 bfloat16, 2 float16, 3 float64, 4 and 5
    the two 8-bit types; any other type has a number of its own. Only changes matter.
    """
    parts = {section: run.series(section, "dtype") for section in ("weights", "activations")}
    return filled(*(replace(part, labels=tuple(f"{name}/{label}" for label in part.labels)) for name, part in parts.items()))


@metric(unit="tensors", reads=["optimizer.trainable_without_optimizer"], source="playbook D1.5, analysis contract", memory=1)
def tensors_without_optimizer(run: Run) -> Series:
    r"""Number of trainable tensors that are in no parameter group.

    $$n = |P_{trainable}| - \textstyle\sum_g |P_g|$$

    Shape (C, 1 + P): checkpoints by the metric's own name, with their number, and by each tensor that ever was one, 1 where it
    is.
    """
    counts = run.value("optimizer.trainable_without_optimizer")
    return replace(counts, labels=("tensors_without_optimizer", *counts.labels[1:])) if counts.labels else counts


@metric(unit="tensors", reads=["optimizer.written"], source="analysis contract", memory=1)
def tensors_written(run: Run) -> Series:
    r"""Number of tensors that were written to between two updates since the previous checkpoint.

    $$n = |\{p : v_p \text{ before an update} \ne v_p \text{ after the last}\}|$$

    Shape (C, 1 + P): checkpoints by the metric's own name, with their number, and by each tensor that ever was one, 1 where it
    is; $v$ counts torch's in-place changes of a tensor. Repeated writes are not recorded.
    """
    counts = run.value("optimizer.written")
    return replace(counts, labels=("tensors_written", *counts.labels[1:])) if counts.labels else counts


@metric(unit="1", reads=["optimizer.name"], source="Kingma & Ba 2015, section 2.1; analysis contract", memory=1)
def optimizer_adapts(run: Run) -> Series:
    r"""Whether the optimizer divides each gradient by its usual size: 1 for Adam and similar ones, 0 for plain SGD.

    $$a = [\text{the update is } \eta\, m / (\sqrt{v} + \epsilon)]$$

    Shape (C, 1): checkpoints. Not recorded for an unknown optimizer class, nor for one whose steps shrink with time (Adagrad) or
    do not follow the rate (Adadelta, Adafactor).
    """
    name = run.value("optimizer.name")
    if not name.labels:
        return empty("optimizer_adapts")
    adapts = np.isin(name.values, _BY_USUAL_SIZE)
    known = name.recorded & (adapts | (name.values == OPTIMIZERS.index("SGD")))
    return single("optimizer_adapts", "1", name.steps, np.where(known, adapts, np.nan), known)


@metric(
    unit="1", reads=["rank_facts.parameter_hash"], source="catalogue D1.6 across ranks; BLOOM chronicles", memory=1, worst="low"
)
def replica_agreement(run: Run) -> Series:
    r"""Share of the ranks whose parameters equal those of most ranks.

    $$\tfrac1R \max_h |\{r : h_r = h\}|$$

    Shape (C, 1): checkpoints with the hashes of two ranks or more; 1 if all hold the same weights, as replicas must.
    """
    hashes = run.value("rank_facts.parameter_hash")
    rows = np.flatnonzero(hashes.recorded.sum(axis=1) > 1)
    known = [hashes.values[row, hashes.recorded[row]] for row in rows]
    shares = [np.unique(numbers, return_counts=True)[1].max() / len(numbers) for numbers in known]
    return single("replica_agreement", "1", hashes.steps[rows], np.array(shares, float))
