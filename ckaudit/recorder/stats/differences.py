"""How far many torch tensors lie apart, in two passes over all of them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ckaudit.recorder.model.gradient_norms import FULL, norms_of
from ckaudit.recorder.stats.arrays import flat, norm

TINY = 1e-15  # norm of float32: the squares of smaller elements, or some of them, would not be told from 0


@torch.no_grad()
def difference_norms(ones: Sequence[Tensor], others: Sequence[Tensor], *, tiny: float = TINY) -> list[float] | None:
    """Return the L2 norm of each difference; None where the tensors are not all dense and of full precision.

    Args:
        ones: Tensors.
        others: As many, of the same shapes, types and devices, that nobody needs any more: the differences are left in them.
        tiny: Norm below which it is summed again in float64, as one that is not finite is.
    """
    if not all(map(_is_plain, ones)):
        return None
    torch._foreach_sub_([*others], [*ones])
    found, _ = norms_of(others)
    return [
        far if tiny <= far < math.inf or (not far and not bool(apart.any())) else norm(flat(apart))
        for far, apart in zip(found, others, strict=True)
    ]


def _is_plain(tensor: Tensor) -> bool:
    return tensor.dtype in FULL and type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
