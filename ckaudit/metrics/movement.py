"""Movement: which weights move furthest from their start, and whether all of them move."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.gradients import gradient_norm, gradient_zero_fraction
from ckaudit.metrics.metric import metric
from ckaudit.metrics.optimizer import clip_coefficient, learning_rate
from ckaudit.metrics.pairs import filled, ratio, together
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.weights import relative_movement, spectral_norm, update_norm, update_to_weight
from ckaudit.metrics.words import optimizer_adapts
from ckaudit.run.column_builder import OPTIMIZERS
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Series, at, empty, single


@metric(unit="rank", reads=[relative_movement], source="playbook D3.4 and TRI-5")
def movement_rank(run: Run) -> Series:
    r"""Rank of each weight tensor by how far it has moved, 1 for the furthest.

    $$1 + |\{q : m_q > m_p\}|$$

    Shape (C, P): checkpoints by tensors; equal ones share a rank. NaN if the movement is not finite.
    """
    moved = relative_movement(run)
    known = np.where(moved.finite, moved.values, -np.inf)
    ordered = np.sort(-known, axis=1)
    ranks = np.empty(known.shape)
    for row in range(len(known)):
        ranks[row] = 1 + np.searchsorted(ordered[row], -known[row])
    return replace(moved, values=np.where(moved.finite, ranks, np.nan))


@metric(unit="1", reads=[relative_movement], source="playbook D2.6")
def moving_share(run: Run, *, min_share_of_median: float = 0.1) -> Series:
    r"""Share of the weight tensors that have moved at least a tenth as far as the median tensor.

    $$\tfrac1P \sum_p \mathbb{1}[\,m_p \ge 0.1 \operatorname{median}_q m_q\,]$$

    Shape (C, 1), 0 to 1: 1 if all move. Not recorded if nothing has moved.

    Args:
        run: The run.
        min_share_of_median: Share of the median that counts as moving.
    """
    moved = relative_movement(run)
    if not moved:
        return single("moving_share", "1", moved.steps[:0], moved.values[:0, :0])
    values = np.where(moved.finite, moved.values, np.nan)
    middle = row_medians(values)
    with np.errstate(all="ignore"):
        share = (values >= min_share_of_median * middle[:, None]).sum(axis=1) / moved.finite.sum(axis=1)
    return single("moving_share", "1", moved.steps, np.where(middle > 0, share, np.nan), middle > 0)


@metric(
    unit="1",
    reads=[update_norm, learning_rate, "weight_deltas.*.learning_rate", "optimizer.name"],
    source="Kingma & Ba 2015, section 2.1",
    memory=1,
    worst="low",
)
def step_over_rate(run: Run) -> Series:
    r"""Movement per element of each matrix in one update, relative to the learning rate.

    $$\lVert \Delta W \rVert_F / (\eta\,\sqrt{n})$$

    Shape (C, P): checkpoints by the tensors with two dimensions or more in run.json. Optimizers like Adam move an element by
    about the whole rate if its gradients agree from step to step, and by $\sqrt{(1 - \beta_1) / (1 + \beta_1)}$, a fifth of it,
    if they are noise, whatever their size. If parameter groups have rates of their own, the tensor's rate counts, or else the
    largest. Not recorded if the rate is zero or unknown, nor for RAdam, which warms up by itself (Liu et al. 2020, section 4).
    """
    moved = update_norm(run).only(run.tensors.is_matrix)
    if (run.value("optimizer.name").values == OPTIMIZERS.index("RAdam")).any():
        return empty("step_over_rate")
    largest = np.fmax(at(learning_rate(run), moved.steps).values.max(axis=1, initial=-np.inf), 0.0)
    of_all = replace(moved, values=np.repeat(largest[:, None], len(moved.labels), axis=1))
    rates = filled(run.series("weight_deltas", "learning_rate").only(run.tensors.is_matrix), of_all)
    reach = replace(rates, values=rates.values * np.sqrt(run.tensors.elements(rates.labels)))
    return ratio(moved, reach).named("step_over_rate", "1")


@metric(
    unit="1",
    reads=["weight_deltas.*.decay", update_to_weight],
    source="Loshchilov & Hutter 2019, algorithm 2; Kosson et al. 2024, section 3",
    memory=1,
)
def weight_decay_to_update(run: Run) -> Series:
    r"""Change of each matrix by weight decay in one update, relative to the length of the update.

    $$\eta\lambda\,\lVert W \rVert_F / \lVert \Delta W \rVert_F$$

    Shape (C, P): checkpoints by the tensors with two dimensions or more in run.json. At equilibrium, where weights keep their
    size, it is $\sqrt{\eta\lambda / 2}$: about 0.01 for a rate of 0.001 and a decay of 0.1. At 1 the update is nothing but decay.
    If decay is added to the gradient of an adaptive optimizer, this is a lower bound.
    """
    taken_off = run.series("weight_deltas", "decay").only(run.tensors.is_matrix)
    return ratio(taken_off, update_to_weight(run)).named("weight_decay_to_update", "1")


@metric(
    unit="1",
    reads=["optimizer.epsilon", gradient_norm, clip_coefficient, optimizer_adapts],
    source="Kingma & Ba 2015, algorithm 1",
    memory=1,
)
def epsilon_to_gradient(run: Run) -> Series:
    r"""Epsilon of an adaptive optimizer relative to the gradient of an element of each matrix.

    $$\epsilon\,\sqrt{n} / (c\,\lVert G \rVert_F)$$

    Shape (C, P): checkpoints by the tensors with two dimensions or more in run.json; $c$ is the clip coefficient. Far below 1,
    epsilon does not affect the update. At 1 the update is half as long as it should be, and above it is as small as that of plain
    gradient descent.
    """
    adapts, epsilon = optimizer_adapts(run), run.value("optimizer.epsilon").recorded_rows()
    size = gradient_norm(run).only(run.tensors.is_matrix)
    if not size or not epsilon or not (adapts.values == 1).any():
        return empty("epsilon_to_gradient")
    clipped = clip_coefficient(run)
    left = np.nan_to_num(at(clipped, size.steps).values, nan=1.0) if clipped else np.ones((len(size.steps), 1))
    given = at(epsilon, size.steps).values
    with np.errstate(all="ignore"):
        values = given * np.sqrt(run.tensors.elements(size.labels)) / (left * size.values)
    recorded = size.recorded & (size.values > 0) & np.isfinite(given)
    return Series("epsilon_to_gradient", "1", size.steps, size.labels, np.where(recorded, values, np.nan), recorded)


@metric(
    unit="1",
    reads=["weight_deltas.*.unchanged", gradient_zero_fraction],
    source="Micikevicius et al. 2018, section 3.1: updates below half of the last digit round to none",
    memory=1,
)
def lost_update_share(run: Run) -> Series:
    r"""Share of the elements of each matrix that have a gradient but that an update leaves unchanged.

    $$\max(0, \tfrac1n |\{i : w_i^{new} = w_i^{old}\}| - \tfrac1n |\{i : g_i = 0\}|)$$

    Shape (C, P): checkpoints by the tensors with two dimensions or more in run.json that are stored in half precision. There an
    update below half of an element's last digit, 2^-9 of it in bfloat16, is rounded away.
    """
    kept = run.series("weight_deltas", "unchanged").only(run.tensors.is_matrix)
    if not kept:
        return empty("lost_update_share")
    kept, zeros = together(kept, gradient_zero_fraction(run))
    values = np.maximum(kept.values - np.nan_to_num(zeros.values, nan=0.0), 0.0)
    return replace(kept, name="lost_update_share", unit="1", values=np.where(kept.recorded, values, np.nan))


@metric(unit="1", reads=[spectral_norm], source="F6 and F7; drill DR-2; Zhai et al. 2023, section 3")
def spectral_growth(run: Run) -> Series:
    r"""Largest singular value of each tracked matrix relative to its first.

    $$\sigma_1(W_t) / \sigma_1(W_{t_0})$$

    Shape (C, P): checkpoints by matrices; $t_0$ is the first checkpoint with a positive one. Attention logits grow with the
    product of those of queries and keys: tenfold growth in a few hundred steps is a runaway.
    """
    norms = spectral_norm(run)
    if not norms:
        return norms
    started = norms.finite & (norms.values > 0)
    first = np.where(started.any(axis=0), started.argmax(axis=0), 0)
    base = norms.values[first, np.arange(len(norms.labels))]
    recorded = norms.recorded & np.logical_or.accumulate(started, axis=0)
    with np.errstate(all="ignore"):
        return replace(norms, values=np.where(recorded, norms.values / base, np.nan), recorded=recorded)


NEGLIGIBLE_DISTANCE = 0.01
"""Relative distance of weights if the sum of all learning rates is a tenth of their size and updates are a tenth of the rate."""


def median_distance_moved(moved: Series | None) -> float | None:
    """Return the median relative distance of the weights that have moved by the end; None if unknown.

    Args:
        moved: Relative distance of each tensor since the first checkpoint, shape (C, P).
    """
    come = moved.values[-1][moved.finite[-1] & (moved.values[-1] > 0)] if moved else np.empty(0)
    return median(come) if come.size else None


def updated_by_another_optimizer(norm: Series | None, way: Series | None) -> frozenset[str]:
    """Return the tensors that keep moving although every measured update of theirs is zero.

    Args:
        norm: Norm of each tensor's update by the optimizers that the recorder knows, shape (C, P).
        way: Distance of each tensor. A tensor that changes once, as by a flipped bit, has a constant distance from there on.
    """
    if norm is None or way is None:
        return frozenset()
    still = {name for name, values in zip(norm.labels, norm.values.T, strict=True) if not np.nan_to_num(values).any()}
    moving = {name for name, values in zip(way.labels, way.values.T, strict=True) if len(np.unique(values[values > 0])) > 1}
    return frozenset(still & moving)


@metric(unit="1", reads=["weight_deltas.*.decay", "weight_deltas.*.norm", "optimizer.name"], source="analysis contract", memory=1)
def decayed_share(run: Run) -> Series:
    r"""Share of the tensors with a measured update that weight decay reduces.

    $$\tfrac1P \sum_p \mathbb{1}[\lambda_p > 0]$$

    Shape (C, 1): checkpoints. 0 if ckaudit's recorder saw a torch optimizer without decay: it writes the decay of every tensor
    that has one. Not recorded if another program wrote no decay, because it may not have checked.
    """
    moved, decay = run.series("weight_deltas", "norm"), run.series("weight_deltas", "decay")
    is_ours = run.manifest is not None and str(run.manifest.source).startswith("ckaudit recorder")
    names = run.value("optimizer.name")
    is_known = bool(names.finite.any()) and bool((names.values[names.finite] < len(OPTIMIZERS)).all())
    if not moved or not (decay or (is_ours and is_known)):
        return empty("decayed_share")
    taken_off = at(decay, moved.steps)
    decayed = ((taken_off.values > 0) & (taken_off.age == 0)).sum(axis=1)
    known = moved.recorded.sum(axis=1)
    with np.errstate(all="ignore"):
        return single("decayed_share", "1", moved.steps, np.where(known > 0, decayed / known, np.nan), known > 0)


def decays_nothing(decayed: Series | None) -> bool:
    """Tell whether the optimizer is known to have no weight decay, by `decayed_share`."""
    return decayed is not None and bool(decayed.finite.any()) and not bool(decayed.values[decayed.finite].any())
