"""What the callbacks of trainers share: calls forwarded to the recorder, and a model's passes watched from outside."""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ckaudit.contract.schema.tensor_names import depth_of
from ckaudit.recorder.checks.curvature import Curvature
from ckaudit.recorder.checks.gradient_check import GradientCheck
from ckaudit.recorder.checks.side_effect_free import with_changed_batch
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.hook import Hook, after_backward
from ckaudit.recorder.recorder import Recorder


class CallbackBase:
    """The methods of `Recorder` that a training may call on its callback; before and after the training they do nothing.

    Batches that `pin` and `hold_out` get before the training are kept until it starts.
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
        """Add values to the log line of the current step, by catalogue name.

        This is `Recorder.log` under another name, because Lightning sets its module's `log` on every callback.
        """
        if self._recorder:
            self._recorder.log(**values)

    def log_after(self, **values: Any) -> None:
        """Add values to the log line of the last finished step, such as those of a validation that follows it."""
        if self._recorder:
            self._recorder.log_after(**values)

    def pin(self, batch: Any, *arguments: Any, **options: Any) -> None:
        """Show a batch to the model at every checkpoint, as `Recorder.pin` does.

        A batch pinned before the training is kept until it starts, and is moved to the model's device.

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
        """Declare the rows of a batch held out, as `Recorder.hold_out` does; before the training, the batch is kept."""
        if self._recorder:
            self._recorder.hold_out(batch)
        else:
            self._held_out.append(batch)

    def check_gradients(self, batch: Any, *arguments: Any, **options: Any) -> GradientCheck | None:
        """Compare the gradients of the backward pass with central differences, as `Recorder.check_gradients` does."""
        return self._recorder.check_gradients(batch, *arguments, **options) if self._recorder else None

    def micro_batch(self, examples: float = 1.0) -> None:
        """Report the end of one of several backward passes before an update, to measure the gradient noise scale."""
        if self._recorder:
            self._recorder.micro_batch(examples)

    def rank_batch(self, examples: float = 1.0) -> None:
        """Request, before the backward pass of an update, the gradient noise scale from the batches of several ranks."""
        if self._recorder:
            self._recorder.rank_batch(examples)

    def measure_curvature(self, loss: Tensor | Callable[[], Tensor], **options: Any) -> Curvature | None:
        """Estimate the trace of the Hessian of a loss, as `Recorder.measure_curvature` does."""
        return self._recorder.measure_curvature(loss, **options) if self._recorder else None

    def _hand_over_batches(self, model: nn.Module) -> None:
        """Pin and hold out the batches given before the training; every later training does so again."""
        for batch in self._held_out if self._recorder else ():
            self.hold_out(batch)
        for batch, arguments, options in self._pins if self._recorder else ():
            with self._guard("taking a pinned batch to the model"):
                self.pin(with_changed_batch(batch, _to_device_of(model)), *arguments, **options)


def _to_device_of(model: nn.Module) -> Callable[[Tensor, str | int], Tensor]:
    device = next(model.parameters()).device
    return lambda part, _: part.to(device)


# The model watched from outside, for trainers that expose neither batch, loss nor the end of the backward pass.
class ForwardPass(Struct, frozen=True):
    """A forward pass that was followed by a backward pass.

    Attributes:
        inputs: Keyword arguments of the model.
        loss: The loss that the model returned.
        factor: Derivative, with respect to that loss, of the tensor that `backward` was called on: the trainer's factor, loss
            scale included.
    """

    inputs: Mapping[str, Any]
    loss: Tensor
    factor: Tensor


class PassWatch:
    """Watches the forward and backward passes of a model that takes keywords and returns its loss, as in `transformers`.

    A forward pass counts once the backward pass reaches its loss, so evaluation and generation do not count. Autograd reports the
    end of a backward pass, after all gradients are there, including those of other ranks.

    Args:
        model: The model.
        guard: Keeps failures away from both passes.
        at_end: Called at the end of each backward pass.
        hooks: Whether the model may be hooked; if not, only the end of a backward pass is seen, from a parameter.
    """

    def __init__(self, model: nn.Module, guard: Guard, at_end: Callable[[], None], *, hooks: bool = True) -> None:
        self._guard, self._at_end = guard, at_end
        self._inputs: Mapping[str, Any] = {}
        self._evaluated: Mapping[str, Any] = {}
        self._passes: list[ForwardPass] = []
        self._is_waiting = False
        self._handles: list[RemovableHandle] = []
        # Not inside the blocks: a block that recomputes its activations runs a backward pass within the outer one.
        trainable = [(depth_of(name) is not None, p) for name, p in model.named_parameters() if p.requires_grad]
        for _, parameter in sorted(trainable, key=itemgetter(0))[:1]:
            self._handles.append(parameter.register_post_accumulate_grad_hook(self._expect_end))  # type: ignore[no-untyped-call]
        if hooks:
            self._handles.append(model.register_forward_pre_hook(Hook(self._enter), with_kwargs=True))
            self._handles.append(model.register_forward_hook(Hook(self._leave)))

    def take(self) -> list[ForwardPass]:
        """Return the passes since the last call."""
        taken, self._passes = self._passes, []
        self._is_waiting = False
        return taken

    def take_evaluated(self) -> Mapping[str, Any]:
        """Return the arguments of the latest pass without gradients, once."""
        taken, self._evaluated = self._evaluated, {}
        return taken

    def close(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()

    def _enter(self, keywords: Mapping[str, Any]) -> None:
        self._inputs, self._evaluated = (keywords, {}) if torch.is_grad_enabled() else ({}, keywords)

    def _leave(self, output: Any) -> None:
        inputs, self._inputs = self._inputs, {}
        with self._guard("watching the forward pass"):
            loss, logits = _loss_and_logits(output)
            if loss is not None and loss.requires_grad:
                loss.register_hook(self._reaching(inputs, loss.detach()))  # type: ignore[no-untyped-call]
            if logits is not None and logits.requires_grad:
                logits.register_hook(self._expect_end)  # type: ignore[no-untyped-call]

    def _reaching(self, inputs: Mapping[str, Any], loss: Tensor) -> Callable[[Tensor], None]:
        # The closure holds no tensor with a graph: a reference cycle would free its memory late.
        def reach(factor: Tensor) -> None:
            with self._guard("watching the backward pass"):
                self._passes.append(ForwardPass(inputs, loss, factor.detach().clone()))
            self._expect_end(factor)

        return reach

    def _expect_end(self, _tensor: Tensor) -> None:
        with self._guard("waiting for the backward pass"):
            if not self._is_waiting:
                after_backward(self._ended)
                self._is_waiting = True

    def _ended(self) -> None:
        self._is_waiting = False
        with self._guard("reading gradients"):
            self._at_end()


def _loss_and_logits(output: Any) -> tuple[Tensor | None, Tensor | None]:
    if hasattr(output, "get"):
        pair = output.get("loss"), output.get("logits")
    else:
        pair = (*output, None, None)[:2] if isinstance(output, tuple | list) else (output, None)
    loss, logits = (value if isinstance(value, Tensor) else None for value in pair)
    return (loss, logits) if loss is not None and loss.ndim == 0 else (None, logits if loss is None else loss)
