"""Models that are trained in turn, whose losses play against each other: seen by whose loss made which gradients."""

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
        optimizers: Of the model that is recorded; without any, nothing is looked at. One that holds none of their parameters is
            another's, be they parts of the same model.
        guard: Keeps what fails here away from the training.
        step: Returns the number of the step under way.
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
        """Look at the gradients before an update of the model; those of its own optimizers only where a checkpoint is due."""
        if self._other is not None and self._other.is_looking:
            self._other.before_own_update(self._step())
        parts = self._parts if is_due else None
        is_seen = parts is not None and parts.is_seen(optimizer, self._optimizers, self._step())
        if is_seen or (self._other is not None and self._other.is_seen):
            self._end()
            self._on_alternating()

    def after_update(self) -> None:
        """Keep the gradients that an update of the model leaves."""
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
    """Several optimizers of one model: whether gradients are made anew between their updates of one step.

    Two optimizers that share one backward pass, as Muon does with the one of the embeddings, find the gradients that were there.
    """

    def __init__(self) -> None:
        self._step, self._seen = -1, list[int]()

    def is_seen(self, optimizer: Optimizer, optimizers: Sequence[Optimizer], step: int) -> bool:
        """Tell, before an update of a step, whether its gradients are others than before the first update of that step."""
        if step != self._step:
            self._step, self._seen = step, [id(tensor.grad) for other in optimizers for tensor in _parameters(other)]
            return False
        return not {id(tensor.grad) for tensor in _parameters(optimizer) if tensor.grad is not None} <= {*self._seen}


class _OtherModel:
    """A model with an optimizer of its own: whether the loss of one of the two flows back through the other.

    So it is with a generator and a discriminator. Between an update of the one and an update of the other, only the loss of the
    other can have made the gradients of the one anew. One backward pass for both, or one for each before either update, leaves
    them as they were.

    Two that are trained side by side, as an ensemble is, mostly are to the end, and a look reads every gradient of both. So after
    the first rounds, each an own update after one of the other, only two in a row are looked at now and then, which is
    all that a sign needs.

    Attributes:
        is_looking: Whether there is another model, and this round is looked at.
        is_latest: Whether its update was the latest of all.

    Args:
        parameters: Of the model that is recorded.
        close_rounds: Rounds that are looked at, from the first on.
        distance: Rounds from one look to the next, later on.
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
        """Whether any loss was seen to flow through both."""
        return self._model.is_touched or self._other.is_touched

    def after_update(self, optimizer: Optimizer, step: int) -> None:
        """Observe any optimizer that has made an update in this step."""
        tensors = _parameters(optimizer)
        if any(id(tensor) in self._own_ids for tensor in tensors):
            return
        self.is_latest = True
        self.is_looking |= self._rounds == 0
        if self.is_looking:
            self._model.before_update_of_other(step)
            self._other.after_own_update(tensors, step)

    def before_own_update(self, step: int) -> None:
        """Look at the gradients that the other optimizer left, before the model's update in this step."""
        self._other.before_update_of_other(step)

    def after_own_update(self, step: int) -> None:
        """Keep the gradients of the model, and see whether the next round is looked at."""
        if self.is_looking:
            self._model.after_own_update(self._own, step)
        if self.is_latest:
            self.is_latest = False
            self._rounds += 1
            self._look_or_rest(step)

    def _look_or_rest(self, step: int) -> None:
        was_looking = self.is_looking
        self.is_looking = self._rounds < self._close_rounds or self._rounds % self._distance < 2
        if self.is_looking and not was_looking:  # what was left long ago is of another round
            self._model, self._other = _GradientsBetweenUpdates(), _GradientsBetweenUpdates()
            self._model.after_own_update(self._own, step)


class _GradientsBetweenUpdates:
    """The gradients of one of two models, from one update of its own to the next: whether the other's loss made them anew."""

    def __init__(self) -> None:
        self._left, self._left_at = list[_Gradient](), -1
        self._flowed: list[_Gradient] | None = None
        self.is_touched = False

    def after_own_update(self, tensors: Iterable[Tensor], step: int) -> None:
        """Keep what an update leaves; what flowed in before, and was made anew for the update since, was not made for it."""
        self.is_touched |= self._flowed is not None and _made_anew(self._flowed)
        self._left, self._left_at, self._flowed = [*map(_Gradient.of, tensors)], step, None

    def before_update_of_other(self, step: int) -> None:
        """Look whether the gradients are others by now."""
        if self._left and _made_anew(self._left):
            self.is_touched |= self._left_at == step
            self._flowed = [*map(_Gradient.of, (gradient.tensor() for gradient in self._left))]


class _Gradient(NamedTuple):
    """Which tensor a parameter's gradient is, 0 for none, and how often that was written to."""

    tensor: Callable[[], Tensor | None]
    identity: int
    version: int

    @classmethod
    def of(cls, tensor: Tensor | None) -> "_Gradient":
        """Return the state of a parameter's gradient; one that is gone has none."""
        if tensor is None or tensor.grad is None:
            return cls((lambda: None) if tensor is None else ref(tensor), 0, 0)
        return cls(ref(tensor), id(tensor.grad), tensor.grad._version)  # noqa: SLF001


def _made_anew(gradients: Iterable[_Gradient]) -> bool:
    """Tell whether any of these gradients is another by now; one that was only taken away is none."""
    now = [(old, _Gradient.of(old.tensor())) for old in gradients]
    return any(new.identity != 0 and new[1:] != old[1:] for old, new in now)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]
