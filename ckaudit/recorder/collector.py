"""Reads model, gradients and optimizers, and fills the sections of a checkpoint with what they show."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from msgspec import UNSET
from torch import Tensor, nn
from torch.optim import Optimizer

from ckaudit.contract.analysis import Checkpoint, GradientsSource
from ckaudit.contract.cadence import ordinal
from ckaudit.contract.grids import GridEncoding, depths_due, landmarks
from ckaudit.contract.manifest import Cadence
from ckaudit.contract.tensors import WeightStats
from ckaudit.contract.training import OptimizerState
from ckaudit.recorder.activations import matches
from ckaudit.recorder.attempt import Attempt, lowest
from ckaudit.recorder.gradients import gradient_stats, loss_scale_left, norms_of, present, versions
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.observer import Observer, Seen
from ckaudit.recorder.optimizers import clip_coefficient, learning_rates, optimizer_state
from ckaudit.recorder.reference import Reference
from ckaudit.recorder.table import depth_of, parameters, storage_of
from ckaudit.recorder.tensors import shorten, shortest
from ckaudit.recorder.weights import copies, movement, weight_stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How much is written: see `Recorder`."""

    grids: GridEncoding
    spectral: Sequence[str]
    exact: bool
    clip_norm: float | None
    cadence: Sequence[Cadence]


class Collector:
    """Everything that looks at a tensor, except the forward hooks, which are the observer's."""

    def __init__(
        self, model: nn.Module, held: tuple[Optimizer, ...], scaler: Any, guard: Guard, observer: Observer, options: Options
    ) -> None:
        self.parameters = parameters(model)
        self.optimizers, self.scaler = held, scaler
        self._guard, self._observer, self._options = guard, observer, options
        first = {storage_of(tensor): name for name, tensor in reversed(self.parameters.items())}
        self.weights = {name: tensor for name, tensor in self.parameters.items() if first[storage_of(tensor)] == name}

    @property
    def trainable(self) -> dict[str, Tensor]:
        """The weights that take a gradient now, shared ones once."""
        return {name: tensor for name, tensor in self.weights.items() if tensor.requires_grad}

    def has_scaler(self) -> bool:
        """Return whether a loss scaler is at work."""
        return self.scaler is not None and self.scaler.is_enabled()

    def attach(self, attempt: Attempt) -> None:
        """Look at the forward pass of this attempt."""
        self._observer.attach(self._options.grids, self._grid_depths(attempt))

    def gradients_changed(self, attempt: Attempt) -> bool:
        """Return whether any gradient was written to since the norms of this attempt were taken."""
        return attempt.versions != versions(present(self.parameters).values())

    def read_gradients(self, attempt: Attempt, source: GradientsSource) -> None:
        """Take the norm of every gradient, and its statistics where a checkpoint is due."""
        start = perf_counter()
        found = present(self.parameters)
        numbers, attempt.raw_norms = norms_of([*found.values()])
        attempt.versions = versions(found.values())
        scale = loss_scale_left(self.scaler)
        attempt.norms = {name: norm / scale for name, norm in zip(found, numbers, strict=True)}
        attempt.source = source
        attempt.rates = learning_rates(self.optimizers)
        attempt.loss_scale = float(self.scaler.get_scale()) if self.has_scaler() else None
        if attempt.is_due:
            exact = self._options.exact
            attempt.gradients = {name: gradient_stats(gradient, scale=scale, exact=exact) for name, gradient in found.items()}
        attempt.seconds += perf_counter() - start

    def keep_weights(self, attempt: Attempt) -> None:
        """Copy the weights before the update, where a checkpoint is due and they were not copied yet."""
        if attempt.is_due and not attempt.before:
            start = perf_counter()
            attempt.before = copies(self.trainable)
            attempt.seconds += perf_counter() - start

    def fill(self, checkpoint: Checkpoint, attempt: Attempt, seen: Seen, reference: Reference | None) -> dict[str, float | None]:
        """Fill the sections of tensors, and return the checkpoint's derived scalars; one that fails stays absent."""
        derived: dict[str, float | None] = {"update_to_weight": None}
        with self._guard("weights"):
            checkpoint.weights = self._weights(attempt)
        with self._guard("weight_deltas"):
            deltas, derived["update_to_weight"] = movement(self.trainable, attempt.before, reference if attempt.step else None)
            checkpoint.weight_deltas = deltas or UNSET
        if self.optimizers and attempt.step:
            with self._guard("optimizer"):
                checkpoint.optimizer = self._optimizer(attempt)
        checkpoint.gradients = attempt.gradients or attempt.norms_only or UNSET
        checkpoint.activations = seen.activations or UNSET
        checkpoint.attention = seen.attention or UNSET
        checkpoint.left_out = self._left_out(attempt, with_attention=bool(seen.attention)) or UNSET
        derived["min_normalized_entropy"] = lowest(seen.entropies)
        return {name: None if value is None else shorten(value) for name, value in derived.items()}

    def _weights(self, attempt: Attempt) -> dict[str, WeightStats]:
        encoding, depths = self._options.grids, self._grid_depths(attempt)
        return {
            name: weight_stats(
                tensor,
                grid=encoding if encoding != "none" and depth_of(name) in depths else None,
                spectral=matches(name, self._options.spectral),
                exact=self._options.exact,
            )
            for name, tensor in self.weights.items()
        }

    def _optimizer(self, attempt: Attempt) -> OptimizerState:
        state = optimizer_state(self.optimizers, self.parameters, attempt.rates)
        clip = attempt.clip_norm if attempt.clip_norm is not None else self._options.clip_norm
        if clip is not None:
            state.clip_norm = shortest(clip)
        if clip is not None and attempt.global_norm is not None and attempt.source == "pre_clip":
            state.clip_coefficient = shortest(clip_coefficient(clip, attempt.global_norm))
        if attempt.loss_scale is not None:
            state.loss_scale, state.found_inf = shortest(attempt.loss_scale), attempt.updates < len(self.optimizers)
        return state

    def _grid_depths(self, attempt: Attempt) -> frozenset[int | None]:
        depths = [*map(depth_of, self.weights), *self._observer.depths]
        if not depths:
            return frozenset()
        due = depths_due(ordinal(attempt.step, self._options.cadence), depths)
        return due | landmarks(depths) if "last" in attempt.triggers else due

    def _left_out(self, attempt: Attempt, *, with_attention: bool) -> list[str]:
        if self._options.grids != "none" and self._grid_depths(attempt) >= set(map(depth_of, self.weights)):
            return []
        attention = ["attention.*.sampled_qk_grid_32x32_per_head"] if with_attention else []
        return ["weights.*.sampled_grid_32x32", *attention]
