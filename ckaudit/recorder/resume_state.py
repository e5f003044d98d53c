"""What a training that was taken up again began with: the norms of its weights, and whether its optimizer remembers anything."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ckaudit.contract.numbers import Number, to_word
from ckaudit.recorder.arrays import Array, is_sharded
from ckaudit.recorder.float32_rounding import shorten
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.optimizers import listen


class ResumeState:
    """Looks before the first update of a session, when everything that is loaded has been, and once more after it.

    Weights that ranks hold in parts are left out: their norms need every rank.

    Args:
        weights: The model's weights by name.
        optimizers: What updates them.
        guard: Keeps failures away from the update.
        tell: Takes the facts of the session, once they are known.
    """

    def __init__(
        self, weights: Mapping[str, Array], optimizers: Iterable[Optimizer], guard: Guard, tell: Callable[..., None]
    ) -> None:
        self._weights, self._optimizers, self._tell = weights, tuple(optimizers), tell
        self._norms: dict[str, Number] | None = None
        self._remembered, self._is_told = False, False
        self._handles = listen(self._optimizers, guard, self._before, self._after)

    def _before(self, _optimizer: Optimizer) -> None:
        if self._norms is None:
            self._remembered = any(map(_remembers, self._optimizers))
            self._norms = _norms(self._weights)

    def _after(self, _optimizer: Optimizer) -> None:
        if self._is_told:
            return
        self._is_told = True
        # One that has no state after an update either keeps none, and none can be lost.
        keeps = any(map(_remembers, self._optimizers))
        self._tell(weight_norms=self._norms or None, optimizer_restored=self._remembered if keeps else None)

    def stop(self) -> None:
        """Look at no more updates."""
        for handle in self._handles:
            handle.remove()


def _remembers(optimizer: Optimizer) -> bool:
    """Return whether an optimizer has any number of any parameter from an earlier update."""
    return any(_is_number(value) for state in optimizer.state.values() for value in state.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor | int | float)


@torch.no_grad()
def _norms(weights: Mapping[str, Array]) -> dict[str, Number]:
    whole = {name: each for name, each in weights.items() if isinstance(each, Tensor) and not is_sharded(each) and each.numel()}
    found = [torch.linalg.vector_norm(each.detach(), dtype=torch.float32) for each in whole.values()]
    values = torch.stack([each.cpu() for each in found]).tolist() if found else []
    return {name: to_word(shorten(value)) for name, value in zip(whole, values, strict=True)}
