"""Gradients of a torch model: all norms in one pass, unscaling, and clipping."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn

from ckaudit.recorder.stats.arrays import flat, norm, to_float64, widest_float

PIECE_ELEMENTS = 2**16  # elements of a piece
LONG_ELEMENTS = 2**20  # elements up to which torch's norm on a CPU is correct to 1e-5
VERY_LONG_ELEMENTS = 2**25  # and up to which it is correct to 1e-3
FULL_TYPES = (torch.float32, torch.float64)
EPSILON = 1e-6  # torch adds this to the total norm in clipping
TINY = 1e-15  # float32 norm below which the squares of elements may underflow
MARGIN = 0.999  # share of the largest norm; below it the clipping coefficient is 1 however it is rounded


def existing_gradients(
    parameters: Mapping[str, nn.Parameter], grad_of: Callable[[nn.Parameter], Tensor | None] | None = None
) -> dict[str, Tensor]:
    """Return the existing gradients by tensor name; a missing gradient is absent, not zero.

    Args:
        parameters: The parameters; those without `requires_grad` are left out.
        grad_of: Returns the gradient of a parameter; None: `.grad`.
    """
    gradients = {}
    if grad_of is None:
        for name, parameter in parameters.items():
            if parameter.requires_grad and (gradient := parameter.grad) is not None:
                gradients[name] = gradient
        return gradients
    for name, parameter in parameters.items():
        if parameter.requires_grad and (gradient := grad_of(parameter)) is not None:
            gradients[name] = gradient
    return gradients


class Norms(Struct, frozen=True):
    """L2 norms of gradients. On an accelerator they stay there: fetching them would make the training wait.

    Attributes:
        pieces: The norm of every piece: numbers if in CPU memory, else a tensor, shape (K,).
        owners: Index of each piece's gradient; None: each piece is a whole gradient, with the norm that torch's clipping
            computes.
        count: Number of gradients.
        dtype: Dtype of the gradients, if the norms are as torch computes them.
    """

    pieces: Tensor | list[float]
    owners: Sequence[int] | None
    count: int
    dtype: torch.dtype | None = None

    def by_name(self, names: Iterable[str]) -> dict[str, float] | None:
        """Return the norms by gradient name; None if they must be fetched."""
        if not isinstance(self.pieces, list):
            return None
        return dict(zip(names, self.pieces if self.owners is None else self.numbers(), strict=True))

    @property
    def as_torch(self) -> Tensor | None:
        """Norms that `clip` can use, shape (P,); None if torch would have computed others."""
        if self.owners is not None:
            return None
        # Faster than stacking tensors.
        return torch.tensor(self.pieces, dtype=self.dtype, device="cpu") if isinstance(self.pieces, list) else self.pieces

    def numbers(self) -> list[float]:
        """Fetch and return the norm of every gradient; the pieces of one are summed in float64."""
        numbers: list[float] = self.pieces if isinstance(self.pieces, list) else self.pieces.tolist()
        if self.owners is None:
            return numbers
        squares = [0.0] * self.count
        for owner, piece in zip(self.owners, numbers, strict=True):
            squares[owner] += piece * piece
        return [math.sqrt(square) if square >= 0 else math.nan for square in squares]


def take_norms(
    gradients: Sequence[Tensor], *, piece: int = PIECE_ELEMENTS, long: int = LONG_ELEMENTS, longest: int | None = None
) -> Norms | None:
    """Take the L2 norm of each gradient; None without gradients.

    This is one fused pass per device and dtype; half precision is summed in float32. On a CPU torch sums float32 sequentially
    (measured with torch 2.13: 0.02 % too little at 10 million elements, 0.6 % at 100 million), so a large gradient is measured in
    pieces.

    Args:
        gradients: The gradients.
        piece: Elements of a piece; four times as many in full precision.
        long: Elements up to which torch's float32 norm is accepted on a CPU.
        longest: Elements of the largest gradient, if all are known to have the dtype of the first; None: look it up, which takes
            a quarter of the time of the norms.
    """
    if not gradients:
        return None
    if _is_plain(gradients, long) if longest is None else gradients[0].dtype in FULL_TYPES and longest <= long:
        # One call cannot take sparse gradients, or those of several devices.
        try:
            norms = torch._foreach_norm(gradients, 2)  # type: ignore[arg-type]  # noqa: SLF001
            pieces = [norm.item() for norm in norms] if are_on_cpu(norms) else torch.stack(norms)
            return Norms(pieces, None, len(gradients), gradients[0].dtype)
        except (NotImplementedError, RuntimeError):
            pass
    parts: list[Tensor] = []
    owners: list[int] = []
    for place, gradient in enumerate(gradients):
        dense = gradient.coalesce().values() if gradient.layout == torch.sparse_coo else gradient
        max_elements = 4 * piece if dense.dtype in FULL_TYPES else piece
        split = torch.split(dense.reshape(-1), max_elements) if dense.is_cpu and dense.numel() > max_elements else (dense,)
        parts.extend(split)
        owners.extend([place] * len(split))
    fused = _fused(parts)
    return Norms([norm.item() for norm in fused] if are_on_cpu(fused) else _together(fused), owners, len(gradients))


def norms_of(
    gradients: Sequence[Tensor], *, piece: int = PIECE_ELEMENTS, long: int = LONG_ELEMENTS
) -> tuple[list[float], Tensor | None]:
    """Return the L2 norm of each gradient, with one transfer, and the norms as one tensor if `clip` can use them."""
    taken = take_norms(gradients, piece=piece, long=long)
    return ([], None) if taken is None else (taken.numbers(), taken.as_torch)


def common_dtype_and_size(tensors: Iterable[Tensor]) -> tuple[torch.dtype | None, int]:
    """Return the common dtype of all tensors, None if there are several, and the size of the largest one on a CPU."""
    rest = [*tensors]
    types = {tensor.dtype for tensor in rest}
    sizes = (tensor.numel() for tensor in rest if tensor.device.type == "cpu")
    return (types.pop() if len(types) == 1 else None), max(sizes, default=0)


def are_on_cpu(tensors: Sequence[Tensor]) -> bool:
    """Tell whether all tensors are in CPU memory."""
    return all([tensor.is_cpu for tensor in tensors])  # noqa: C419  a generator takes three times as long


def _is_plain(gradients: Sequence[Tensor], long: int) -> bool:
    """Tell whether torch's own norms of these gradients are accurate: one full-precision dtype, none too long on a CPU."""
    first = gradients[0]
    if first.dtype not in FULL_TYPES or len({gradient.dtype for gradient in gradients}) > 1:
        return False
    return first.device.type != "cpu" or max(map(Tensor.numel, gradients)) <= long


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Return whether every element is finite; finite norms prove it, in one fused pass per device and dtype."""
    by_device: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        by_device.setdefault(tensor.device, []).append(tensor)
    taken = [(of_device, take_norms(of_device, long=sys.maxsize)) for of_device in by_device.values()]
    norms = [pair for of_device, norms in taken if norms for pair in zip(of_device, norms.numbers(), strict=True)]
    # Squares may overflow although the elements are finite.
    return all(math.isfinite(norm) or bool(tensor.isfinite().all()) for tensor, norm in norms)


def _fused(tensors: Sequence[Tensor]) -> list[Tensor]:
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for place, tensor in enumerate(tensors):
        groups.setdefault((tensor.device, tensor.dtype), []).append(place)
    norms: dict[int, Tensor] = {}
    for (_, dtype), places in groups.items():
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else None
        norms.update(zip(places, torch._foreach_norm([tensors[i] for i in places], 2, dtype=wide), strict=True))  # noqa: SLF001
    return [norms[place] for place in range(len(tensors))]


def _together(norms: Sequence[Tensor]) -> Tensor:
    kind = norms[0].device, norms[0].dtype
    if all((norm.device, norm.dtype) == kind for norm in norms):
        return torch.stack([*norms]).to(widest_float(norms[0]))
    return torch.stack([to_float64(norm.to(kind[0])) for norm in norms])


def loss_scale_left(scaler: Any) -> float:
    """Return the factor that the gradients still contain: the scale before `scaler.unscale_`, 1 after it."""
    if scaler is None or not scaler.is_enabled():
        return 1.0
    # Only the scaler's private state shows whether `unscale_` was called.
    stages = {state["stage"].name for state in scaler._per_optimizer_states.values()}  # noqa: SLF001
    return 1.0 if stages - {"READY"} else float(scaler.get_scale())


def versions(gradients: Iterable[Tensor]) -> list[tuple[int, int]]:
    """Return values that change when a gradient is replaced or written to."""
    return [(id(gradient), gradient._version) for gradient in gradients]  # noqa: SLF001


def clip(gradients: Sequence[Tensor], norms: Tensor, max_norm: float) -> Tensor:
    """Scale gradients in place as `torch.nn.utils.clip_grad_norm_` does, from norms already taken.

    Args:
        gradients: The gradients, changed in place.
        norms: The L2 norm of each, from `norms_of`.
        max_norm: Maximum total norm.

    Returns:
        The total norm before clipping, as torch computes it.
    """
    total: Tensor = torch.linalg.vector_norm(norms, 2.0)
    if total.is_cpu and total.item() + EPSILON < MARGIN * max_norm:
        return total  # torch multiplies by 1
    coefficient = torch.clamp(max_norm / (total + EPSILON), max=1.0)
    torch._foreach_mul_([*gradients], coefficient)
    return total


# Distances between many tensors, in two passes over all of them.
@torch.no_grad()
def difference_norms(ones: Sequence[Tensor], others: Sequence[Tensor], *, tiny: float = TINY) -> list[float] | None:
    """Return the L2 norm of each difference; None if the tensors are not all dense and of full precision.

    Args:
        ones: Tensors.
        others: As many, of the same shapes, dtypes and devices; they are overwritten with the differences.
        tiny: Norm below which it is summed again in float64; so are norms that are not finite.
    """
    if not all(map(_is_dense, ones)):
        return None
    torch._foreach_sub_([*others], [*ones])
    norms, _ = norms_of(others)
    return [
        far if tiny <= far < math.inf or (not far and not bool(apart.any())) else norm(flat(apart))
        for far, apart in zip(norms, others, strict=True)
    ]


def _is_dense(tensor: Tensor) -> bool:
    return tensor.dtype in FULL_TYPES and type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
