"""A place where a model that casts to half or single precision computes in double all the same."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})
CASTS = frozenset({Tensor.float, Tensor.half, Tensor.bfloat16})


class InDouble(TorchFunctionMode):
    """Asks for float64 wherever the code asks for a narrower floating type.

    Norms, softmax and losses of language models are written to compute in float32 whatever they are given; differences
    with a step of 1e-5 would drown in its rounding. Autocast leaves float64 alone by itself.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function of torch with its types widened."""
        if function in CASTS:
            return Tensor.double(args[0])
        named = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return function(*map(_wide, args), **named)


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value
