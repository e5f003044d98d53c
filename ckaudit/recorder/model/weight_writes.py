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
        self._before: list[int] = []
        self._usual: list[int] = []
        self._usual_total = -1
        self._written: list[str] = []

    def before_update(self) -> bool:
        """Tell whether weights were written to since the update before, which they rarely are."""
        self._before = self._now()
        if not self._versions or self._versions == self._before:
            self._calm += 1
            return False
        return self._is_rare(self._versions, self._before)

    def after_update(self) -> bool:
        """Tell whether weights were written to besides within the update, which they rarely are: a closure may do so.

        An update writes to each weight as often as the ones before it did; one that had none so far may have been thawed.
        """
        self._versions = self._now()
        total = sum(self._versions) - sum(self._before)
        if not self._before or total == self._usual_total:  # nearly always, and counting weight by weight takes time
            return False
        counts = [after - before for before, after in zip(self._before, self._versions, strict=True)]
        usual = [most or count for most, count in zip(self._usual or counts, counts, strict=True)]
        most = [*map(max, counts, usual)]
        is_rare = most != usual and self._is_rare(usual, most)
        self._usual = usual if is_rare else most
        self._usual_total = sum(self._usual)
        return is_rare

    def take_names(self) -> list[str]:
        """Return the names of those that were written to since this was last asked."""
        written, self._written = self._written, []
        return [*dict.fromkeys(written)]

    def _is_rare(self, before: Sequence[int], after: Sequence[int]) -> bool:
        """Tell whether a write comes after a quiet time, and remember the weights that changed from `before` to `after`."""
        is_rare, self._calm = self._calm >= self._quiet, 0
        self._reported += is_rare
        if not is_rare or self._reported > self._max_reported:
            return False
        rows = zip(self._names, before, after, strict=True)
        self._written += [name for name, then, now in rows if then != now]
        return True

    def _now(self) -> list[int]:
        return [weight._version for weight in self._weights]  # noqa: SLF001
