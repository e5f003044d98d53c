"""On-demand measurements: what a training loop can ask of its recorder beyond the standing record."""

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
    """The methods of `Recorder` that measure something because they are called; like the others they never raise."""

    _guard: Guard
    _session: Start | None

    @property
    def _first_rank(self) -> RunSession | None:
        """What writes the run; None on the other ranks, which measure nothing."""
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
        """Show a batch to the model now and at every checkpoint from now on: without gradients, in evaluation mode, unnoticed.

        The line and the checkpoint then hold `fixed_probe_loss`, and where the model puts out logits `logit_entropy_probe`
        (nats), `topk_mass_probe` (% of the 10 likeliest tokens) and `output_kl_to_prev` (nats). The checkpoint holds the
        same for the twin: the tokens at other positions. Every pinned batch costs two forward passes a checkpoint.

        A model whose parameters are spread over ranks is not shown anything, for that would take all of them.

        Args:
            batch: Inputs and targets; copied.
            loss: Returns the loss of the model on the batch, both given. Default: what the model puts out for a mapping,
                cross entropy of its logits for a pair.
            name: Its name; any but the default follows the names of the values as their label.
            shift: Positions by which the twin is moved, at most a quarter of the sequence, which is cut as much to make
                room; 0: no twin.
            held_out: Whether training never sees the batch, where known.
        """
        if session := self._first_rank:
            with self._guard(f"pinning the batch {name}"):
                session.log_after(session.requests.pin(name, batch, loss, shift=shift, held_out=held_out))

    def hold_out(self, batch: Any) -> None:
        """Tell that training must not see the rows of a batch: once before it, or at every evaluation.

        At the steps that are looked at, every 25th and those with a checkpoint, the rows of the training's batch are compared
        with them, and the line holds `held_out_rows_trained_on`, the share of them (%) that was met so far. Only rows that are
        equal in all elements are found. A batch that is pinned as held out needs no such call. Of several ranks the first
        compares its own batches.

        Args:
            batch: In the form that `step` is given, up to 65,536 rows altogether; only hashes are kept.
        """
        if session := self._first_rank:
            with self._guard("taking held-out rows"):
                session.requests.held_out.add_batch(batch)

    def hold_out_rows(self, rows: set[int]) -> None:
        """Tell the same of rows that a trainer evaluates on, by their hashes: nobody has declared that they are held out.

        Nothing is recorded where these are all rows of the training, or where the rows of one batch are alike.
        """
        if session := self._first_rank:
            with self._guard("taking held-out rows"):
                session.requests.held_out.add_rows(rows)

    def check_gradients(
        self, batch: Any, loss: Callable[[nn.Module, Any], Tensor] = own_loss, *, per_tensor: int = PER_TENSOR
    ) -> GradientCheck | None:
        """Compare the gradients of the backward pass with central differences of the loss, on a copy in float64.

        The step under way gets a checkpoint, which holds the largest relative error and its tensor. Worth a call before the
        first step, on a small batch: every element compared costs two to four forward passes.

        Args:
            batch: What the loss needs.
            loss: Returns the loss of the model on the batch, both given; it must look at no other model.
            per_tensor: Elements compared in each tensor.

        Returns:
            What was found; None where nothing could be, and on ranks that do not record.
        """
        if session := self._first_rank:
            with self._guard("checking gradients"):
                check = session.requests.check_gradients(batch, loss, per_tensor=per_tensor)
                session.ask()
                return check
        return None

    def micro_batch(self, examples: float = 1.0) -> None:
        """Tell that one backward pass of several before an update has ended, to measure the gradient noise scale.

        Called after each of them, before clipping, with gradients that were zero before the first. The line then holds
        `grad_noise_scale`, in examples, once ten updates were seen, and what it is the ratio of: `grad_noise_trace` and
        `grad_noise_signal`, each a mean over updates. Of several ranks each pass has to be synchronised; with one
        pass an update there is `rank_batch`.
        Gradients that ranks hold in parts are not looked at.

        Args:
            examples: Examples in the micro-batch, of all ranks together; without it the scale is in micro-batches.
        """
        if session := self._first_rank:
            with self._guard("looking at a micro-batch"):
                session.requests.micro_batch(examples)

    def rank_batch(self, examples: float = 1.0) -> None:
        """Ask, before the backward pass of an update, for the gradient noise scale from the batches of several ranks.

        Under `DistributedDataParallel` the gradient of the first rank is compared with the mean over all, in this step only;
        the line holds `grad_noise_scale`, in examples, and its two parts, once ten updates were compared. It costs two passes
        over a sample of the gradients; the ranks exchange nothing for it, and it may be called on all of them or on the first
        alone.
        With accumulation it counts what the last backward pass, the one that averages, leaves of all of them together.

        Args:
            examples: Examples of the update on each rank; without it the scale is in batches of a rank.
        """
        if session := self._first_rank:
            with self._guard("asking for a rank's own gradient"):
                session.requests.rank_batch(examples)

    def measure_curvature(self, loss: Tensor | Callable[[], Tensor], *, samples: int = 8, seed: int = 0) -> Curvature | None:
        """Estimate the trace of the Hessian of a loss by all trainable parameters, as `curvature_trace_est` of the line.

        Costs a backward pass that keeps its graph, and one more per sample. Gradients in `.grad` stay as they are.
        A model whose parameters are spread over ranks is not measured.

        Args:
            loss: A function that computes it, which runs in evaluation mode, with plain attention, and unnoticed by the
                training; or the loss with its graph, which stays, where every operator has a second derivative: fused
                attention has none.
            samples: Random vectors.
            seed: Of their generator: equal seeds compare equal vectors.

        Returns:
            Estimate and standard error; None where there is none, and on ranks that do not record.
        """
        if session := self._first_rank:
            with self._guard("measuring the curvature"):
                curvature = session.requests.measure_curvature(loss, samples=samples, seed=seed)
                session.log({"curvature_trace_est": curvature.trace, "curvature_trace_error": curvature.standard_error})
                return curvature
        return None

    def profile_next_step(self) -> None:
        """Profile one step, called before its forward pass: `run.json` then says which kernels ran for each tensor.

        It is stopped when the step is finished. The step takes longer, and a device is waited for at its end. Whatever runs
        between is in the profile: ask for other checks of this step before it.
        """
        if session := self._first_rank:
            with self._guard("profiling a step"):
                session.requests.profile()
