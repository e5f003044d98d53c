"""On-demand measurements: what a training loop can request from its recorder in addition to the regular record."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ckaudit.recorder.checks.curvature import Curvature
from ckaudit.recorder.checks.gradient_check import PER_TENSOR, GradientCheck
from ckaudit.recorder.checks.side_effect_free import own_loss
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.loop.requests import FIRST
from ckaudit.recorder.loop.session import RunSession, Start


class OnDemand:
    """The methods of `Recorder` that measure on request; like the others they never raise."""

    _guard: Guard
    _session: Start | None

    @property
    def _first_rank(self) -> RunSession | None:
        """The session that writes the run; None on the other ranks, which measure nothing."""
        return self._session if isinstance(self._session, RunSession) else None

    def pin(
        self,
        batch: Any,
        loss: Callable[[nn.Module, Any], Tensor] = own_loss,
        *,
        name: str = FIRST,
        shift: int = 8,
        held_out: bool | None = None,
    ) -> None:
        """Evaluate the model on a batch now and at every checkpoint: without gradients, in evaluation mode, without side effects.

        The log line and the checkpoint then contain `fixed_probe_loss` and, if the model outputs logits, `logit_entropy_probe`
        (nats), `topk_mass_probe` (% of the 10 likeliest tokens) and `output_kl_to_prev` (nats). The checkpoint contains the same
        for the twin, which has the tokens at other positions. Every pinned batch costs two forward passes per checkpoint.

        A model whose parameters are sharded over ranks is not evaluated, because that would need all ranks.

        Args:
            batch: Inputs and targets; copied.
            loss: Returns the loss of a model on a batch, its two arguments. Default: the loss that the model returns for a
                mapping, cross entropy of its logits for a pair.
            name: Name of the batch; any but the default is appended to the names of the values as a label.
            shift: Positions by which the twin is shifted, at most a quarter of the sequence, which is shortened by as many; 0: no
                twin.
            held_out: Whether training never sees the batch, if known.
        """
        if session := self._first_rank:
            with self._guard(f"pinning the batch {name}"):
                session.log_after(session.requests.pin(name, batch, loss, shift=shift, held_out=held_out))

    def hold_out(self, batch: Any) -> None:
        """Declare that training must not see the rows of a batch: once before the training, or at every evaluation.

        At every 25th step and those with a checkpoint, the rows of the training batch are compared with the held-out rows. The
        log line then contains `held_out_rows_trained_on`, the share of held-out rows (%) seen in training so far. Only rows that
        are equal in all elements are found. A batch pinned as held out needs no such call. Of several ranks the first compares
        its own batches.

        Args:
            batch: A batch in the form that `step` takes, up to 65,536 rows altogether; only hashes are kept.
        """
        if session := self._first_rank:
            with self._guard("taking held-out rows"):
                session.requests.held_out.add_batch(batch)

    def hold_out_rows(self, rows: set[int]) -> None:
        """Hold out rows that a trainer evaluates on, by their hashes, without the user's declaration.

        Nothing is recorded if these include all rows of the training, or if the rows of one batch are alike.
        """
        if session := self._first_rank:
            with self._guard("taking held-out rows"):
                session.requests.held_out.add_rows(rows)

    def check_gradients(
        self, batch: Any, loss: Callable[[nn.Module, Any], Tensor] = own_loss, *, per_tensor: int = PER_TENSOR
    ) -> GradientCheck | None:
        """Compare the gradients of the backward pass with central differences of the loss, on a copy in float64.

        The current step gets a checkpoint, which contains the largest relative error and its tensor. Call it before the first
        step, on a small batch: every compared element costs two to four forward passes.

        Args:
            batch: What the loss needs.
            loss: Returns the loss of a model on a batch, its two arguments; it must not use another model.
            per_tensor: Elements compared in each tensor.

        Returns:
            The result; None if the check failed, and on ranks that do not record.
        """
        if session := self._first_rank:
            with self._guard("checking gradients"):
                check = session.requests.check_gradients(batch, loss, per_tensor=per_tensor)
                session.ask()
                return check
        return None

    def micro_batch(self, examples: float = 1.0) -> None:
        """Report the end of one of several backward passes before an update, to measure the gradient noise scale.

        Call it after each of them, before clipping, with gradients that were zero before the first. After ten updates the log
        line contains `grad_noise_scale`, in examples, and the two parts of that ratio, `grad_noise_trace` and
        `grad_noise_signal`, each a mean over updates. With several ranks each pass has to be synchronised; with one pass per
        update use `rank_batch`. Sharded gradients are not measured.

        Args:
            examples: Examples in the micro-batch, over all ranks; by default the scale is in micro-batches.
        """
        if session := self._first_rank:
            with self._guard("looking at a micro-batch"):
                session.requests.micro_batch(examples)

    def rank_batch(self, examples: float = 1.0) -> None:
        """Request, before the backward pass of an update, the gradient noise scale from the batches of several ranks.

        Under `DistributedDataParallel` the gradient of the first rank is compared with the mean over all ranks, in this step
        only. After ten comparisons the log line contains `grad_noise_scale`, in examples, and its two parts. The cost is two
        passes over a sample of the gradients. The ranks exchange nothing for it, so it may be called on all of them or on the
        first alone. With accumulation, the gradients after the last backward pass count, which is the one that averages.

        Args:
            examples: Examples of the update on each rank; by default the scale is in batches of a rank.
        """
        if session := self._first_rank:
            with self._guard("asking for a rank's own gradient"):
                session.requests.rank_batch(examples)

    def measure_curvature(self, loss: Tensor | Callable[[], Tensor], *, samples: int = 8, seed: int = 0) -> Curvature | None:
        """Estimate the trace of a loss's Hessian by all trainable parameters, as `curvature_trace_est` in the log line.

        It costs a backward pass that keeps its graph, and one more per sample. Gradients in `.grad` do not change. A model whose
        parameters are sharded over ranks is not measured.

        Args:
            loss: A function that computes the loss; it runs in evaluation mode, with plain attention, and without side effects on
                the training. Or the loss with its graph, which is kept; then every operator needs a second derivative, which
                fused attention lacks.
            samples: Random vectors.
            seed: Seed of their generator; equal seeds give equal vectors.

        Returns:
            Estimate and standard error; None if the estimate failed, and on ranks that do not record.
        """
        if session := self._first_rank:
            with self._guard("measuring the curvature"):
                curvature = session.requests.measure_curvature(loss, samples=samples, seed=seed)
                session.log({"curvature_trace_est": curvature.trace, "curvature_trace_error": curvature.standard_error})
                return curvature
        return None

    def profile_next_step(self) -> None:
        """Profile one step; call it before its forward pass. `run.json` then lists the kernels that ran for each tensor.

        The profiler stops when the step is finished. The step takes longer, and waits for the device at its end. Everything that
        runs until then is in the profile, so request other checks of this step before it.
        """
        if session := self._first_rank:
            with self._guard("profiling a step"):
                session.requests.profile()
