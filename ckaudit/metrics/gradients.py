"""Gradients: how much gradient reaches each tensor and each block."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, in_order, logged_as, ratio, total, zeros_of_nonfinite_as_nan
from ckaudit.metrics.weights import weight_norm
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, root_sum_square, single
from ckaudit.run.tensors import last_of_stack


@metric(unit="1", reads=["gradients.*.norm", "gradients.*.nonfinite_count"], source="playbook D1.3", memory=1)
def gradient_norm(run: Run) -> Series:
    r"""L2 norm of the loss gradient of each tensor, after AMP unscale and before clipping.

    $$g_p = \lVert \nabla_p L \rVert_F$$

    Shape (C, P): checkpoints by tensors. Not recorded if a tensor has no gradient or is stored elsewhere (sharded optimizers);
    NaN if an element is NaN, also if a writer gave 0 because no element was left to add up.
    """
    return zeros_of_nonfinite_as_nan(run.series("gradients", "norm"), run.series("gradients", "nonfinite_count"))


def _with_idle_experts(run: Run) -> Series:
    """Return `gradient_norm` with 0 for experts without a gradient at checkpoints where other experts have one.

    An expert that is stored elsewhere is recorded at no checkpoint, and stays unrecorded.
    """
    norms = gradient_norm(run)
    experts = norms.only(run.tensors.is_expert)
    at_work = experts.recorded.any(axis=1, keepdims=True)
    none = np.zeros(experts.values.shape)
    return filled(norms, replace(experts, values=none, recorded=np.broadcast_to(at_work, none.shape)))


@metric(unit="1", reads=["grad_global_norm", gradient_norm], source="catalogue M09, F4; Pascanu et al. 2013", memory=1)
def grad_global_norm(run: Run) -> Series:
    r"""L2 norm of the gradient of all parameters together, before clipping.

    $$g = \sqrt{\textstyle\sum_p \lVert \nabla_p L \rVert_F^2}$$

    Shape (T, 1): logged steps; checkpoints fill what the log lacks. Computed from tensors only if every tensor with a gradient so
    far is recorded, except experts without a token; NaN if one is NaN.
    """
    series = total(_with_idle_experts(run), "grad_global_norm")
    return filled(logged_as(run, "grad_global_norm"), series)


@metric(unit="1", reads=[gradient_norm], source="Glorot & Bengio 2010, section 4.2; playbook D1.2", memory=1)
def block_gradient_norm(run: Run) -> Series:
    r"""L2 norm of the loss gradient over all parameters of one block.

    $$g_\ell = \sqrt{\textstyle\sum_{p \in \ell} \lVert \nabla_p L \rVert_F^2}$$

    Shape (C, L): checkpoints by blocks, from the input to the output; embedding, head and final norm are not blocks. Not recorded
    if any of a block's parameters is not, except experts without a token, nor in the first steps of a block behind a factor that
    starts at zero, which gets a gradient as soon as the factor moves; NaN if one is NaN.
    """
    norms = _with_idle_experts(run)
    blocks = _without_first_zeros(norms.grouped(run.tensors.blocks(norms.labels), root_sum_square))
    return in_order(blocks, run.tensors.in_depth_order(blocks.labels))


def _without_first_zeros(norms: Series, *, first_steps: int = 20) -> Series:
    """Return norms without exact zeros that end within the first steps: a product has no gradient while one factor is zero."""
    alive = np.maximum.accumulate(norms.recorded & (norms.values != 0), axis=0)
    late = (norms.steps > first_steps)[:, None]
    begins = alive.any(axis=0) & ~(norms.recorded & ~alive & late).any(axis=0)
    recorded = norms.recorded & (alive | ~begins)
    return replace(norms, recorded=recorded, values=np.where(recorded, norms.values, np.nan))


@metric(unit="1", reads=[block_gradient_norm], source="playbook D4.2", memory=1)
def waterfall_ratio(run: Run, *, min_block_share: float = 1e-12) -> Series:
    r"""Gradient norm of the last block relative to that of each block.

    $$w_\ell = g_L / \max(g_\ell, \epsilon\,g_L)$$

    Shape (C, L): checkpoints by blocks, from the input to the output; the last block of each list, such as encoder and decoder,
    is 1. Not recorded if that block has no gradient at all; NaN if either norm is not finite.

    Args:
        run: The run.
        min_block_share: A block without any gradient counts as this share of the last, so that the ratio stays finite.
    """
    norms = block_gradient_norm(run)
    if not norms:
        return norms
    ends = last_of_stack(norms.labels)
    last = norms.values[:, ends]
    recorded = norms.recorded & norms.recorded[:, ends] & (last != 0)
    finite = recorded & np.isfinite(norms.values) & np.isfinite(last)
    with np.errstate(all="ignore"):
        values = np.where(finite, last / np.maximum(norms.values, min_block_share * last), np.nan)
    return replace(norms, values=values, recorded=recorded)


@metric(unit="1", reads=[gradient_norm], source="playbook TRI-3 and D4.4", memory=1)
def gradient_share(run: Run) -> Series:
    r"""Share of each tensor in the squared gradient norm.

    $$s_p = \lVert \nabla_p L \rVert^2 / \textstyle\sum_q \lVert \nabla_q L \rVert^2$$

    Shape (C, P): checkpoints by tensors; a row sums to 1. Not recorded if any tensor with a gradient so far is not, except
    experts without a token, nor if the whole gradient is 0; NaN in the whole row if one norm is not finite.
    """
    norms = _with_idle_experts(run)
    whole = total(norms, "all")
    if not whole:
        return replace(norms, recorded=np.zeros_like(norms.recorded))
    recorded = norms.recorded & whole.recorded & (whole.values != 0)
    with np.errstate(all="ignore"):
        values = np.where(recorded, np.square(norms.values / whole.values), np.nan)
    return replace(norms, values=values, recorded=recorded)


@metric(unit="1", reads=["top_gradient_share", gradient_share], source="playbook TRI-3 and D4.4", memory=1)
def top_gradient_share(run: Run) -> Series:
    r"""Share of the tensor with the largest gradient in the squared gradient norm.

    $$s = \max_p s_p$$

    Shape (T, 1): logged steps; checkpoints fill what the log lacks. gradient_share shows which tensor it is. Not recorded and NaN
    as in gradient_share.
    """
    shares = gradient_share(run)
    largest: Floats = np.max(np.where(shares.recorded, shares.values, -np.inf), axis=1, initial=-np.inf)
    largest = np.where(np.isneginf(largest), np.nan, largest)
    series = single("top_gradient_share", "1", shares.steps, largest, np.any(shares.recorded, axis=1))
    return filled(logged_as(run, "top_gradient_share"), series)


@metric(unit="1", reads=[gradient_norm, weight_norm], source="F16", memory=1)
def grad_to_weight(run: Run) -> Series:
    r"""Gradient of each tensor, relative to its weights.

    $$\rho_p = \lVert \nabla_p L \rVert_F / \lVert W_p \rVert_F$$

    Shape (C, P): checkpoints by tensors. The weights are those after the update of the same step. Not recorded if the tensor is
    all zero; NaN if either norm is NaN.
    """
    return ratio(gradient_norm(run), weight_norm(run))


@metric(unit="1", reads=["gradients.*.zero_fraction"], source="playbook TRI-5", memory=1)
def gradient_zero_fraction(run: Run) -> Series:
    r"""Share of each tensor's gradient elements that are exactly zero.

    $$z_p = \tfrac1n \sum_i \mathbb{1}[\,G_{p,i} = 0\,]$$

    Shape (C, P): checkpoints by tensors, 0 to 1. Near 1 for an embedding, because most tokens do not occur in a batch.
    """
    return run.series("gradients", "zero_fraction")


@metric(unit="1", reads=["grad_carried_over"], source="PyTorch, Optimizer.zero_grad", memory=1)
def grad_carried_over(run: Run) -> Series:
    r"""Share of the gradient left by earlier steps when the backward passes of a step add theirs.

    $$c = \max_p \frac{\lVert G_p^{old} \rVert}{\lVert G_p^{old} \rVert + \lVert G_p^{new} \rVert}$$

    Shape (T, 1): steps with a checkpoint or vital signs; p are a few small tensors. 0 if gradients were cleared, a half if as
    much is left as is added. Not recorded if the updates before are unknown, if gradients are sharded over ranks or stored
    elsewhere, or if one is not finite.
    """
    return run.scalar("grad_carried_over")


@metric(unit="1", reads=["history.gradient_norms.*"], source="ckaudit, the black box", memory=1)
def boxed_gradient_norm(run: Run) -> Series:
    r"""Gradient norm of each tensor at every step that a black box holds.

    $$\lVert G_p \rVert_F$$

    Shape (B, P): the last steps before each event, by tensors; nothing is recorded between events. NaN if the norm is NaN.
    """
    return run.value("history.gradient_norms.*")
