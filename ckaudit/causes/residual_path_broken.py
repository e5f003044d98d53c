"""Blocks pass no gradient around themselves."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence
from ckaudit.metrics.activations import activation_rms
from ckaudit.metrics.gradients import block_gradient_norm
from ckaudit.rules.dead_parameter import dead_parameter
from ckaudit.rules.vanishing_gradient import vanishing_gradient
from ckaudit.run.series import Series


@cause(
    prior=-0.5,
    explains=[vanishing_gradient],
    wants=[block_gradient_norm, activation_rms],
    knob="Check that each block adds to its input; then the initial scale and the norm's parameters.",
    inspect="Gradient norm per block at one step, and the size of the activations that enter each block.",
    runbook="Save one checkpoint with activations; on a fixed batch, print the gradient at the input of each block.",
)
def residual_path_broken(
    found: Findings, norm: Series | None, rms: Series | None, *, steady: float = 0.5,
    strong: float = 2.0, medium: float = 1.0,
) -> Iterator[Evidence]:  # fmt: skip
    """Blocks pass no signal around themselves, so the gradient decays with depth.

    The decay is steady where its spread from block to block is below `steady` of its mean.
    Weights are starting values, to be fitted on runs of known truth.
    """
    first = found.first(vanishing_gradient)
    if norm is not None and first is not None and (steps := _log_steps(norm, first.first_step)) is not None:
        if steps.min() > 0 and steps.std() < steady * steps.mean():
            yield supports(strong, f"the gradient falls about {np.exp(steps.mean()):.1f}x at every block on its way back", first)
        else:
            yield contradicts(medium, "the gradient falls at one block, not evenly with depth", first)
    if rms is not None and (growth := _growth(rms)) is not None and growth < 0.1:
        yield supports(medium, f"activations shrink to {growth:.2g} of their size with depth", rms.name)
    if dead := found.first(dead_parameter):
        yield contradicts(medium, f"{dead.where} gets no gradient at all: something is cut off, not worn down", dead)


def _log_steps(norm: Series, step: int | None) -> np.ndarray | None:
    """Return the log ratio of each block's norm to the one before it, at the first bad step."""
    row = int(np.searchsorted(norm.steps, step if step is not None else 0))
    values = norm.values[min(row, len(norm.values) - 1)]
    if len(values) < 3 or not (np.isfinite(values) & (values > 0)).all():
        return None
    return np.asarray(np.diff(np.log(values)))


def _growth(rms: Series) -> float | None:
    """Return the last module's activation size over the first one's, at the last step."""
    values = rms.values[-1][rms.finite[-1]]
    return float(values[-1] / values[0]) if values.size > 2 and values[0] > 0 else None
