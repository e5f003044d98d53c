"""Gradients against central differences: whether the backward pass is the derivative of the forward pass."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ckaudit.recorder.checks.side_effect_free import LossOf, no_side_effects, with_changed_batch
from ckaudit.recorder.stats.arrays import dense

EPSILON = torch.finfo(torch.float64).eps

STEP = EPSILON ** (1 / 3)  # rounding and the third derivative give about the same error; Press et al. 2007, section 5.7

PER_TENSOR = 4

LIMIT = 1e-4  # a correct gradient in float64 agrees to 1e-7 and better, a wrong one rarely to one digit

NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex32})

CASTS = frozenset({Tensor.float, Tensor.half, Tensor.bfloat16})


class Float64Evaluation(TorchFunctionMode):
    """Torch mode that replaces every narrower floating-point dtype that is asked for by float64.

    Norms, softmax and losses of language models often compute in float32 whatever their inputs are. Differences with a step of
    1e-5 would disappear in its rounding. Autocast does not touch float64.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function of torch with its dtypes widened."""
        if function in CASTS:
            return Tensor.double(args[0])
        named = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return function(*map(_wide, args), **named)


class GradientCheck(Struct, frozen=True, kw_only=True):
    """Difference between the gradients of a backward pass and the numerical slopes of the loss.

    Attributes:
        errors: Largest relative error among the sampled elements of each tensor.
        worst_tensor: Tensor with the largest error, within 1 %. Of equal errors the last counts, because a fault makes all
            earlier gradients as wrong. None if no difference exceeds rounding.
        worst_error: Its error, 0 to 2; NaN if a gradient is NaN.
        limit: The largest error that passes.
        elements: Elements compared.
    """

    errors: dict[str, float]
    worst_tensor: str | None
    worst_error: float
    limit: float
    elements: int

    @property
    def wrong(self) -> list[str]:
        """Tensors with an error above the limit, in the order of the model."""
        return [name for name, error in self.errors.items() if not error <= self.limit]

    @property
    def passed(self) -> bool:
        """Whether every sampled element agrees."""
        return not self.wrong


def check_gradients(
    model: nn.Module, batch: Any, loss: LossOf, *, per_tensor: int = PER_TENSOR, seed: int = 0, limit: float = LIMIT
) -> GradientCheck:
    r"""Compare gradients with central differences on a copy of the model in float64.

    $$e = \frac{\max(0, |g - d| - r)}{\max(|g|, |d|)}, \qquad d = \frac{L(w + h) - L(w - h)}{2h}$$

    where r is the rounding of d. The copy runs in evaluation mode, so that both losses come from the same function. Of each
    tensor the element with the largest gradient is compared, and others, evenly strided from a random start. A smaller h avoids a
    kink of the loss within h: the smaller of two errors counts.

    Args:
        model: The model; it is not changed.
        batch: What the loss needs; floating tensors are turned to float64.
        loss: Returns the loss of a model on a batch.
        per_tensor: Elements compared of each tensor; each costs two to four forward passes.
        seed: Seed of the generator that chooses the elements.
        limit: The largest error that passes.

    Raises:
        TypeError: If the loss is narrower than float64.
    """
    with no_side_effects(model), Float64Evaluation():  # the copy uses the same random generators
        twin = deepcopy(model).double()
        for tensor in (*twin.parameters(), *twin.buffers()):
            tensor.data = _in_double(tensor.data)  # `double` does not convert complex numbers
        shown = with_changed_batch(batch, lambda part, _: _in_double(part))
        return _compare(twin, lambda: loss(twin, shown), per_tensor, torch.Generator().manual_seed(seed), limit)


def _compare(
    model: nn.Module, loss: Callable[[], Tensor], per_tensor: int, source: torch.Generator, limit: float
) -> GradientCheck:
    named = {name: p for name, p in model.named_parameters() if p.requires_grad and p.numel()}
    with torch.enable_grad():
        value = loss()
        if value.dtype != torch.float64:
            raise TypeError(f"differences cannot be taken of a loss in {value.dtype}")
        gradients: Sequence[Tensor | None] = torch.autograd.grad(value, list(named.values()), allow_unused=True)
    errors: dict[str, float] = {}
    elements = 0
    with torch.no_grad():
        for (name, parameter), gradient in zip(named.items(), gradients, strict=True):
            values = dense(parameter)  # shares memory with the parameter
            slopes = torch.zeros_like(values) if gradient is None else dense(gradient)
            sampled = [_error(values, slopes, place, loss, limit) for place in _places(slopes, per_tensor, source)]
            errors[name], elements = _worst(sampled), elements + len(sampled)
    worst_tensor = _furthest(errors)
    worst_error = errors[worst_tensor] if worst_tensor else 0.0
    return GradientCheck(errors=errors, worst_tensor=worst_tensor, worst_error=worst_error, limit=limit, elements=elements)


def _furthest(errors: Mapping[str, float], *, alike: float = 0.99) -> str | None:
    """Return the last tensor whose error is close to the largest, None if all are 0; NaN is larger than any number."""
    largest = _worst(list(errors.values()))
    if largest == 0:
        return None
    return [name for name, error in errors.items() if math.isnan(error) or error >= alike * largest][-1]


def _error(parameter: Tensor, slopes: Tensor, place: int, loss: Callable[[], Tensor], limit: float) -> float:
    """Return the relative error of one element; if it is above the limit, the smaller of the errors for two steps h."""
    index = tuple(int(place_in_dim) for place_in_dim in np.unravel_index(place, parameter.shape))
    first = _error_at(parameter, index, float(slopes[index]), loss, STEP)
    return min(first, _error_at(parameter, index, float(slopes[index]), loss, STEP / 8)) if first > limit else first


def _error_at(parameter: Tensor, index: tuple[int, ...], slope: float, loss: Callable[[], Tensor], step: float) -> float:
    value = float(parameter[index])
    width = step * max(1.0, abs(value))
    ends = []
    for end in (value + width, value - width):
        parameter[index] = end
        ends.append(float(loss()))
    parameter[index] = value
    difference = (ends[0] - ends[1]) / (2 * width)
    # Ten times the spacing of doubles: a loss is a sum of many terms.
    rounding = 10 * EPSILON * max(map(abs, ends)) / width
    error, scale = abs(slope - difference), max(abs(slope), abs(difference))
    if not math.isfinite(error):
        return math.nan
    return max(0.0, error - rounding) / scale if scale > 0 else 0.0


def _places(slopes: Tensor, count: int, source: torch.Generator) -> Iterator[int]:
    """Yield the element with the largest gradient, and others evenly strided from a random start, each once."""
    largest = int(slopes.abs().argmax())
    yield largest
    stride = -(-slopes.numel() // max(1, count - 1))
    start = int(torch.randint(0, stride, (), generator=source))
    yield from (place for place in range(start, slopes.numel(), stride) if place != largest and count > 1)


def _worst(errors: list[float]) -> float:
    return math.nan if any(map(math.isnan, errors)) else max(errors, default=0.0)


# Context in which a model that casts to half or single precision still computes in double precision.
def _wide(value: Any) -> Any:
    if isinstance(value, torch.dtype) and value in NARROW:
        return torch.complex128 if value.is_complex else torch.float64
    return value


def _in_double(tensor: Tensor) -> Tensor:
    """Return a tensor in double precision; a tensor of integers is returned unchanged."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor
