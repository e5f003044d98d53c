"""Lightning: a callback that records a training by `lightning.Trainer`."""

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from ckaudit.optional import needed

with needed("The callback of Lightning", "lightning"):
    from torch import nn

    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

from ckaudit.recorder.batch_facts import inputs_and_targets
from ckaudit.recorder.callback_base import CallbackBase
from ckaudit.recorder.checks.held_out_rows import rows_of
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.recorder import Recorder, check_options

VALIDATION = {"val_loss": "val_loss"}


def inputs_of(batch: Any) -> Any:
    """Return the inputs of a batch: the batch itself, its first part, or the inputs of a mapping."""
    if isinstance(batch, Mapping):
        return inputs_and_targets(batch)[0]
    return batch[0] if isinstance(batch, tuple | list) and batch else batch


class RecorderCallback(CallbackBase, Callback):  # type: ignore[misc]  # lightning calls every event of its own class
    """Records a training: `callback = RecorderCallback("run/")`, then `Trainer(callbacks=[callback])`.

    Module, optimizers, loss scaler and clip norm come from the trainer; a resume from a checkpoint saved with the callback
    continues the folder. A step is a batch after which an optimizer stepped. Its loss is the mean of the losses that
    `training_step` returned since the last step. Gradients are read before clipping.

    Under manual optimization the same holds: `training_step` calls `self.manual_backward(loss)` and `optimizer.step()`, and
    returns the loss to have it recorded. Gradients are read when an optimizer of `self.optimizers()` steps, so clip with
    `self.clip_gradients` from `on_before_optimizer_step` and not earlier. If several optimizers step in one batch, the gradients
    are read when the first one does.

    Values that only the training knows are passed to the callback: `callback.log_step(tokens_seen=...)` in `training_step`,
    `callback.log_after(...)` after a validation, `callback.pin(batch)` before `trainer.fit`.

    Args:
        folder: The run folder, or an address such as "s3://bucket/run".
        batch_of: Returns inputs and targets of a batch, as the loss saw them. Default: its inputs only, because it is not known
            where the targets are and whether the model shifts them.
        validation: Logged metrics to record after a validation, by catalogue name.
        **options: Arguments of `Recorder` that replace the callback's choices, such as `cadence`, `vocabulary`, `sequence_length`
            or further facts of `run.json`.

    Raises:
        TypeError: If an option is neither an argument nor a fact.
        ValueError: If `grids` or `suffix` is not one of its values.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        /,
        *,
        batch_of: Callable[[Any], Any] = inputs_of,
        validation: Mapping[str, str] = VALIDATION,
        **options: Any,
    ) -> None:
        super().__init__()
        check_options(options)
        self._folder, self._options, self._guard = folder, options, Guard()
        self._batch_of, self._validation = batch_of, dict(validation)
        self._recorder: Recorder | None = None
        self._step: int | None = None
        self._losses: list[Any] = []
        self._has_read = False

    def setup(self, _trainer: Any, _module: nn.Module, stage: str) -> None:
        """Forget the steps of an earlier training; a checkpoint is loaded later."""
        if stage == "fit":
            self._step = None

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Start the recorder, or continue the folder after a resume."""
        self._close()
        with self._guard("starting the recorder"):
            start = trainer.global_step if self._step is None else self._step
            self._recorder = Recorder(
                pl_module, self._folder, **_choices(trainer, pl_module) | {"start_step": start} | self._options
            )
            self._step = start
        self._hand_over_batches(pl_module)

    def on_before_optimizer_step(self, _trainer: Any, _module: nn.Module, _optimizer: Any) -> None:
        """Read the gradients, which are unscaled and not clipped yet."""
        if self._recorder and not self._has_read:
            self._recorder.after_backward()
            self._has_read = True

    def on_train_batch_end(self, trainer: Any, pl_module: nn.Module, outputs: Any, batch: Any, _index: int) -> None:
        """Finish the step if an optimizer stepped."""
        if self._recorder is None:
            return
        with self._guard("reading the loss"):
            parts = trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            self._losses += [] if loss is None else [loss.detach() * parts]
        if not self._has_read:
            return
        losses, self._losses, self._has_read = self._losses, [], False
        pair = None
        with self._guard("taking inputs and targets from the batch"):
            pair = self._batch_of(batch)
        self._recorder.step(sum(losses) / len(losses) if losses else None, batch=pair, epoch=trainer.current_epoch)
        self._step = (self._step or 0) + 1

    def on_validation_batch_start(self, trainer: Any, _module: nn.Module, batch: Any, _index: int, _dataloader: int = 0) -> None:
        """Hold out the rows of the batch, unless the trainer validates on its training set."""
        if self._recorder and not trainer.overfit_batches:
            with self._guard("taking the rows of a validation batch"):
                self._recorder.hold_out_rows({*rows_of(self._batch_of(batch))})

    def on_validation_end(self, trainer: Any, _module: nn.Module) -> None:
        """Add the metrics of a validation to the step before it."""
        if self._recorder is None or trainer.sanity_checking:
            return
        with self._guard("reading a validation"):
            metrics = trainer.callback_metrics
            self._recorder.log_after(**{name: metrics[key] for name, key in self._validation.items() if key in metrics})

    def on_train_end(self, _trainer: Any, _module: nn.Module) -> None:
        """Close the recorder."""
        self._close()

    def on_exception(self, _trainer: Any, _module: nn.Module, _error: BaseException) -> None:
        """Close the recorder: Lightning calls this after an interrupt as well."""
        self._close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint of the trainer: the number of finished steps."""
        return {"step": self._step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the number of finished steps from a checkpoint."""
        self._step = state_dict["step"]

    def _close(self) -> None:
        recorder, self._recorder = self._recorder, None
        self._losses, self._has_read = [], False
        if recorder:
            recorder.close()


def _choices(trainer: Any, module: Any) -> dict[str, Any]:
    clips_norm = trainer.gradient_clip_val and str(trainer.gradient_clip_algorithm or "norm").endswith("norm")
    steps = trainer.estimated_stepping_batches
    facts = {
        "trainer": "lightning",
        "optimizer": list(trainer.optimizers),
        "scaler": getattr(trainer.precision_plugin, "scaler", None),
        "compiled": getattr(module, "_compiler_ctx", None) is not None,
        "clip_norm": trainer.gradient_clip_val if clips_norm else None,
        "planned_steps": int(steps) if 0 <= steps < math.inf else None,
        "config": dict(module.hparams) if getattr(module, "hparams", None) else None,
    }
    return {name: value for name, value in facts.items() if value is not None}
