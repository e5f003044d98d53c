"""Fills the sections of a checkpoint from NumPy arrays."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET, Struct, field
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from ckaudit.contract.budget import BudgetPlan, apply_plan
from ckaudit.contract.schema.checkpoint import ActivationStats, AttentionStats, Checkpoint, GradientStats, WeightStats
from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.contract.schema.tensor_names import depth_of, kind_by_name
from ckaudit.contract.sizes import SizedPart, tensor_part
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.loop.step_state import StepState, lowest
from ckaudit.recorder.model.budget_planner import BudgetPlanner, layer_parts, module_parts
from ckaudit.recorder.model.weight_movement import Reference, movement
from ckaudit.recorder.stats.activation_stats import activation_stats, note
from ckaudit.recorder.stats.arrays import dtype_name
from ckaudit.recorder.stats.attention_stats import attention_stats, max_logits
from ckaudit.recorder.stats.batched_stats import measure
from ckaudit.recorder.stats.float32_rounding import shorten, shortest
from ckaudit.recorder.stats.quantiles import stride_of
from ckaudit.recorder.stats.tensor_stats import SpectralNorms, gradient_stats, weight_stats

Arrays: TypeAlias = Mapping[str, ArrayLike]
Held: TypeAlias = dict[str, NDArray[Any]]


class SectionOptions(Struct, frozen=True, kw_only=True):
    """Settings for what is written, and how much; see `Writer`."""

    causal: bool | None
    hidden: Sequence[str]
    spectral: Sequence[str]
    exact: bool


class GivenArrays(Struct, frozen=True, kw_only=True):
    """Arrays of one step, by name; see `Writer.checkpoint`."""

    weights: Held = field(default_factory=dict)
    gradients: Held = field(default_factory=dict)
    previous: Held = field(default_factory=dict)
    activations: Held = field(default_factory=dict)
    attention: dict[str, tuple[NDArray[Any], NDArray[Any] | None]] = field(default_factory=dict)


class SectionWriter:
    """Reads arrays and fills the sections of a checkpoint from them.

    Args:
        guard: Isolates a failing section from the others.
        facts: Facts of tensors besides their arrays.
        options: How much is written.
        planner: Plans what fits into the budget.
    """

    def __init__(self, guard: Guard, facts: Mapping[str, TensorFacts], options: SectionOptions, planner: BudgetPlanner) -> None:
        self._guard, self._facts, self._options = guard, facts, options
        self._spectral = SpectralNorms(options.spectral)
        self._planner = replace(planner, exact=options.exact, spectral=bool(options.spectral))

    def fill(
        self, checkpoint: Checkpoint, step_state: StepState, given: GivenArrays, reference: Reference | None
    ) -> dict[str, float | None]:
        """Fill the tensor sections, and return the checkpoint's derived scalars; a section that fails is absent."""
        derived: dict[str, float | None] = {"update_to_weight": None, "min_normalized_entropy": None}
        tensors = [self._part(name, array) for name, array in (given.gradients | given.weights).items()]
        layers = [SizedPart(layer, depth_of(layer), 1) for layer in given.attention]
        depths = self._planner.depths([*tensors, *layers], step_state)
        # A corrupt array gives NaN, which the file should show.
        with np.errstate(all="ignore"):
            with self._guard("activations"):
                checkpoint.activations = self._activations(given.activations) or UNSET
            with self._guard("attention"):
                checkpoint.attention, entropies = self._attention(given, depths)
                derived["min_normalized_entropy"] = lowest(entropies)
            layers, modules = layer_parts(checkpoint.attention or {}), module_parts(checkpoint.activations or {})
            plan = self._planner.plan(tensors, layers, modules, step_state)
            with self._guard("gradients"):
                checkpoint.gradients = self._gradients(given.gradients, plan) or UNSET
                step_state.take({name: float(stats.norm or 0.0) for name, stats in (checkpoint.gradients or {}).items()})
            with self._guard("weights"):
                checkpoint.weights = self._weights(given.weights, plan) or UNSET
            with self._guard("weight_deltas"):
                deltas, derived["update_to_weight"] = movement(given.weights, given.previous, reference)
                checkpoint.weight_deltas = deltas or UNSET
            apply_plan(checkpoint, plan, tensors, layers)
        return {name: None if value is None else shorten(value) for name, value in derived.items()}

    def choose_suffix(self, weights: Held) -> str:
        """Return the file suffix for a run with these weights, and plan for it from now on."""
        tensors = [self._part(name, array) for name, array in weights.items()]
        self._planner = self._planner.choose_suffix(tensors, [], [])
        return self._planner.suffix

    def _part(self, name: str, array: NDArray[Any]) -> SizedPart:
        facts = self._facts.get(name)
        return tensor_part(name, array.shape, facts.depth if facts is not None and facts.depth is not UNSET else depth_of(name))

    def _grid(self, planned: bool) -> Literal["nested", "q8"] | None:
        return self._planner.grids if planned and self._planner.grids != "none" else None

    def _weights(self, weights: Held, plan: BudgetPlan) -> dict[str, WeightStats]:
        singular = self._spectral.measure(weights)
        return {
            name: weight_stats(
                array,
                measured=measured,
                grid=self._grid(plan.has("weights", name)),
                spectral=singular.get(name),
                exact=self._options.exact,
            )
            for (name, array), measured in zip(weights.items(), measure([*weights.values()]), strict=True)
        }

    def _gradients(self, gradients: Held, plan: BudgetPlan) -> dict[str, GradientStats]:
        return {
            name: gradient_stats(
                array, measured=measured, grid=self._grid(plan.has("gradients", name)), exact=self._options.exact
            )
            for (name, array), measured in zip(gradients.items(), measure([*gradients.values()]), strict=True)
        }

    def _activations(self, activations: Held) -> dict[str, ActivationStats]:
        hidden = self._options.hidden
        outputs = [
            note(array, count_dead=any(fnmatchcase(name, pattern) for pattern in hidden)) for name, array in activations.items()
        ]
        return dict(zip(activations, activation_stats(outputs), strict=True))

    def _attention(self, given: GivenArrays, depths: frozenset[int | None]) -> tuple[dict[str, AttentionStats], list[float]]:
        stats, entropies = {}, []
        for layer, (probabilities, logits) in given.attention.items():
            grid = self._grid(depth_of(layer) in depths)
            stats[layer], lowest_entropy = attention_stats(probabilities, causal=self._options.causal, grid=grid)
            if logits is not None:
                stats[layer].max_logit_per_head = [shortest(value) for value in max_logits(logits)]
            entropies += [] if lowest_entropy is None else [lowest_entropy]
        return stats, entropies


def array_measurements(arrays: Arrays | None) -> Held:
    """Return arrays of any library as NumPy's."""
    return {name: np.asarray(array) for name, array in (arrays or {}).items()}


def attention_measurements(attention: Mapping[str, Any] | None) -> dict[str, tuple[NDArray[Any], NDArray[Any] | None]]:
    """Return each layer's probabilities, and its logits if they were given."""
    pairs = {layer: given if isinstance(given, tuple | list) else (given, None) for layer, given in (attention or {}).items()}
    return {layer: (np.asarray(p), None if logits is None else np.asarray(logits)) for layer, (p, logits) in pairs.items()}


def given_facts(tensors: Mapping[str, Mapping[str, Any]], guard: Guard) -> dict[str, TensorFacts]:
    """Return the facts of tensors that the caller gave; invalid ones are left out and counted."""
    known = {}
    for name, facts in tensors.items():
        with guard(f"the facts of {name}"):
            known[name] = msgspec.convert(dict(facts), TensorFacts)
    return known


def tensor_table(weights: Held, facts: Mapping[str, TensorFacts]) -> dict[str, TensorFacts]:
    """Return the facts of every tensor in the order of the weights: the given ones, others from name and array."""
    table = {}
    for name, array in weights.items():
        known = facts.get(name, TensorFacts())
        tensor_facts = TensorFacts(
            depth=UNSET if (depth := depth_of(name)) is None else depth,
            kind=kind_by_name(name, array.shape),
            module=name.rpartition(".")[0],
            shape=list(array.shape),
            dtype=dtype_name(array),
            stride=stride_of(array.shape),
        )
        given = {field: value for field, value in msgspec.structs.asdict(known).items() if value is not UNSET}
        table[name] = msgspec.structs.replace(tensor_facts, **given)
    return table
