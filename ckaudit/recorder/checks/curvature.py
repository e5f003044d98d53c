"""Curvature of the loss: the trace of its Hessian, estimated from Hessian-vector products with random vectors."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ckaudit.recorder.checks.side_effect_free import no_side_effects
from ckaudit.recorder.stats.arrays import dense, flat

ONCE_ONLY = "is not implemented"  # torch's error for an operator that has no second derivative
REMEDY = (
    "an operator behind this loss, as fused attention, has no second derivative; give a function instead, as in "
    "measure_curvature(lambda: criterion(model(inputs), targets)), which computes attention in its plain form, or compute the "
    "loss within torch.nn.attention.sdpa_kernel(SDPBackend.MATH)"
)


class Curvature(Struct, frozen=True, kw_only=True):
    """An estimate of the trace of the Hessian.

    Attributes:
        trace: Mean over samples.
        standard_error: Standard error of that mean; NaN for one sample.
        samples: Random vectors used.
    """

    trace: float
    standard_error: float
    samples: int


def hessian_trace(loss: Tensor, parameters: Sequence[Tensor], *, samples: int, seed: int) -> Curvature:
    r"""Return the trace of the Hessian of a loss (Hutchinson 1989; M18).

    $$\operatorname{tr} H \approx \tfrac1S \sum_s v_s^\top H v_s, \qquad v_s \in \{-1, 1\}^P$$

    The vectors come from a separate generator. One seed gives the same vectors at every step, so that more of a change in the
    estimate comes from the curvature. Gradients in `.grad` do not change.

    Args:
        loss: A scalar with its graph.
        parameters: The parameters to differentiate by; those that the loss does not depend on add nothing.
        samples: Number of vectors.
        seed: Seed of the generator.

    Raises:
        ValueError: If fewer than one sample is asked for.
        RuntimeError: If an operator of the graph cannot be differentiated twice.
    """
    if samples < 1:
        raise ValueError("at least one sample is needed")
    source = torch.Generator().manual_seed(seed)
    slopes: Sequence[Tensor | None] = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    bent = [(p, slope) for p, slope in zip(parameters, slopes, strict=True) if slope is not None and slope.requires_grad]
    traces = [_sample([p for p, _ in bent], [slope for _, slope in bent], source) for _ in range(samples)]
    error = stdev(traces) / math.sqrt(samples) if samples > 1 else math.nan
    return Curvature(trace=fmean(traces), standard_error=error, samples=samples)


def trace_of(
    model: nn.Module, loss: Tensor | Callable[[], Tensor], parameters: Sequence[Tensor], *, samples: int, seed: int
) -> Curvature:
    """Return the trace for a given loss, or for a loss computed now in evaluation mode without side effects on the training."""
    if isinstance(loss, Tensor):
        try:
            return hessian_trace(loss, parameters, samples=samples, seed=seed)
        except RuntimeError as error:
            if ONCE_ONLY in str(error):
                raise RuntimeError(REMEDY) from error
            raise
    # Fused attention has no second derivative; its plain form does.
    with no_side_effects(model), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        return hessian_trace(loss(), parameters, samples=samples, seed=seed)


def _sample(parameters: Sequence[Tensor], slopes: Sequence[Tensor], source: torch.Generator) -> float:
    """Return v^T H v for one random vector v."""
    if not parameters:
        return 0.0
    vectors = [_signs(p, source) for p in parameters]
    products: Sequence[Tensor | None] = torch.autograd.grad(slopes, parameters, vectors, retain_graph=True, allow_unused=True)
    pairs = zip(vectors, products, strict=True)
    return math.fsum(float((flat(v).double() * flat(product).double()).sum()) for v, product in pairs if product is not None)


def _signs(like: Tensor, source: torch.Generator) -> Tensor:
    """Return a random sign for each real number in a tensor: a complex element has two."""
    signs = torch.randint(0, 2, dense(like).shape, generator=source, dtype=torch.int8) * 2 - 1
    signs = signs.to(like.device, like.real.dtype)
    return torch.view_as_complex(signs) if like.is_complex() else signs
