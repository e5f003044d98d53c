"""What a trainer's callback hands on to its recorder, so that nobody has to ask whether there is one yet."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ckaudit.recorder.checks.curvature import Curvature
from ckaudit.recorder.checks.gradient_check import GradientCheck
from ckaudit.recorder.checks.side_effect_free import changed
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.recorder import Recorder


class CallbackBase:
    """The calls of `Recorder` that a training may make of its callback; before and after it they do nothing.

    What `pin` and `hold_out` are given before it waits for it.
    """

    _guard: Guard
    _recorder: Recorder | None

    def __init__(self) -> None:
        super().__init__()
        self._pins: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        self._held_out: list[Any] = []

    @property
    def recorder(self) -> Recorder | None:
        """The recorder while the training runs; None before and after."""
        return self._recorder

    def log_step(self, **values: Any) -> None:
        """Add values to the line of the step that is under way, by their catalogue names.

        It is `Recorder.log` under another name, because Lightning puts the `log` of its module into every callback.
        """
        if self._recorder:
            self._recorder.log(**values)

    def log_after(self, **values: Any) -> None:
        """Add values to the line of the step finished last, such as those of a validation that follows it."""
        if self._recorder:
            self._recorder.log_after(**values)

    def pin(self, batch: Any, *arguments: Any, **options: Any) -> None:
        """Show a batch to the model at every checkpoint, as `Recorder.pin` does.

        Called before the training, the batch waits for it, and is taken to the model's device.

        Args:
            batch: Inputs and targets.
            *arguments: The loss, as `Recorder.pin` takes it.
            **options: The other options of `Recorder.pin`.
        """
        if self._recorder:
            self._recorder.pin(batch, *arguments, **options)
        else:
            self._pins.append((batch, arguments, options))

    def hold_out(self, batch: Any) -> None:
        """Tell that training must not see the rows of a batch, as `Recorder.hold_out` does; before the training it waits."""
        if self._recorder:
            self._recorder.hold_out(batch)
        else:
            self._held_out.append(batch)

    def check_gradients(self, batch: Any, *arguments: Any, **options: Any) -> GradientCheck | None:
        """Compare the gradients of the backward pass with central differences, as `Recorder.check_gradients` does."""
        return self._recorder.check_gradients(batch, *arguments, **options) if self._recorder else None

    def micro_batch(self, examples: float = 1.0) -> None:
        """Tell that one backward pass of several before an update has ended, to measure the gradient noise scale."""
        if self._recorder:
            self._recorder.micro_batch(examples)

    def rank_batch(self, examples: float = 1.0) -> None:
        """Ask, before the backward pass of an update, for the gradient noise scale from the batches of several ranks."""
        if self._recorder:
            self._recorder.rank_batch(examples)

    def measure_curvature(self, loss: Tensor | Callable[[], Tensor], **options: Any) -> Curvature | None:
        """Estimate the trace of the Hessian of a loss, as `Recorder.measure_curvature` does."""
        return self._recorder.measure_curvature(loss, **options) if self._recorder else None

    def _take_up(self, model: nn.Module) -> None:
        """Pin and hold out what waits for the training; a later training in the same process does it as well."""
        for batch in self._held_out if self._recorder else ():
            self.hold_out(batch)
        for batch, arguments, options in self._pins if self._recorder else ():
            with self._guard("taking a pinned batch to the model"):
                self.pin(changed(batch, _to_device_of(model)), *arguments, **options)


def _to_device_of(model: nn.Module) -> Callable[[Tensor, str | int], Tensor]:
    device = next(model.parameters()).device
    return lambda part, _: part.to(device)
