"""Reads model, gradients and optimizers, and fills the sections of a checkpoint."""

from collections.abc import Callable, Container, Iterable, Mapping
from time import perf_counter
from typing import Any, Literal

import torch
from msgspec import UNSET
from torch import Tensor
from torch.optim import Optimizer

from ckaudit.contract.budget import BudgetPlan, apply_plan
from ckaudit.contract.schema.checkpoint import Checkpoint, GradientsSource, GradientStats, OptimizerState, WeightStats
from ckaudit.contract.schema.numbers import Number, encode_float
from ckaudit.contract.schema.tensor_names import depth_of
from ckaudit.contract.sizes import tensor_part
from ckaudit.recorder.distributed.shards import ShardedTensors, Shards
from ckaudit.recorder.distributed.tensor_access import LocalTensors, TensorAccess
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.forward_hooks import ForwardHooks
from ckaudit.recorder.hooks.forward_stats import ForwardStats
from ckaudit.recorder.hooks.vital_signs import DEAD_EVERY, values_of
from ckaudit.recorder.loop.step_numbers import PendingStats, PlainGradients
from ckaudit.recorder.loop.step_state import StepState, lowest
from ckaudit.recorder.model.budget_planner import BudgetPlanner, layer_parts, module_parts
from ckaudit.recorder.model.gradient_norms import LONG_ELEMENTS, VERY_LONG_ELEMENTS, existing_gradients, loss_scale_left, versions
from ckaudit.recorder.model.optimizers import (
    Clipping,
    as_sequence,
    clip_coefficient,
    decay_shares,
    hook_updates,
    learning_rates,
    optimized_parameters,
    optimizer_state,
    rates_of_tensors,
    undone_clipping,
)
from ckaudit.recorder.model.stale_gradients import StaleGradients
from ckaudit.recorder.model.tensor_table import distinct, needs_other_ranks, parameters
from ckaudit.recorder.model.weight_movement import Reference
from ckaudit.recorder.setup import Setup
from ckaudit.recorder.stats.arrays import Array, flat, is_sharded
from ckaudit.recorder.stats.batched_stats import WrittenStats
from ckaudit.recorder.stats.float32_rounding import shorten, shortest
from ckaudit.recorder.stats.moe import moe_scalars
from ckaudit.recorder.stats.tensor_stats import Cells, SpectralNorms, gradient_stats, sampled_cells, total_norm, weight_stats


class ResumeState:
    """Probe of a resume: reads optimizer and weights right before and right after the first update of a session.

    Sharded weights are left out: their norms need every rank.

    Args:
        weights: The model's weights by name.
        optimizers: Optimizers of the weights.
        guard: Keeps failures away from the update.
        set_session_facts: Called with the facts of the session, once they are known.
    """

    def __init__(
        self, weights: Mapping[str, Array], optimizers: Iterable[Optimizer], guard: Guard, set_session_facts: Callable[..., None]
    ) -> None:
        self._weights, self._optimizers, self._tell = weights, tuple(optimizers), set_session_facts
        self._norms: dict[str, Number] | None = None
        self._remembered, self._has_set_facts = False, False
        self._handles = hook_updates(self._optimizers, guard, self._before, self._after)

    def _before(self, _optimizer: Optimizer, _has_gradients: bool) -> None:
        if self._norms is None:
            self._remembered = any(map(_remembers, self._optimizers))
            self._norms = _norms(self._weights)

    def _after(self, _optimizer: Optimizer) -> None:
        if self._has_set_facts:
            return
        self._has_set_facts = True
        # An optimizer without state after an update keeps none, so none can be lost.
        keeps = any(map(_remembers, self._optimizers))
        self._tell(weight_norms=self._norms or None, optimizer_restored=self._remembered if keeps else None)

    def stop(self) -> None:
        """Stop observing updates."""
        for handle in self._handles:
            handle.remove()


class Collector:
    """All measurements of tensors, except those of the forward hooks.

    Attributes:
        plain: The fast path to the gradients of a plain step; None: there is none, or clipping needs what it leaves out.
    """

    def __init__(self, setup: Setup, observer: ForwardHooks, shards: Shards | None) -> None:
        options = setup.options
        self.parameters = parameters(setup.model)
        self.weights = distinct(self.parameters)
        self.optimizers, self.scaler = as_sequence(setup.optimizer), setup.scaler
        self._held, self._clips = optimized_parameters(self.optimizers), False
        self._access: TensorAccess = LocalTensors(self.weights) if shards is None else ShardedTensors(shards, setup.guard)
        is_usual = options.grad_of is None and shards is None and self.scaler is None
        plain = PlainGradients(self.parameters)
        self.plain = plain if is_usual and plain.is_usable else None
        self._guard, self._observer, self._options = setup.guard, observer, options
        self._parts = [tensor_part(name, tensor.shape, depth_of(name)) for name, tensor in self.parameters.items()]
        planner = BudgetPlanner(
            grids=options.grids,
            budget_kb=options.budget_kb,
            suffix=options.suffix or ".json",
            cadence=options.cadence,
            exact=options.exact,
            spectral=bool(options.spectral),
        )
        modules = module_parts(observer.modules)
        self._planner = planner if options.suffix else planner.choose_suffix(self._parts, observer.expected, modules)
        self.suffix = self._planner.suffix
        self._spectral = SpectralNorms(options.spectral)
        is_elsewhere = options.grad_of is not None or shards is not None or needs_other_ranks(setup.model)
        self._stale_gradients = StaleGradients(() if is_elsewhere else self.weights.values(), self.optimizers, setup.guard)
        self._resume_state: ResumeState | None = None

    @property
    def trainable(self) -> dict[str, Tensor]:
        """The trainable weights, shared ones once."""
        return {name: tensor for name, tensor in self.weights.items() if tensor.requires_grad}

    def has_scaler(self) -> bool:
        """Return whether a loss scaler is active."""
        return self.scaler is not None and self.scaler.is_enabled()

    def is_skipped(self, step_state: StepState) -> bool:
        """Return whether a loss scaler has skipped the update of an optimizer.

        If several optimizers take turns, some do not step: then the loss scale decides, which is lowered after an overflow.
        """
        if not self.has_scaler() or step_state.updates >= len(self.optimizers):
            return False
        return step_state.updates == 0 or step_state.loss_scale is None or float(self.scaler.get_scale()) < step_state.loss_scale

    def attach(self, step_state: StepState, *, after: StepState | None = None) -> None:
        """Observe the forward pass of this step, for a checkpoint or for vital signs.

        Args:
            step_state: The step to observe.
            after: The step before, if this one has not begun yet; only then its backward passes are observed, too.
        """
        if after is not None and after.updates >= len(self.optimizers) > 0:
            with self._guard("hooking the gradients"):
                self._stale_gradients.watch(step_state.step)
        if step_state.has_vitals:
            self._observer.attach_vitals(dead=step_state.step % DEAD_EVERY == 0)
        else:
            self._observer.attach(self._options.grids, self._planner.depths([*self._parts, *self._observer.parts], step_state))

    def read_for_clipping(self, step_state: StepState) -> tuple[list[Tensor], Tensor] | None:
        """Return all gradients and their norms, read again if any has changed; None if torch must take the norms.

        It must if the optimizers hold other parameters than at the start: iterating over the model at every step would take as
        long as all norms.
        """
        if self._options.grad_of is not None:
            return None
        self._clips, self.plain, gradients = True, None, self._gradients()
        if step_state.unread is None or self._access.changed(step_state.versions, gradients):
            # The recorded norm must be the one that clipping uses.
            self.read_gradients(step_state, "pre_clip", gradients=gradients, long=VERY_LONG_ELEMENTS)
        norms = step_state.unread.norms if step_state.unread else None
        if (
            norms is None
            or not self._held
            or optimized_parameters(self.optimizers) != self._held
            or norms.count != len(gradients)
        ):
            return None
        usable = norms.as_torch
        return None if usable is None else ([*gradients.values()], usable)

    def _gradients(self) -> dict[str, Tensor]:
        return existing_gradients(self.parameters, self._options.grad_of)

    def scaled_gradients(self) -> tuple[dict[str, Tensor], float]:
        """Return the gradients as they are in memory, and the loss scale that they contain."""
        return self._gradients(), loss_scale_left(self.scaler)

    def read_gradients(
        self,
        step_state: StepState,
        source: GradientsSource,
        clipping: Clipping | None = None,
        *,
        gradients: Mapping[str, Tensor] | None = None,
        long: int = LONG_ELEMENTS,
    ) -> None:
        """Take the norm of every gradient, and its statistics if a checkpoint is due.

        If the gradients are clipped already and the factor is known, all numbers are those before clipping.

        Args:
            step_state: The current step.
            source: Point in the step at which the gradients are read.
            clipping: The clipping that was applied before.
            gradients: The gradients; None: those of the model.
            long: The argument `long` of `take_norms`.
        """
        try:
            if gradients is None:
                gradients = existing_gradients(self.parameters, self._options.grad_of)
                step_state.versions = versions(gradients.values()) if self._clips else []
            self._read_gradients(step_state, source, clipping, gradients, long)
        finally:
            # The other ranks wait for this one, even if something has failed here.
            self._access.finish("gradients")

    def _read_gradients(
        self,
        step_state: StepState,
        source: GradientsSource,
        clipping: Clipping | None,
        gradients: Mapping[str, Tensor],
        long: int,
    ) -> None:
        start = perf_counter()
        step_state.source = source
        gradients, norms = self._access.norms(gradients, due=bool(step_state.triggers), long=long)
        at_hand = None if norms is None else norms.by_name(gradients)
        step_state.unread = unread = PendingStats(names=[*gradients], norms=norms, at_hand=at_hand)
        if self.scaler is not None and self.has_scaler():
            unread.scale, step_state.loss_scale = loss_scale_left(self.scaler), float(self.scaler.get_scale())
            step_state.rates = learning_rates(self.optimizers)  # a skipped update does not report its rates
        if clipping is not None:
            total = total_norm([*unread.norms_of().values()])
            coefficient = undone_clipping(clipping.max_norm, total, clipping.norm)
            step_state.source = "post_clip" if coefficient is None else "rescaled"
            unread.scale *= 1.0 if coefficient is None else coefficient
        if step_state.triggers:
            step_state.gradients = self._gradient_stats(step_state, gradients, unread.scale)
        step_state.seconds += perf_counter() - start

    @property
    def _grids(self) -> Literal["nested", "q8"] | None:
        """Encoding of grids; None: they are not written."""
        return None if self._options.grids == "none" else self._options.grids

    def _gradient_stats(self, step_state: StepState, gradients: Mapping[str, Tensor], scale: float) -> dict[str, GradientStats]:
        encoding, exact = self._grids, self._options.exact
        depths = self._planner.depths([*self._parts, *self._observer.parts], step_state)

        has_grid = {name for name in gradients if encoding and depth_of(name) in depths}
        cells = _cells_at_hand(gradients, has_grid)

        def inspect(name: str, gradient: Tensor, measured: WrittenStats) -> GradientStats:
            grid = encoding if name in has_grid else None
            return gradient_stats(gradient, measured=measured, grid=grid, cells=cells.get(name), scale=scale, exact=exact)

        return self._access.inspect("gradients", gradients, inspect, scale=scale)

    def join(self, start_step: int, set_session_facts: Callable[..., None]) -> None:
        """Begin, with the other ranks if needed; `set_session_facts` gets the state at the start of a resume."""
        self._access.join(start_step)
        if start_step:
            self._resume_state = ResumeState(self.weights, self.optimizers, self._guard, set_session_facts)

    def leave(self) -> None:
        """Stop observing, and issue no more collectives."""
        self._stale_gradients.stop()
        if self._resume_state is not None:
            self._resume_state.stop()
        self._access.leave()

    def finish_owed(self) -> None:
        """Do what the other ranks still wait for."""
        self._access.finish_owed()

    def reference(self, weights: Mapping[str, Tensor]) -> Reference:
        """Return a reference of the current weights."""
        return self._access.reference(weights)

    def keep_weights(self, step_state: StepState) -> None:
        """Copy the weights before the update if a checkpoint is due, or a sample for vital signs, unless done already."""
        if not step_state.is_watched:
            return
        start = perf_counter()
        if step_state.is_due and not step_state.before:
            step_state.before = self._access.keep(self.trainable)
            step_state.seconds += perf_counter() - start
        elif step_state.has_vitals and step_state.sample is None and self._access.sample is not None:
            step_state.sample = self._access.sample.take()
            step_state.seconds += perf_counter() - start

    def vitals(self, step_state: StepState) -> dict[str, Any]:
        """Return the vital signs of a step as log values."""
        self._note_stale_gradients(step_state)
        values = values_of(self._observer.detach_vitals())
        sample = self._access.sample
        moved = None if step_state.sample is None or sample is None else sample.moved(step_state.sample)
        return values if moved is None else values | {"update_to_weight": shorten(moved)}

    def fill(
        self, checkpoint: Checkpoint, step_state: StepState, seen: ForwardStats, reference: Reference | None
    ) -> dict[str, float | None]:
        """Fill the tensor sections, and return the checkpoint's derived scalars; a section that fails is absent."""
        derived: dict[str, float | None] = {"update_to_weight": None}
        self._note_stale_gradients(step_state)
        checkpoint.gradients = step_state.gradients or step_state.norms_only or UNSET
        checkpoint.activations = seen.activations or UNSET
        checkpoint.attention = seen.attention or UNSET
        checkpoint.moe = seen.moe or UNSET
        checkpoint.loss_function, checkpoint.loss_terms = seen.loss_function or UNSET, seen.loss_terms or UNSET
        plan = self._planner.fit(checkpoint, self._parts, step_state)
        reference = reference if step_state.step else None
        with self._guard("weights"):
            checkpoint.weights = self._weights(plan, reference) or UNSET
        with self._guard("weight_deltas"):
            before, step_state.before = step_state.before, {}  # overwritten with the differences, so usable only once
            moved = self._access.movement(self.trainable, before, reference, self.optimizers)
            deltas, derived["update_to_weight"] = moved
            for name, share in decay_shares(self.optimizers, self.trainable, step_state.rates).items():
                if name in deltas:
                    deltas[name].decay = shortest(share)
            for name, rate in rates_of_tensors(self.optimizers, self.trainable, step_state.rates).items():
                if name in deltas:
                    deltas[name].learning_rate = shortest(rate)
            checkpoint.weight_deltas = deltas or UNSET
        if self.optimizers and step_state.step:
            with self._guard("optimizer"):
                checkpoint.optimizer = self._optimizer(step_state)
        apply_plan(checkpoint, plan, self._parts, layer_parts(seen.attention))
        derived |= {"min_normalized_entropy": lowest(seen.entropies), **moe_scalars(seen.moe)}
        return {name: None if value is None else shorten(value) for name, value in derived.items()}

    def _note_stale_gradients(self, step_state: StepState) -> None:
        """Add the share of stale gradients from earlier steps to the log line, if it was measured."""
        with self._guard("gradients of earlier steps"):
            share = self._stale_gradients.share(step_state.step)
            step_state.note({"grad_carried_over": None if share is None else shorten(share)})
            step_state.seconds, self._stale_gradients.seconds = step_state.seconds + self._stale_gradients.seconds, 0.0

    def trim(self, checkpoint: Checkpoint, step_state: StepState) -> None:
        """Remove from a finished checkpoint what does not fit beside its black box."""
        plan = self._planner.fit(checkpoint, self._parts, step_state)
        apply_plan(checkpoint, plan, self._parts, layer_parts(checkpoint.attention or {}))

    def _weights(self, plan: BudgetPlan, reference: Reference | None) -> dict[str, WeightStats]:
        encoding, exact = self._grids, self._options.exact
        has_grid = {name for name in self.weights if encoding and plan.has("weights", name)}
        cells = _cells_at_hand(self.weights, has_grid)

        def inspect(name: str, tensor: Tensor, measured: WrittenStats) -> WeightStats:
            grid = encoding if name in has_grid else None
            spectral = self._spectral.measure({name: tensor}).get(name)
            return weight_stats(tensor, measured=measured, grid=grid, cells=cells.get(name), spectral=spectral, exact=exact)

        return self._access.inspect("weights", self.weights, inspect, reference=reference)

    def _optimizer(self, step_state: StepState) -> OptimizerState:
        finite = self._access.state_finite(self.optimizers)
        state = optimizer_state(self.optimizers, self.parameters, step_state.rates, finite=finite)
        clip = step_state.clip_norm if step_state.clip_norm is not None else self._options.clip_norm
        if clip is not None:
            state.clip_norm = shortest(clip)
        if clip is not None and step_state.global_norm is not None and step_state.source != "post_clip":
            state.clip_coefficient = shortest(clip_coefficient(clip, step_state.global_norm))
        if step_state.norm_at_update is not None:
            state.gradient_norm = encode_float(shorten(float(step_state.norm_at_update)))
        if step_state.loss_scale is not None:
            state.loss_scale, state.found_inf = shortest(step_state.loss_scale), self.is_skipped(step_state)
        return state


def _cells_at_hand(tensors: Mapping[str, Tensor], names: Container[str]) -> dict[str, Cells]:
    """Return the grid cells of tensors that this rank holds whole; those of sharded tensors are taken when gathered."""
    return sampled_cells({name: tensor for name, tensor in tensors.items() if name in names and not is_sharded(tensor)})


# State at the start of a resume: the norms of the weights, and whether the optimizer has state.
def _remembers(optimizer: Optimizer) -> bool:
    """Return whether an optimizer has state of any parameter from an earlier update."""
    return any(isinstance(value, Tensor | int | float) for state in optimizer.state.values() for value in state.values())


@torch.no_grad()
def _norms(weights: Mapping[str, Array]) -> dict[str, Number]:
    whole = {
        name: tensor
        for name, tensor in weights.items()
        if isinstance(tensor, Tensor) and not is_sharded(tensor) and tensor.numel()
    }
    norms = [torch.linalg.vector_norm(flat(tensor)) for tensor in whole.values()]
    values = torch.stack([tensor.cpu() for tensor in norms]).tolist() if norms else []
    return {name: encode_float(shorten(value)) for name, value in zip(whole, values, strict=True)}
