"""Writes to weights between two updates by anything but the optimizer."""

from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.optim import Optimizer


class WeightWrites:
    """Follows how often torch has changed each weight in place, which costs a few microseconds a step.

    Who constrains or swaps weights at every step or at every evaluation means to: only a write after `quiet` steps without one is
    told, and no more than `max_reported` of a session. What goes past torch, such as `.data` or a flipped bit, is not seen.

    Args:
        parameters: The model's parameters by name.
        optimizers: What updates them; a parameter of none, such as those of a teacher that follows, is nobody's business.
        quiet: Updates without a write before one that is told.
        max_reported: Writes that are told.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], optimizers: Sequence[Optimizer], *, quiet: int = 20, max_reported: int = 3
    ) -> None:
        groups = (group for optimizer in optimizers for group in optimizer.param_groups)
        held = {id(tensor) for group in groups for tensor in group["params"]}
        known = {name: tensor for name, tensor in parameters.items() if id(tensor) in held}
        self._names, self._weights = [*known], [*known.values()]
        self._quiet, self._max_reported = quiet, max_reported
        self._calm, self._reported = 0, 0
        self._versions: list[int] = []
        self._written: list[str] = []

    def remember_versions(self) -> None:
        """Take what the weights are now for what the optimizer has made of them."""
        self._versions = self._now()

    def has_rare_write(self) -> bool:
        """Tell, before an update, whether weights were written to since the one before, which they rarely are."""
        if not self._versions or self._versions == (now := self._now()):
            self._calm += 1
            return False
        is_rare, self._calm = self._calm >= self._quiet, 0
        self._reported += is_rare
        if not is_rare or self._reported > self._max_reported:
            return False
        rows = zip(self._names, self._versions, now, strict=True)
        self._written += [name for name, before, after in rows if before != after]
        return True

    def take_names(self) -> list[str]:
        """Return the names of those that were written to since this was last asked."""
        written, self._written = self._written, []
        return [*dict.fromkeys(written)]

    def _now(self) -> list[int]:
        return [weight._version for weight in self._weights]  # noqa: SLF001
