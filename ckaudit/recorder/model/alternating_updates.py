"""Detection of models that are trained in turn with opposing losses, by which loss produced which gradients."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from weakref import ref

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from ckaudit.recorder.guard import Guard


class AlternatingUpdates:
    """Detects that updates alternate: those of several optimizers of the model, or of the model and another one.

    Args:
        optimizers: Optimizers of the recorded model; without any, nothing is inspected. An optimizer that shares no parameter
            with them belongs to another model, even if its parameters are part of the same module.
        guard: Keeps failures away from the training.
        step: Returns the number of the current step.
        on_alternating: Called once, at the first sign.
    """

    def __init__(
        self, optimizers: Sequence[Optimizer], guard: Guard, *, step: Callable[[], int], on_alternating: Callable[[], None]
    ) -> None:
        self._optimizers, self._guard, self._step, self._on_alternating = optimizers, guard, step, on_alternating
        self._parts = _PartsOfAModel() if len(optimizers) > 1 else None
        self._other: _OtherModel | None = _OtherModel([tensor for optimizer in optimizers for tensor in _parameters(optimizer)])
        self.handles: list[Any] = []
        with guard("listening to other optimizers"):
            self.handles += [register_optimizer_step_post_hook(self._after_any_update)] if optimizers else []

    def before_update(self, optimizer: Optimizer, *, is_due: bool) -> None:
        """Inspect the gradients before an update of the model; those of its own optimizers only if a checkpoint is due."""
        if self._other is not None and self._other.is_looking:
            self._other.before_own_update(self._step())
        parts = self._parts if is_due else None
        is_seen = parts is not None and parts.is_seen(optimizer, self._optimizers, self._step())
        if is_seen or (self._other is not None and self._other.is_seen):
            self._end()
            self._on_alternating()

    def after_update(self) -> None:
        """Keep the state of the gradients after an update of the model."""
        if self._other is not None and (self._other.is_looking or self._other.is_latest):
            self._other.after_own_update(self._step())

    def _after_any_update(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        with self._guard("looking at another optimizer"):
            if self._other is not None:
                self._other.after_update(optimizer, self._step())

    def _end(self) -> None:
        self._parts = self._other = None
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


class _PartsOfAModel:
    """Several optimizers of one model: whether new gradients are computed between their updates of one step.

    Two optimizers that share one backward pass, such as Muon and the optimizer of the embeddings, use the same gradients.
    """

    def __init__(self) -> None:
        self._step, self._seen = -1, list[int]()

    def is_seen(self, optimizer: Optimizer, optimizers: Sequence[Optimizer], step: int) -> bool:
        """Tell, before an update of a step, whether its gradients differ from those before the step's first update."""
        if step != self._step:
            self._step, self._seen = step, [id(tensor.grad) for other in optimizers for tensor in _parameters(other)]
            return False
        return not {id(tensor.grad) for tensor in _parameters(optimizer) if tensor.grad is not None} <= {*self._seen}


class _OtherModel:
    """Another model with its own optimizer: whether the loss of one model flows back through the other.

    A generator and a discriminator are an example. Between an update of one model and an update of the other, only the other's
    loss can have computed new gradients for the first. One backward pass for both, or one for each before either update, leaves
    the gradients unchanged.

    Models that are trained side by side, as in an ensemble, mostly stay so to the end, and an inspection reads every gradient of
    both. A round is an update of the recorded model after one of the other. After the first rounds, only two consecutive ones are
    inspected now and then, which is enough.

    Attributes:
        is_looking: Whether there is another model, and this round is inspected.
        is_latest: Whether the latest update was one of the other model.

    Args:
        parameters: Parameters of the recorded model.
        close_rounds: Number of first rounds that are all inspected.
        distance: Rounds between later inspections.
    """

    def __init__(self, parameters: Iterable[Tensor], *, close_rounds: int = 64, distance: int = 32) -> None:
        self._own = list(parameters)
        self._own_ids = {id(tensor) for tensor in self._own}
        self._model, self._other = _GradientsBetweenUpdates(), _GradientsBetweenUpdates()
        self._close_rounds, self._distance = close_rounds, distance
        self._rounds = 0
        self.is_looking = self.is_latest = False

    @property
    def is_seen(self) -> bool:
        """Whether a loss was seen to flow through both models."""
        return self._model.is_touched or self._other.is_touched

    def after_update(self, optimizer: Optimizer, step: int) -> None:
        """Observe the update of any optimizer in this step."""
        tensors = _parameters(optimizer)
        if any(id(tensor) in self._own_ids for tensor in tensors):
            return
        self.is_latest = True
        self.is_looking |= self._rounds == 0
        if self.is_looking:
            self._model.before_update_of_other(step)
            self._other.after_own_update(tensors, step)

    def before_own_update(self, step: int) -> None:
        """Inspect the gradients that the other optimizer left, before the model's update in this step."""
        self._other.before_update_of_other(step)

    def after_own_update(self, step: int) -> None:
        """Keep the state of the model's gradients, and decide whether to inspect the next round."""
        if self.is_looking:
            self._model.after_own_update(self._own, step)
        if self.is_latest:
            self.is_latest = False
            self._rounds += 1
            self._look_or_rest(step)

    def _look_or_rest(self, step: int) -> None:
        was_looking = self.is_looking
        self.is_looking = self._rounds < self._close_rounds or self._rounds % self._distance < 2
        if self.is_looking and not was_looking:  # the kept state is of an old round
            self._model, self._other = _GradientsBetweenUpdates(), _GradientsBetweenUpdates()
            self._model.after_own_update(self._own, step)


class _GradientsBetweenUpdates:
    """Gradients of one of two models between two of its own updates: whether the other's loss computed them anew."""

    def __init__(self) -> None:
        self._left, self._left_at = list[_Gradient](), -1
        self._flowed: list[_Gradient] | None = None
        self.is_touched = False

    def after_own_update(self, tensors: Iterable[Tensor], step: int) -> None:
        """Keep the state after an update. Gradients from before that were computed anew for this update were not meant for it."""
        self.is_touched |= self._flowed is not None and _made_anew(self._flowed)
        self._left, self._left_at, self._flowed = [*map(_Gradient.of, tensors)], step, None

    def before_update_of_other(self, step: int) -> None:
        """Inspect whether the gradients have changed."""
        if self._left and _made_anew(self._left):
            self.is_touched |= self._left_at == step
            self._flowed = [*map(_Gradient.of, (gradient.tensor() for gradient in self._left))]


class _Gradient(NamedTuple):
    """Identity of a parameter's gradient tensor, 0 for none, and its version counter."""

    tensor: Callable[[], Tensor | None]
    identity: int
    version: int

    @classmethod
    def of(cls, tensor: Tensor | None) -> "_Gradient":
        """Return the state of a parameter's gradient; a parameter that no longer exists has none."""
        if tensor is None or tensor.grad is None:
            return cls((lambda: None) if tensor is None else ref(tensor), 0, 0)
        return cls(ref(tensor), id(tensor.grad), tensor.grad._version)  # noqa: SLF001


def _made_anew(gradients: Iterable[_Gradient]) -> bool:
    """Tell whether any of these gradients has been replaced or written to; a cleared one does not count."""
    now = [(old, _Gradient.of(old.tensor())) for old in gradients]
    return any(new.identity != 0 and new[1:] != old[1:] for old, new in now)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]
