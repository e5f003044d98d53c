"""Hugging Face: a callback that records a training by `transformers.Trainer`."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckaudit.optional import needed

with needed("The callback of the Trainer", "transformers"):
    import torch
    from torch import Tensor, nn
    from transformers import TrainerCallback

from ckaudit.recorder.callback_base import CallbackBase, ForwardPass, PassWatch
from ckaudit.recorder.checks.held_out_rows import MAX_ROWS, rows_of
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.recorder import Recorder, check_options
from ckaudit.recorder.target_alignment import IGNORED, shifts_labels

SET_LOSS = re.compile(r"eval_(.+)_loss")

WHOLE = ("eval_loss", "eval_all_loss")  # of the only evaluation set, or of the one among several that has this name

LENGTHS = ("max_length", "max_seq_length")

PLAN_POINTS = 256

OF_TOKENS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration", "MTModel", "ToText")

OF_ANOTHER_TASK = re.compile(r"For[A-Z]")

OF_PAIRS = ("CLIPModel", "SiglipModel", "AlignModel", "ClapModel")  # their own loss is contrastive


class RecorderCallback(CallbackBase, TrainerCallback):  # type: ignore[misc]  # transformers calls every event of its own class
    """Records a training: `callback = RecorderCallback("run/")`, then `Trainer(..., callbacks=[callback])`.

    Model, optimizer, loss scaler, seed, learning-rate schedule and other facts come from the trainer; a resume continues the
    folder. Each step's loss is the differentiated one, over all micro-batches; its batch is the model's inputs. The loss of the
    only evaluation set, or of one named "all", becomes `val_loss`; that of other sets becomes `slice_val_loss/<set>`. Their rows
    are held out, except those of a set named after training. `tokens_seen` is recorded if the arguments have
    `include_num_input_tokens_seen`.

    The trainer clips before any of its events. The gradients are read earlier, when autograd reports the end of the step's last
    backward pass: `gradients_source` is "pre_clip". If that cannot be seen they are read after clipping: "rescaled" if nothing
    was clipped, else "post_clip". Under `torch_compile`, with several GPUs in one process, and if the loss is computed outside
    the model, the step's own loss is unknown, and the mean that the trainer logs is recorded.

    Values that only the training knows are passed to the callback: `callback.log_step(...)` for the current step,
    `callback.log_after(...)` after an evaluation, `callback.pin(batch)` before `trainer.train()`.

    Attention is recorded with `attn_implementation` "sdpa" and "eager", before dropout.

    Args:
        folder: The run folder, or an address such as "s3://bucket/run".
        **options: Arguments of `Recorder` that replace the callback's choices, such as `cadence`, `grids`, `grad_of` or facts of
            `run.json`.

    Raises:
        TypeError: If an option is neither an argument nor a fact.
        ValueError: If `grids` or `suffix` is not one of its values.
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
        self._evaluated = set[int]()

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
        """Start the recorder, or continue the folder after a resume."""
        self._close()
        with self._guard("starting the recorder"):
            self._scaler = getattr(optimizer, "scaler", None)
            chosen = choices(args, state, model, lr_scheduler, self._guard)
            from_trainer = {
                "trainer": "huggingface",
                "optimizer": optimizer,
                "scaler": self._scaler,
                "start_step": state.global_step,
            }
            from_trainer["tokenizer"] = processing_class if hasattr(processing_class, "get_vocab") else None
            wanted = from_trainer | chosen | self._options
            self._recorder, self._has_read = Recorder(model, self._folder, **wanted), False
            self._watch = PassWatch(model, self._guard, self._read, hooks=not wanted["compiled"] and args.n_gpu <= 1)
        self._hand_over_batches(model)

    def _read(self) -> None:
        from accelerate.state import GradientState

        if self._recorder and GradientState().sync_gradients:
            self._recorder.after_backward()
            self._scale = float(self._scaler.get_scale()) if self._scaler else 1.0
            self._has_read = True

    def on_pre_optimizer_step(self, args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """Read the gradients, which are clipped by now, if the end of the backward pass was not seen."""
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
        """Record the trainer's mean loss if the step's own is not known; the trainer's summary ends the training."""
        if self._recorder is None or not logs:
            return
        if "train_loss" in logs:
            # Afterwards the trainer may load the weights of its best step.
            self._close()
        elif "loss" in logs and not self._has_loss:
            self._recorder.log_after(train_loss_raw=logs["loss"])

    def on_prediction_step(self, _args: Any, _state: Any, _control: Any, *, model: nn.Module, **_: Any) -> None:
        """Remember the rows of a batch of the trainer's own evaluation; batches from other callbacks are not held out."""
        if self._watch and len(self._evaluated) < MAX_ROWS:
            with self._guard("taking the rows of an evaluation"):
                self._evaluated |= {*rows_of(_tensor(self._watch.take_evaluated(), _main_input(model)))}

    def on_predict(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """Forget the rows of a prediction."""
        self._evaluated = set()

    def on_evaluate(self, _args: Any, _state: Any, _control: Any, metrics: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Add the losses of an evaluation to the step before it."""
        if self._recorder is None or not metrics:
            return
        with self._guard("reading an evaluation"):
            losses = {f"slice_val_loss/{name[1]}": metrics[key] for key in metrics if (name := SET_LOSS.fullmatch(key))}
            whole = next((metrics[key] for key in WHOLE if key in metrics), None)
            rows, self._evaluated = self._evaluated, set()
            if whole is not None or (losses and not any("train" in name for name in losses)):
                self._recorder.hold_out_rows(rows)
            self._recorder.log_after(**(losses if whole is None else {"val_loss": whole}))

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


# Facts of `run.json`, and a step's loss and batch, from the objects of a Hugging Face training.
def choices(args: Any, state: Any, model: nn.Module, scheduler: Any, guard: Guard) -> dict[str, Any]:
    """Return the arguments of `Recorder` that follow from the objects of a training; what fails is left out.

    Args:
        args: The `TrainingArguments`.
        state: The `TrainerState`.
        model: The model, with its `config` if it is one of `transformers`.
        scheduler: The learning-rate scheduler.
        guard: Isolates a failing fact from the others.
    """
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    makers: dict[str, Callable[[], Any]] = {
        "config": args.to_sanitized_dict,
        "model": lambda: config.to_dict() if config is not None else None,
        "seed": lambda: args.seed,
        "vocabulary": lambda: getattr(text, "vocab_size", None),
        "sequence_length": lambda: next((length for name in LENGTHS if (length := getattr(args, name, None))), None),
        "clip_norm": lambda: args.max_grad_norm or None,
        "planned_steps": lambda: state.max_steps,
        "warmup_steps": lambda: args.get_warmup_steps(state.max_steps),
        "planned_learning_rate": lambda: planned_learning_rate(
            scheduler, state.max_steps, args.get_warmup_steps(state.max_steps)
        ),
        "compiled": _runs_compiled,
        "loss_kind": lambda: loss_kind(model, args),
        "reinforcement_learning": lambda: makes_rollouts(args) or None,
        "kv_heads": lambda: getattr(text, "num_key_value_heads", None),
    }
    facts: dict[str, Any] = {"compiled": bool(getattr(args, "torch_compile", False))}
    for name, make in makers.items():
        with guard(f"the fact {name}"):
            if (value := make()) is not None:
                facts[name] = value
    return facts


def loss_kind(model: nn.Module, args: Any = None) -> str | None:
    """Return the kind of a model's own loss by its task; None if its class does not name one.

    Only language models have a mean over tokens in nats. A class named after another task has another loss: of classes, positions
    in a text, boxes, pairs, or alignments (CTC). A language model in a TRL trainer other than the one for supervised fine-tuning
    has a loss of preferences or rewards.
    """
    name, trainer = type(model).__name__, type(args)
    if trainer.__module__.startswith("trl.") and not trainer.__name__.startswith("SFT"):
        return "other"
    if name.endswith(OF_TOKENS):
        return "nats_per_token"
    return "other" if OF_ANOTHER_TASK.search(name) or name.endswith(OF_PAIRS) else None


def makes_rollouts(args: Any) -> bool:
    """Tell whether a trainer learns from text that its model generates: a TRL trainer whose arguments have a temperature."""
    return type(args).__module__.startswith("trl.") and hasattr(args, "temperature")


def _runs_compiled() -> bool:
    # The arguments and the environment of Accelerate both end up here; the wrapping of the model is not visible.
    from accelerate.state import AcceleratorState

    return str(AcceleratorState().dynamo_plugin.backend.value) != "NO"


def planned_learning_rate(scheduler: Any, steps: int, warmup: int, *, points: int = PLAN_POINTS) -> list[list[float]] | None:
    """Return the schedule of the first group as [step, value]; None if the scheduler is not a function of the step.

    The update of step N uses the value for N - 1 finished updates.

    Args:
        scheduler: A `LambdaLR`; all schedulers of `transformers` are one, except those that depend on a metric.
        steps: Planned steps.
        warmup: Number of warm-up steps; the end of the warm-up is a point.
        points: Maximum number of segments; with fewer steps, every step is a point.
    """
    factors = getattr(scheduler, "lr_lambdas", None)
    if not factors or steps < 1:
        return None
    even = {round(1 + (steps - 1) * place / points) for place in range(points + 1)}
    places = sorted(even | {min(warmup + 1, steps)})
    return [[step, float(scheduler.base_lrs[0] * factors[0](step - 1))] for step in places]


def step_loss(passes: Sequence[ForwardPass], scale: float) -> Tensor | None:
    """Return the differentiated loss of a step over all its micro-batches, without the loss scale."""
    if not passes:
        return None
    return torch.stack([pass_.loss.float() * pass_.factor.float() / scale for pass_ in passes]).sum()


def batch_of(passes: Sequence[ForwardPass], model: nn.Module) -> tuple[Tensor, Tensor | None] | None:
    """Return inputs and targets of a step, as its loss saw them, with micro-batches concatenated; None if there are none.

    Micro-batches of different lengths become one long row. Only language models that predict the next token have targets: their
    loss shifts the labels, so they are shifted here.
    """
    inputs = [tensor for pass_ in passes if (tensor := _tensor(pass_.inputs, _main_input(model))) is not None]
    targets = [tensor for pass_ in passes if (tensor := _targets(pass_.inputs, model)) is not None]
    if not inputs:
        return None
    return _joined(inputs), _joined(targets) if len(targets) == len(inputs) else None


def _main_input(model: nn.Module) -> str:
    return getattr(model, "main_input_name", "input_ids")


def _tensor(inputs: Mapping[str, Any], name: str) -> Tensor | None:
    value = inputs.get(name)
    return value if isinstance(value, Tensor) else None


def _targets(inputs: Mapping[str, Any], model: nn.Module) -> Tensor | None:
    if (shifted := _tensor(inputs, "shift_labels")) is not None:
        return shifted
    labels = _tensor(inputs, "labels")
    if labels is None or not shifts_labels(model):
        return None
    return nn.functional.pad(labels[..., 1:], (0, 1), value=IGNORED)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    if len({part.shape[1:] for part in parts}) == 1:
        return torch.cat(list(parts)) if len(parts) > 1 else parts[0]
    return torch.cat([part.reshape(-1) for part in parts])
