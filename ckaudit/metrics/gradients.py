"""Gradients: how much of them reaches each tensor and each block."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled, in_order, logged_as, ratio, total
from ckaudit.metrics.weights import weight_norm
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, root_sum_square, single
from ckaudit.run.tensors import last_of_stack


@metric(unit="1", reads=["gradients.*.norm"], source="playbook D1.3", memory=1)
def gradient_norm(run: Run) -> Series:
    r"""L2 norm of the loss gradient of each tensor, after AMP unscale and before clipping.

    $$g_p = \lVert \nabla_p L \rVert_F$$

    Shape (C, P): checkpoints by tensors. Not recorded where a tensor took no gradient or it lives elsewhere (sharded
    optimizers); NaN where an element was NaN.
    """
    return run.series("gradients", "norm")


def _with_idle_experts(run: Run) -> Series:
    """Return `gradient_norm`, with 0 for experts that no token went to: other experts have a gradient there, they have none.

    An expert that lives elsewhere is recorded at no checkpoint, and stays so.
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

    Shape (T, 1): logged steps; checkpoints fill what the log lacks. Made from tensors only where every tensor was
    recorded that ever is, experts without a token aside; NaN where one was NaN.
    """
    series = total(_with_idle_experts(run), "grad_global_norm")
    return filled(logged_as(run, "grad_global_norm"), series)


@metric(unit="1", reads=[gradient_norm], source="Glorot & Bengio 2010, section 4.2; playbook D1.2", memory=1)
def block_gradient_norm(run: Run) -> Series:
    r"""L2 norm of the loss gradient over all parameters of one block.

    $$g_\ell = \sqrt{\textstyle\sum_{p \in \ell} \lVert \nabla_p L \rVert_F^2}$$

    Shape (C, L): checkpoints by blocks, from the input to the output; embedding, head and final norm are not blocks.
    Not recorded where any of a block's parameters was not, experts without a token aside, nor in the first steps of a block
    that begins behind a factor of zero and has a gradient as soon as that has moved; NaN where one was NaN.
    """
    norms = _with_idle_experts(run)
    blocks = _without_first_zeros(norms.grouped(run.tensors.blocks(norms.labels), root_sum_square))
    return in_order(blocks, run.tensors.in_depth_order(blocks.labels))


def _without_first_zeros(norms: Series, *, first_steps: int = 20) -> Series:
    """Return norms without the exact zeros that end within the first steps: a product has no gradient while a factor is zero."""
    alive = np.maximum.accumulate(norms.recorded & (norms.values != 0), axis=0)
    late = (norms.steps > first_steps)[:, None]
    begins = alive.any(axis=0) & ~(norms.recorded & ~alive & late).any(axis=0)
    recorded = norms.recorded & (alive | ~begins)
    return replace(norms, recorded=recorded, values=np.where(recorded, norms.values, np.nan))


@metric(unit="1", reads=[block_gradient_norm], source="playbook D4.2", memory=1)
def waterfall_ratio(run: Run, *, min_block_share: float = 1e-12) -> Series:
    r"""How many times less gradient a block gets than the last block.

    $$w_\ell = g_L / \max(g_\ell, \epsilon\,g_L)$$

    Shape (C, L): checkpoints by blocks, from the input to the output; the last of each list of blocks is 1, as an encoder's
    beside a decoder. Not recorded where that has no gradient at all; NaN where either norm is not finite.

    Args:
        run: The run.
        min_block_share: A block without any gradient counts as this share of the last, so that the ratio stays a number.
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

    Shape (C, P): checkpoints by tensors; a row sums to 1. Not recorded where any tensor was not that ever is, experts
    without a token aside, nor where the whole gradient is 0; NaN in the whole row where one norm is not finite.
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
    r"""Share of the largest tensor in the squared gradient norm.

    $$s = \max_p s_p$$

    Shape (T, 1): logged steps; checkpoints fill what the log lacks. gradient_share says which tensor it is.
    Not recorded and NaN as in gradient_share.
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

    Shape (C, P): checkpoints by tensors. The weights are those after the update of the same step. Not recorded where
    the tensor is all zero; NaN where either norm is NaN.
    """
    return ratio(gradient_norm(run), weight_norm(run))


@metric(unit="1", reads=["gradients.*.zero_fraction"], source="playbook TRI-5", memory=1)
def gradient_zero_fraction(run: Run) -> Series:
    r"""Share of each tensor's gradient elements that are exactly zero.

    $$z_p = \tfrac1n \sum_i \mathbb{1}[\,G_{p,i} = 0\,]$$

    Shape (C, P): checkpoints by tensors, 0 to 1. An embedding's is near 1, for most tokens are not in a batch.
    """
    return run.series("gradients", "zero_fraction")


@metric(unit="1", reads=["grad_carried_over"], source="PyTorch, Optimizer.zero_grad", memory=1)
def grad_carried_over(run: Run) -> Series:
    r"""Share of the gradient that earlier steps have left where the backward passes of a step add theirs.

    $$c = \max_p \frac{\lVert G_p^{old} \rVert}{\lVert G_p^{old} \rVert + \lVert G_p^{new} \rVert}$$

    Shape (T, 1): steps with a checkpoint or vital signs; p are a few small tensors. 0 where gradients were cleared, a half
    where as much is left as is added. Not recorded where nothing tells which updates came before, where ranks hold
    gradients in parts or they live elsewhere, nor where one is not finite.
    """
    return run.scalar("grad_carried_over")


@metric(unit="1", reads=["history.gradient_norms.*"], source="ckaudit, the black box", memory=1)
def boxed_gradient_norm(run: Run) -> Series:
    r"""Gradient norm of each tensor at every step that a black box holds.

    $$\lVert G_p \rVert_F$$

    Shape (B, P): the last steps before each event, by tensors; between events nothing is recorded. NaN where it was NaN.
    """
    return run.value("history.gradient_norms.*")
