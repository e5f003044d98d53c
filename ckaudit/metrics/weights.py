"""Weights, and how far each update moves them."""

import math

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.estimated_movement import (
    by_tensor,
    cells_like,
    change,
    grid_movement,
    is_coarse,
    largest_of,
    series_of_grids,
    tensor_of,
)
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, ratio, together, total, zeros_of_nonfinite_as_nan
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series, at
from ckaudit.run.tensors import TensorTable

GRID = "weights.*.sampled_grid_32x32"
NUMBERS = ("mean", "std", "min", "max")
"""Statistics of a tensor that are single numbers."""


@metric(
    unit="1",
    reads=[*(f"weights.*.{name}" for name in ("frobenius_norm", "numel", "mean", "std", "nonfinite_count"))],
    source="Golub & Van Loan, Matrix Computations, section 2.3",
    memory=1,
)
def weight_norm(run: Run) -> Series:
    r"""Frobenius norm of each weight tensor.

    $$\lVert W \rVert_F = \sqrt{\sum_i w_i^2} = \sqrt{n\,(\mu^2 + \sigma^2)}$$

    Shape (C, P): checkpoints by tensors. The right-hand form is used if a writer gave element count, mean and population standard
    deviation but no norm. Not recorded if neither is available; NaN if an input is NaN.
    """
    recorded = run.series("weights", "frobenius_norm")
    mean, std = together(run.series("weights", "mean"), run.series("weights", "std"))
    count, mean = together(run.series("weights", "numel"), mean)
    count, std = together(count, std)
    known = count.recorded & mean.recorded & std.recorded
    values = np.where(known, np.sqrt(count.values) * np.hypot(mean.values, std.values), np.nan)
    norm = filled(recorded, Series("weight_norm", "1", count.steps, count.labels, values, known))
    return zeros_of_nonfinite_as_nan(norm, run.series("weights", "nonfinite_count"))


@metric(
    unit="1",
    reads=[*(f"weights.*.{name}" for name in ("mean", "std", "frobenius_norm", "numel", "nonfinite_count"))],
    source="definition",
    memory=1,
)
def weight_rms(run: Run) -> Series:
    r"""Root mean square of each weight tensor's elements.

    $$\sqrt{\tfrac1n \sum_i w_i^2} = \sqrt{\mu^2 + \sigma^2}$$

    Shape (C, P): checkpoints by tensors. If mean or standard deviation is missing, it is computed from norm and element count.
    """
    mean, std = together(run.series("weights", "mean"), run.series("weights", "std"))
    known = mean.recorded & std.recorded
    series = replace(mean, values=np.where(known, np.hypot(mean.values, std.values), np.nan), recorded=known)
    norm, count = together(run.series("weights", "frobenius_norm"), run.series("weights", "numel"))
    rms = filled(series, ratio(norm, replace(count, values=np.sqrt(count.values))))
    return zeros_of_nonfinite_as_nan(rms, run.series("weights", "nonfinite_count"))


@metric(unit="1", reads=["weight_deltas.*.norm", "weight_deltas.*.moved", "gradients.*.norm"], source="playbook D1.5", memory=1)
def update_norm(run: Run) -> Series:
    r"""Length of the last update of each weight tensor.

    $$\lVert \Delta W \rVert_F = \lVert W_t - W_{t-1} \rVert_F$$

    Shape (C, P): checkpoints by tensors. Not recorded at step 0, which has no update, nor if the writer kept no copy. Not
    recorded either at steps in which a tensor that does move took no part, such as the heads of tasks that alternate.
    """
    # An update of zero does not count if the tensor got no gradient at that step and moves at others.
    norms = run.series("weight_deltas", "norm")
    moved, gradients = run.series("weight_deltas", "moved"), run.series("gradients", "norm")
    idle = norms.recorded & (norms.values == 0)
    if not moved or not np.any(np.any(idle, axis=1) & np.any(norms.values > 0, axis=1)):
        return norms
    way, part = at(moved, norms.steps), at(gradients, norms.steps)
    for column, label in enumerate(norms.labels):
        if label not in moved.places:
            idle[:, column] = False
            continue
        path = way.values[:, moved.places[label]]
        has_moved = np.concatenate([[False], path[1:] != path[:-1]]) & np.isfinite(path)
        took_part = part.age[:, gradients.places[label]] == 0 if label in gradients.places else False
        idle[:, column] &= has_moved & ~np.asarray(took_part)
    recorded = norms.recorded & ~(idle & np.any(norms.values > 0, axis=1, keepdims=True))
    return replace(norms, recorded=recorded, values=np.where(recorded, norms.values, np.nan))


@metric(
    unit="1",
    reads=["weight_deltas.*.relative", update_norm, weight_norm],
    source="catalogue M11; You et al. 2017 (LARS)",
    memory=1,
)
def update_to_weight(run: Run) -> Series:
    r"""Last update of each weight tensor, relative to the tensor.

    $$r = \lVert \Delta W \rVert_F / \lVert W \rVert_F$$

    Shape (C, P): checkpoints by tensors. The recorded ratio counts; else it is computed from the two norms. Not recorded if the
    tensor is all zero, such as a new bias; NaN if either norm is NaN.
    """
    return filled(run.series("weight_deltas", "relative"), ratio(update_norm(run), weight_norm(run)))


@metric(unit="1", reads=["update_to_weight", update_norm, weight_norm], source="catalogue M11", memory=1)
def update_to_weight_global(run: Run) -> Series:
    r"""Last update of all weights together, relative to their norm.

    $$r = \sqrt{\textstyle\sum_p \lVert \Delta W_p \rVert^2} \,/\, \sqrt{\textstyle\sum_p \lVert W_p \rVert^2}$$

    Shape (T, 1): logged steps; checkpoints fill what the log lacks, over the tensors whose update was measured. Not recorded if
    one of them lacks its update or its norm at that step.
    """
    moved, size = together(update_norm(run), weight_norm(run))
    series = ratio(total(moved, "update_to_weight"), total(size, "update_to_weight"))
    return filled(run.scalar("update_to_weight"), series)


@metric(unit="1", reads=["weight_deltas.*.moved", GRID, "weights.*.mean", "weights.*.std", weight_rms], source="playbook D2.6")
def relative_movement(run: Run) -> Series:
    r"""How far each weight tensor has moved from its start.

    $$m_t = \lVert W_t - W_0 \rVert_F / \lVert W_0 \rVert_F$$

    Shape (C, P): checkpoints by tensors. Not recorded if step 0 is unknown or the tensor started at zero. If no movement is
    measured, it is that of the sampled elements since the first checkpoint, or of mean or standard deviation if that is more;
    both underestimate the movement.
    """
    measured = run.series("weight_deltas", "moved")
    if measured:
        return measured
    sampled = grid_movement(run.grid("weights", "sampled_grid_32x32"), "first")
    if not sampled:
        return sampled
    shifts = [cells_like(sampled, change(run.series("weights", name), weight_rms(run), "first")) for name in ("mean", "std")]
    return replace(
        sampled, values=np.fmax.reduce([sampled.values, *(np.where(sampled.recorded, shift, np.nan) for shift in shifts)])
    )


@metric(unit="1", reads=[GRID], source="Goodfellow et al. 2016, section 8.4", memory=1)
def row_spread(run: Run) -> Series:
    r"""How far the rows of each weight matrix differ, or its columns if they differ less, in the sampled elements.

    $$\min_{d \in \{0, 1\}} \max_{ij} |w_{ij} - w_{ij}^{(d)}| / \mathrm{rms}(W)$$

    Shape (C, P): checkpoints by tensors; \(w^{(0)}\) repeats the first sampled row, \(w^{(1)}\) the first column. Not recorded
    for samples with a single row or column, or with only zeros.
    """
    grids = run.grid("weights", "sampled_grid_32x32")
    return series_of_grids("row_spread", grids, [_spread_of_rows(values) for values in grids.values])


def _spread_of_rows(values: Floats) -> float:
    """Return the difference of a matrix's rows, or columns if less, relative to its size; NaN for a single one and for zeros."""
    size = float(np.sqrt(np.square(values).mean())) if values.ndim == 2 and min(values.shape) > 1 else 0.0
    if not size > 0:
        return math.nan
    return min(float(np.abs(values - values[:1]).max()), float(np.abs(values - values[:, :1]).max())) / size


@metric(
    unit="1",
    source="playbook D1.5",
    reads=[GRID, *(f"weights.*.{name}" for name in NUMBERS), "weights.*.percentiles", weight_rms, "weight_deltas.*.norm"],
)
def weight_statistics_change(run: Run) -> Series:
    r"""Largest change of any recorded statistic of a weight tensor since the previous checkpoint, relative to its size.

    $$\max_s |s_t - s_{t-1}| / \max_{t' \le t} \sqrt{\mu_{t'}^2 + \sigma_{t'}^2}$$

    Shape (C, P): checkpoints by tensors; s are mean, deviation, minimum, maximum, percentiles and sampled elements. 0 if none of
    them changed. In that case it is not recorded if there are no sampled elements and the numbers have five digits or fewer,
    because a small update would not show. Percentiles are left out for tensors with a measured update.
    """
    size, measured = weight_rms(run), frozenset(run.series("weight_deltas", "norm").labels)
    sampled = grid_movement(run.grid("weights", "sampled_grid_32x32"), "previous")
    numbers = [change(run.series("weights", name), size, "previous") for name in NUMBERS]
    shares = run.series("weights", "percentiles").only(lambda label: tensor_of(label) not in measured)
    numbers.append(by_tensor(change(shares, size, "previous")))
    known = {label for number in numbers for label in number.labels}
    sampled = sampled.only(known.__contains__) if known else sampled
    series = largest_of([series for series in (*numbers, sampled) if series.labels])
    still = series.recorded & (series.values == 0)
    recorded = series.recorded & ~(still & _unclear(series, run, sampled)) if still.any() else series.recorded
    return replace(series, values=np.where(recorded, series.values, np.nan), recorded=recorded)


def _unclear(series: Series, run: Run, sampled: Series) -> Mask:
    """Return the cells whose lack of change means little: no element is sampled, and mean and standard deviation are rounded."""
    mean, std = (cells_like(series, run.series("weights", name)) for name in ("mean", "std"))
    shown = np.isfinite(cells_like(series, sampled))
    return is_coarse(mean) & is_coarse(std) & ~shown


@metric(unit="1", reads=["weights.*.std", "weights.*.nonfinite_count"], source="Glorot & Bengio 2010, section 4.2", memory=1)
def weight_std(run: Run) -> Series:
    r"""Population standard deviation of each weight tensor's elements.

    $$\sigma = \sqrt{\tfrac1n \sum_i (w_i - \mu)^2}$$

    Shape (C, P): checkpoints by tensors. NaN if no element is finite.
    """
    return zeros_of_nonfinite_as_nan(run.series("weights", "std"), run.series("weights", "nonfinite_count"))


@metric(unit="1", reads=["weights.*.min", "weights.*.max"], source="definition", memory=1)
def weight_max_abs(run: Run) -> Series:
    r"""Largest magnitude among each weight tensor's finite elements.

    $$\max_i |w_i| = \max(|\min_i w_i|, |\max_i w_i|)$$

    Shape (C, P): checkpoints by tensors. Not recorded if minimum or maximum is missing; NaN if either is NaN.
    """
    return magnitude(run.series("weights", "min"), run.series("weights", "max"))


@metric(
    unit="1", reads=["weights.*.spectral_norm", "spectral_norm"], source="F6 and F7; Miyato et al. 2018, section 2.1", memory=1
)
def spectral_norm(run: Run) -> Series:
    r"""Largest singular value of the chosen weight matrices.

    $$\sigma_1(W) = \max_{\lVert v \rVert = 1} \lVert W v \rVert_2$$

    Shape (C, P): checkpoints by matrices, and values logged under this name. Not recorded for tensors that the recorder was not
    asked to track.
    """
    return filled(run.series("weights", "spectral_norm"), run.scalar("spectral_norm"))


def magnitude(low: Series, high: Series) -> Series:
    """Return the larger magnitude of minimum and maximum where both are recorded."""
    low, high = together(low, high)
    recorded = low.recorded & high.recorded
    values = np.where(recorded, np.maximum(np.abs(low.values), np.abs(high.values)), np.nan)
    return Series(low.name, low.unit, low.steps, low.labels, values, recorded)


def matrices_begun_at_zero(size: Series | None, tensors: TensorTable) -> tuple[str, ...]:
    """Return a model's matrices, except embeddings and norms, if all of them start at zero; else an empty tuple.

    Such a matrix later consists of its own updates, which are large relative to it. Frozen matrices count, because an adapter
    that starts at zero is used beside them. If no shapes are known, tensors named "weight" count as matrices.
    """
    if size is None or not len(size.steps):
        return ()

    def is_judged(name: str) -> bool:
        is_matrix = tensors.is_matrix(name) if name in tensors.facts else name.endswith(".weight")
        return is_matrix and tensors.kind(name) not in ("embedding", "norm")

    judged = size.only(is_judged)
    return judged.labels if judged.labels and (judged.values[0] == 0).all() else ()


def is_freshly_drawn(rms: Series | None, largest: Series | None, tensors: TensorTable) -> bool:
    """Tell whether a model is newly initialized at step 0: the elements of each normalization are equal, unlike trained ones.

    Args:
        rms: Root mean square of each tensor.
        largest: Largest magnitude in each tensor.
        tensors: Known facts of the tensors.

    Returns:
        Also false if step 0 is not recorded, or if the model has no normalizations.
    """
    if rms is None or largest is None:
        return False
    rms, largest = together(rms.only(lambda name: tensors.kind(name) == "norm"), largest)
    known = rms.finite & largest.finite
    if not rms.labels or not len(rms.steps) or rms.steps[0] != 0 or not known[0].any():
        return False
    return bool(np.allclose(rms.values[0][known[0]], largest.values[0][known[0]], rtol=1e-5))
