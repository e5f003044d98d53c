"""The events that ask for a checkpoint outside the cadence, and the patience that keeps a storm off the disk."""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping

from msgspec import Struct

from ckaudit.contract.schema.checkpoint import Trigger
from ckaudit.contract.schema.manifest import Triggers


class Limits(Struct, frozen=True, kw_only=True):
    """When an event is one. The factors are the contract's decisions, the norms of dead and alive are D1.3's.

    Attributes:
        loss_spike_factor: Loss over its bias-corrected moving average before this step.
        loss_decay: Weight of the past in that average.
        loss_after: Finite losses seen before a spike can be one.
        grad_norm_factor: Global gradient norm over the median of the last `grad_norm_window` before this step.
        grad_norm_window: How many norms the median sees.
        grad_norm_after: Finite norms seen before one can be too large.
        dead_gradient_norm: A tensor's gradient norm below this is dead.
        alive_gradient_norm: A dead one is alive again above this; between the two it keeps its state.
        cooldown: Fewest steps between two event checkpoints.
        at_most: Most event checkpoints of one session.
    """

    loss_spike_factor: float = 2.0
    loss_decay: float = 0.98
    loss_after: int = 20
    grad_norm_factor: float = 10.0
    grad_norm_window: int = 100
    grad_norm_after: int = 20
    dead_gradient_norm: float = 1e-10
    alive_gradient_norm: float = 1e-7
    cooldown: int = 10
    at_most: int = 50

    def stated(self) -> Triggers:
        """Return what `run.json` says of them."""
        return Triggers(
            loss_spike_factor=self.loss_spike_factor,
            grad_norm_factor=self.grad_norm_factor,
            dead_gradient_norm=self.dead_gradient_norm,
        )


class Events:
    """Sees each step's loss and norms and names the events among them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._losses, self._average = 0, 0.0
        self._norms: deque[float] = deque()
        self._ordered: list[float] = []  # the same, sorted
        self._spike_above, self._steep_above = math.inf, math.inf  # what the next loss and norm are held against
        self._dead: set[str] = set()
        self._nonfinite = 0

    def see(
        self, loss: float | None, norm: float | None, norms: Mapping[str, float], *, forgive_norm: bool = False
    ) -> list[Trigger]:
        """Return the events of one step.

        Args:
            loss: Training loss, where known.
            norm: Global gradient norm, where known.
            norms: Gradient norm of each tensor that has a gradient.
            forgive_norm: Whether a loss scaler has already answered a gradient that is not finite.
        """
        wrong_loss = loss is not None and not math.isfinite(loss)
        wrong_norm = norm is not None and not math.isfinite(norm) and not forgive_norm
        events: list[Trigger] = []
        if loss is not None and not wrong_loss:
            if loss > self._spike_above:
                events.append("loss_spike")
            self._count_loss(loss)
        if norm is not None and math.isfinite(norm):
            if norm > self._steep_above:
                events.append("grad_norm")
            self._count_norm(norm)
        if self._has_new_dead(norms):
            events.append("dead_parameter")
        if (wrong_loss or wrong_norm) and self._is_due():
            events.append("nonfinite")
        return events

    def pass_by(self, loss: float, norm: float, lowest: float) -> bool:
        """Tell whether a step holds no event, and count it if so; otherwise nothing is counted, and `see` has to.

        Args:
            loss: Training loss, finite.
            norm: Global gradient norm, finite.
            lowest: Smallest gradient norm of a tensor.
        """
        if self._dead or lowest < self.limits.dead_gradient_norm or loss > self._spike_above or norm > self._steep_above:
            return False
        self._count_loss(loss)
        self._count_norm(norm)
        return True

    def _count_loss(self, loss: float) -> None:
        limits, decay = self.limits, self.limits.loss_decay
        self._average = decay * self._average + (1 - decay) * loss
        self._losses += 1
        if self._losses >= limits.loss_after:
            above = limits.loss_spike_factor * (self._average / (1 - decay**self._losses))
            self._spike_above = above if above > 0 else math.inf

    def _count_norm(self, norm: float) -> None:
        limits, ordered = self.limits, self._ordered
        if len(ordered) == limits.grad_norm_window:
            del ordered[bisect_left(ordered, self._norms.popleft())]
        self._norms.append(norm)
        insort(ordered, norm)
        if len(ordered) >= limits.grad_norm_after:
            middle = len(ordered) // 2
            self._steep_above = limits.grad_norm_factor * ((ordered[middle] + ordered[-middle - 1]) / 2)

    def _has_new_dead(self, norms: Mapping[str, float]) -> bool:
        if not self._dead and min(norms.values(), default=math.inf) >= self.limits.dead_gradient_norm:
            return False
        dead = {name for name, norm in norms.items() if norm < self.limits.dead_gradient_norm}
        alive = {name for name, norm in norms.items() if norm > self.limits.alive_gradient_norm}
        new = dead - self._dead
        self._dead = (self._dead | dead) - alive
        return bool(new)

    def _is_due(self) -> bool:
        # The first, the second, the fourth, the eighth: a run that stays NaN is not worth a file a step.
        self._nonfinite += 1
        return self._nonfinite.bit_count() == 1


class Patience:
    """Says whether an event may still have a checkpoint of its own."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._taken = 0
        self._last = -math.inf

    def allows(self, step: int) -> bool:
        """Return whether a checkpoint at `step` is within the limits, and count it if so."""
        if self._taken >= self._limits.at_most or step - self._last < self._limits.cooldown:
            return False
        self._taken, self._last = self._taken + 1, step
        return True
