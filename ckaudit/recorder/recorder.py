"""The recorder: the methods that a training loop calls, and how a step becomes a log line and a checkpoint."""

import atexit
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ckaudit.contract.cadence import DEFAULT_CADENCE
from ckaudit.contract.io.grids import GridEncoding
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder.files.manifest import check_call, model_config
from ckaudit.recorder.files.scalar_log import number
from ckaudit.recorder.files.uploader import close_at_exit
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.loop.session import Start, start
from ckaudit.recorder.loop.triggers import EventThresholds
from ckaudit.recorder.model.gradient_norms import clip
from ckaudit.recorder.model.tensor_table import hooked, unwrapped
from ckaudit.recorder.on_demand import OnDemand
from ckaudit.recorder.setup import HookOptions, RecordingOptions, Setup
from ckaudit.remote.spool import address_of, folder_of


class Recorder(OnDemand):
    """Writes a run folder while a PyTorch model trains.

    A training loop with the recorder's calls::

        recorder = Recorder(model, "run/", optimizer=optimizer, vocabulary=50_000, sequence_length=1_024, clip_norm=1.0)
        for batch in loader:
            loss = ...                                     # hooks look at the forward pass where a checkpoint is due
            loss.backward()                                # once or, with accumulation, several times
            scaler.unscale_(optimizer)                     # mixed precision only
            recorder.after_backward()                      # once: reads the gradients, before they are clipped
            clip_grad_norm_(model.parameters(), 1.0)       # or recorder.clip_grad_norm_(1.0), which reads them as well
            optimizer.step()
            recorder.log(val_loss=...)                     # any time: adds values to the line of this step
            recorder.step(loss, batch=(inputs, targets))   # once per attempt: finishes the step
            optimizer.zero_grad()
        recorder.close()                                   # or `with Recorder(...) as recorder:`, or the end of the program

    `OnDemand` has further measurements, made on request.

    Without `after_backward` the gradients are read when the optimizer steps; if `clip_norm` was given, `gradients_source` is then
    "post_clip". A step that a loss scaler skips counts as an attempt.

    The folder gets `run.json`, a line per step in `scalars.jsonl`, and checkpoints: at step 0 (weights only), by the cadence,
    after an event, and at the end. If the folder already contains a run, a session is added to it. `start_step` is then the step
    of the weights, and later checkpoints are renamed as superseded.

    The recorder changes nothing in the training: no weight, gradient, random number or mode. None of its methods raises. A
    failure is logged once by the logger `ckaudit.recorder`, counted in `run.json`, and its data is missing in the files. Only an
    invalid call, such as an unknown keyword of this constructor, raises before anything is done.

    On an accelerator nothing waits for the numbers of a plain step: their copy starts when the step is finished and is read a
    step later. So its log line, and the checkpoint after an event in it, come one step later. Steps with a checkpoint or vital
    signs are read at once; so are those of sharded models and of a `GradScaler`, which wait anyway.

    Every rank has a recorder, with the same arguments and the same calls; start it after the model is wrapped or sharded. The
    first rank writes the run: its own loss, batch and module outputs, and whole tensors, even if FSDP2 or tensor parallelism has
    sharded them. In that case give `planned_steps`: the weights of the last step need all ranks, and `close` does not wait for
    them. By the cadence, each other rank adds a small file with what only it knows: its step times, and hashes of batch and
    weights.

    A module inside `torch.compile` or TorchScript is not hooked, so its activations and attention are not recorded; this is
    logged once. In a partly compiled model, attention is recorded only for modules in `attention_probabilities`.

    If gradients are not in `.grad`, `grad_of` returns them; otherwise they are absent, not zero. For Megatron it is `lambda p:
    getattr(p, "main_grad", None)`. For DeepSpeed it is `deepspeed.utils.safe_get_full_grad`, with `after_backward` between
    `engine.backward(loss)` and `engine.step()`. With it gradients are read by `after_backward` and `after_clipping` alone, which
    every rank has to call: bringing them may need all of them.

    If `ckaudit drill` has started the program, its variable `CKAUDIT_DRILL` redirects the run to a folder of the drill, requests
    a fault, and ends the program after a number of steps.

    Args:
        model: The model. Wrappers of `torch.compile` and data parallelism are looked through.
        folder: The run folder, created if missing. Or an address, such as "s3://bucket/run": files are written to a spool on this
            machine, and a thread uploads them from there; no step waits for it. See docs/object-storage.md.
        optimizer: The optimizer, or several of them. Without it there are no learning rates, and no weight movement unless
            `after_backward` is called.
        scaler: The `GradScaler`, if any. If gradients are still scaled when they are read, their statistics are divided by the
            scale.
        start_step: Update attempts finished before a resume.
        cadence: When checkpoints are due: ranges of steps with one interval each.
        limits: When an event triggers a checkpoint, and how many may; see `EventThresholds`.
        modules: Glob patterns of the modules whose outputs are measured. Default: blocks, norms, embeddings, activation
            functions, convolutions, and the linear layers outside attention and head. Each is seen at its first call.
        attention_probabilities: Glob patterns of modules whose output is or contains probabilities (B, H, Q, K); a model can
            expose its own by passing them through an `nn.Identity`. Two sequences are measured.
        attention_logits: The same for the scaled logits before softmax.
        attention_queries: Queries per sequence, in at most two sequences, for which all other attention is recomputed:
            `scaled_dot_product_attention`, and a softmax in a module named after attention. The largest logits are over the whole
            batch in a checkpoint, and over one sequence in the log lines between. 0: it is not recorded.
        causal: Whether a query must not see later keys. Default: true if later keys have exactly zero weight.
        kv_heads: Number of key and value heads per layer, if several query heads share one.
        moe_routers: Glob patterns of modules that output the logits of experts, alone or with the chosen experts.
        experts_per_token: Experts per token, if neither router nor model has this number.
        compiled: Whether the model runs inside `torch.compile` although that cannot be detected, because it is compiled later.
        grad_of: Returns the gradient of a parameter, or None if it has none. Default: `parameter.grad`.
        grids: How sampled weights and attention are written: "q8" bytes, "nested" numbers, or "none". Layers take turns.
        budget_kb: Maximum size of a checkpoint file, in thousands of bytes; None: write everything, every time. Norms, movement
            and heads are always written, and so are the grids whose turn it is, except beside the black box of an event. The rest
            takes turns by layer if there is no room for all, and `left_out` lists what some layers lack.
        spectral_norms: Glob patterns of the weights whose largest singular value is measured.
        exact: Whether each tensor carries a hash of its bytes.
        suffix: ".json", ".json.gz" or ".json.zst". Default: ".json", or ".json.zst" if plain files of this model would have to
            leave out statistics to keep the budget.
        **facts: Further facts of `run.json`, such as name, config, seed, vocabulary, sequence_length, clip_norm, warmup_steps,
            planned_steps, planned_learning_rate, slices, model_scale_hint; for a repeatable run also tokenizer (a file or the
            object; its hash is kept), data_manifest (a mapping or a JSON file), eval_artifacts (paths by name, hashed) and
            decoding. The git commit, the installed packages and a model's own config are found without being given.

    Raises:
        TypeError: If a keyword is not a fact of `run.json`.
        ValueError: If `grids` or `suffix` is not one of its values.
    """

    def __init__(
        self,
        model: nn.Module,
        folder: str | os.PathLike[str],
        /,
        *,
        optimizer: Optimizer | Iterable[Optimizer] | None = None,
        scaler: Any = None,
        start_step: int = 0,
        cadence: Sequence[Cadence] = DEFAULT_CADENCE,
        limits: EventThresholds = EventThresholds(),  # noqa: B008  it is frozen
        modules: Sequence[str] | None = None,
        attention_probabilities: Sequence[str] = ("*.probabilities",),
        attention_logits: Sequence[str] = ("*.logits",),
        attention_queries: int = 64,
        causal: bool | None = None,
        kv_heads: int | None = None,
        moe_routers: Sequence[str] = ("*.router", "*.gate"),
        experts_per_token: int | None = None,
        compiled: bool = False,
        grad_of: Callable[[nn.Parameter], Tensor | None] | None = None,
        grids: GridEncoding = "q8",
        budget_kb: float | None = 200,
        spectral_norms: Sequence[str] = (),
        exact: bool = False,
        suffix: str | None = None,
        **facts: Any,
    ) -> None:
        check_call(grids=grids, suffix=suffix, **facts)
        self._guard = Guard()
        facts = _config(model, self._guard) | facts
        self._model = model
        self._session: Start | None = None
        with self._guard("starting the recorder"):
            options = RecordingOptions(
                grids=grids,
                spectral=tuple(spectral_norms),
                exact=exact,
                clip_norm=facts.get("clip_norm"),
                cadence=tuple(cadence),
                budget_kb=budget_kb,
                suffix=suffix,
                grad_of=grad_of,
            )
            hooks = HookOptions(
                modules=modules,
                probabilities=attention_probabilities,
                logits=attention_logits,
                queries=attention_queries,
                causal=causal,
                kv_heads=kv_heads,
                routers=moe_routers,
                experts_per_token=experts_per_token,
                hookable=hooked(model, compiled=compiled),
            )
            self._session = start(
                Setup(
                    model=unwrapped(model),
                    path=folder_of(folder),
                    address=address_of(folder),
                    guard=self._guard,
                    optimizer=optimizer,
                    scaler=scaler,
                    start_step=start_step,
                    limits=limits,
                    options=options,
                    hooks=hooks,
                    facts=facts,
                )
            )
        atexit.register(self.close)
        if address_of(folder):
            close_at_exit(self.close)

    def after_backward(self) -> None:
        """Read the gradients: once per update, after the last backward pass and AMP's unscaling, before clipping."""
        try:
            if self._session:
                self._session.read_gradients("pre_clip")
        except Exception as error:  # noqa: BLE001  nothing may reach the training
            self._guard.failed("reading gradients", error)

    def after_clipping(self, max_norm: float, norm: Any = None) -> None:
        """Read gradients after clipping, instead of `after_backward`, if a trainer leaves no earlier place.

        The numbers are those before clipping (`gradients_source` is "rescaled") if the factor is known: from `norm`, or because
        the gradients are too small to have been clipped. Otherwise they are those after clipping ("post_clip").

        Args:
            max_norm: Maximum total norm.
            norm: Total norm before clipping, as `clip_grad_norm_` returns it, if known.
        """
        with self._guard("reading gradients"):
            if self._session:
                self._session.read_clipped(max_norm, number(norm))

    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Clip as `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)` does, and return the total norm.

        This also reads the gradients, unless `after_backward` has just done so. The result is identical to torch's to the last
        bit. The norms are computed only once, except for half precision and, on a CPU, gradients of more than 33 million
        elements. Parameters added to the model later are clipped too, once an optimizer holds them.
        """
        gradients_and_norms = None
        if self._session:
            try:
                gradients_and_norms = self._session.read_for_clipping(max_norm)
            except Exception as error:  # noqa: BLE001
                self._guard.failed("reading gradients", error)
        if gradients_and_norms is None:
            return torch.nn.utils.clip_grad_norm_(self._model.parameters(), max_norm)
        return clip(*gradients_and_norms, max_norm)

    def log(self, **values: Any) -> None:
        """Add values to the log line of the current step, by catalogue name."""
        if self._session:
            self._session.log(values)

    def log_after(self, **values: Any) -> None:
        """Add values to the log line of the last finished step, such as the loss of a validation that follows it.

        Existing values stay. Before the first step of a run the values belong to step 0.
        """
        if self._session:
            with self._guard("logging after a step"):
                self._session.log_after(values)

    def step(
        self, loss: Any = None, *, batch: Any = None, batch_id: str | int | None = None, source: str | None = None, **values: Any
    ) -> None:
        """Finish a step: write its log line and, if one is due, its checkpoint.

        Args:
            loss: Unscaled training loss of the step: a number or a tensor of one element.
            batch: Inputs and targets as the loss saw them; hashed, and compared with each other if both are tokens. Without it a
                checkpoint describes the model's first inputs.
            batch_id: The loader's name for the batch.
            source: The data source of the batch.
            **values: More values of the line, as in `log`; a label goes in as `**{"slice_val_loss/regular": 1.8}`.
        """
        if self._session:
            start = perf_counter()
            try:
                if values:
                    self._session.log(values)
                self._session.finish_step(loss, start, batch=batch, batch_id=batch_id, source=source)
            except Exception as error:  # noqa: BLE001
                self._guard.failed("finishing a step", error, writes=True)

    def close(self) -> None:
        """Write the last checkpoint and the end of the session; a second call does nothing."""
        atexit.unregister(self.close)
        session, self._session = self._session, None
        if session:
            with self._guard("closing", writes=True):
                session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def check_options(options: Mapping[str, Any]) -> None:
    """Raise as `Recorder` does for invalid keyword arguments."""
    arguments = signature(Recorder).parameters.keys() - {"grids", "suffix"}
    check_call(**{name: value for name, value in options.items() if name not in arguments})


def _config(model: nn.Module, guard: Guard) -> dict[str, Any]:
    with guard("the configuration of the model"):
        return model_config(unwrapped(model))
    return {}
