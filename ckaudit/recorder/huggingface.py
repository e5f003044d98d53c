"""Hugging Face: a callback that records what `transformers.Trainer` trains."""

import os
import re
from collections.abc import Mapping
from typing import Any

from ckaudit.optional import needed

with needed("The callback of the Trainer", "transformers"):
    from torch import Tensor, nn
    from transformers import TrainerCallback

from ckaudit.recorder.callback_base import CallbackBase
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.huggingface_facts import batch_of, choices, step_loss
from ckaudit.recorder.pass_watch import PassWatch
from ckaudit.recorder.recorder import Recorder, check_options

SET_LOSS = re.compile(r"eval_(.+)_loss")
WHOLE = ("eval_loss", "eval_all_loss")  # of the only set, or of the one among several that is named so


class RecorderCallback(CallbackBase, TrainerCallback):  # type: ignore[misc]  # transformers calls every event of its own class
    """Records a training: `callback = RecorderCallback("run/")`, then `Trainer(..., callbacks=[callback])`.

    Model, optimizer, loss scaler, seed, plan of the learning rate and the other facts come from the trainer; a resume
    continues the folder. Each step's loss is the one that was differentiated, over all micro-batches, and its batch is what
    the model was given. Evaluations become `val_loss`, also that of a set named "all"; those of other sets
    become `slice_val_loss/<set>`. `tokens_seen` is there where the arguments have `include_num_input_tokens_seen`.

    The trainer clips before any of its events. The gradients are read earlier, when autograd says that the last backward
    pass of the step has ended: `gradients_source` is "pre_clip". Where that cannot be seen they are read after clipping:
    "rescaled" where nothing was cut off, else "post_clip". Under `torch_compile`, with several GPUs in one process, and where
    the loss is computed outside the model, the step's own loss cannot be had: it is the mean that the trainer logs.

    What only the training knows is told to the callback: `callback.log_step(...)` for the step under way,
    `callback.log_after(...)` after an evaluation, `callback.pin(batch)` before `trainer.train()`.

    Attention is recorded with `attn_implementation` "sdpa" and "eager", before any of it is dropped.

    Args:
        folder: The run folder.
        **options: Arguments of `Recorder`, in place of what the callback would choose, such as `cadence`, `grids`, `grad_of`
            or facts of `run.json`.

    Raises:
        TypeError: If an option is neither an argument nor a fact.
        ValueError: If `grids` or `suffix` is not one of its words.
    """

    def __init__(self, folder: str | os.PathLike[str], /, **options: Any) -> None:
        super().__init__()
        check_options(options)
        self._folder, self._options, self._guard = folder, options, Guard()
        self._recorder: Recorder | None = None
        self._watch: PassWatch | None = None
        self._scaler: Any = None
        self._scale = 1.0
        self._has_read = self._has_loss = False

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        _control: Any,
        *,
        model: nn.Module,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        processing_class: Any = None,
        **_: Any,
    ) -> None:
        """Start the recorder, or go on with the folder after a resume."""
        self._close()
        with self._guard("starting the recorder"):
            self._scaler = getattr(optimizer, "scaler", None)
            chosen = choices(args, state, model, lr_scheduler, self._guard)
            own = {"trainer": "huggingface", "optimizer": optimizer, "scaler": self._scaler, "start_step": state.global_step}
            own["tokenizer"] = processing_class if hasattr(processing_class, "get_vocab") else None
            wanted = own | chosen | self._options
            self._recorder, self._has_read = Recorder(model, self._folder, **wanted), False
            self._watch = PassWatch(model, self._guard, self._read, hooks=not wanted["compiled"] and args.n_gpu <= 1)
        self._take_up(model)

    def _read(self) -> None:
        from accelerate.state import GradientState

        if self._recorder and GradientState().sync_gradients:
            self._recorder.after_backward()
            self._scale = float(self._scaler.get_scale()) if self._scaler else 1.0
            self._has_read = True

    def on_pre_optimizer_step(self, args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """Read the gradients, clipped by now, where the end of the backward pass was not seen."""
        if self._recorder is None or self._has_read:
            return
        if args.max_grad_norm and args.max_grad_norm > 0:
            self._recorder.after_clipping(args.max_grad_norm)
        else:
            self._recorder.after_backward()

    def on_step_end(self, _args: Any, state: Any, _control: Any, *, model: nn.Module, **_: Any) -> None:
        """Finish the step."""
        if self._recorder is None:
            return
        loss: Tensor | None = None
        batch = None
        with self._guard("collecting the step"):
            passes = self._watch.take() if self._watch else []
            loss, batch = step_loss(passes, self._scale), batch_of(passes, model)
        self._has_read, self._has_loss = False, loss is not None
        tokens = {"tokens_seen": state.num_input_tokens_seen} if getattr(state, "num_input_tokens_seen", 0) else {}
        self._recorder.step(loss, batch=batch, epoch=state.epoch, **tokens)

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Take the trainer's mean loss where the step's own is not known; its summary ends the training."""
        if self._recorder is None or not logs:
            return
        if "train_loss" in logs:
            # Afterwards the trainer may load the weights of its best step.
            self._close()
        elif "loss" in logs and not self._has_loss:
            self._recorder.log_after(train_loss_raw=logs["loss"])

    def on_evaluate(self, _args: Any, _state: Any, _control: Any, metrics: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Add the losses of an evaluation to the step before it."""
        if self._recorder is None or not metrics:
            return
        with self._guard("reading an evaluation"):
            found = {f"slice_val_loss/{name[1]}": metrics[key] for key in metrics if (name := SET_LOSS.fullmatch(key))}
            whole = next((metrics[key] for key in WHOLE if key in metrics), None)
            self._recorder.log_after(**(found if whole is None else {"val_loss": whole}))

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """Close the recorder."""
        self._close()

    def _close(self) -> None:
        watch, self._watch = self._watch, None
        recorder, self._recorder = self._recorder, None
        if watch:
            watch.close()
        if recorder:
            recorder.close()
