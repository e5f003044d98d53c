"""Plans which parts of a checkpoint fit into its budget of bytes."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ckaudit.contract.budget import BudgetPlan, bytes_for_black_box, grids_due, plan, suffix_for
from ckaudit.contract.cadence import ordinal
from ckaudit.contract.io.codec import encode
from ckaudit.contract.io.grids import GridEncoding
from ckaudit.contract.schema.checkpoint import AttentionStats, Checkpoint, History
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.contract.schema.tensor_names import depth_of
from ckaudit.contract.sizes import SIZES, WEIGHTS_ONLY, SizedPart, Sizes, with_extra_numbers
from ckaudit.recorder.loop.step_state import StepState


class BudgetPlanner(Struct, frozen=True, kw_only=True):
    """Plan of how a run is written.

    Attributes:
        grids: Encoding of grids, if they are written.
        budget_kb: Size of a checkpoint file, in thousands of bytes; None: everything in every checkpoint.
        suffix: File suffix, which says how files are compressed.
        cadence: When checkpoints are due.
        exact: Whether each tensor carries a hash of its bytes.
        spectral: Whether the largest singular value of weights is measured.
    """

    grids: GridEncoding
    budget_kb: float | None
    suffix: str
    cadence: Sequence[Cadence]
    exact: bool = False
    spectral: bool = False

    def choose_suffix(
        self, tensors: Sequence[SizedPart], layers: Sequence[SizedPart], modules: Sequence[SizedPart]
    ) -> "BudgetPlanner":
        """Return this planner with a file suffix that suits the budget."""
        sizes = with_extra_numbers(SIZES, exact=self.exact, spectral=self.spectral)
        suffix = suffix_for(tensors, layers, modules, self.budget_kb, encoding=self.grids, sizes=sizes)
        return replace(self, suffix=suffix)

    def depths(self, parts: Sequence[SizedPart], step_state: StepState) -> frozenset[int | None]:
        """Return the block depths that may have grids, perhaps more if the number of heads is not known yet."""
        if self.grids == "none":
            return frozenset()
        if self.budget_kb is None:
            return frozenset(part.depth for part in parts)
        return grids_due(parts, self._ordinal(step_state), last="last" in step_state.triggers).depths

    def plan(
        self,
        tensors: Sequence[SizedPart],
        layers: Sequence[SizedPart],
        modules: Sequence[SizedPart],
        step_state: StepState,
        besides: int = 0,
        experts: int = 0,
    ) -> BudgetPlan:
        """Return what the checkpoint of a step contains; `besides` is the size of its black box, `experts` of its routing."""
        return plan(
            tensors,
            layers,
            modules,
            self._ordinal(step_state),
            self.budget_kb,
            encoding=self.grids,
            suffix=self.suffix,
            last="last" in step_state.triggers,
            besides=besides,
            sizes=self._sizes(step_state, experts),
        )

    def fit(self, checkpoint: Checkpoint, tensors: Sequence[SizedPart], step_state: StepState) -> BudgetPlan:
        """Return what a checkpoint contains whose other sections are filled; a black box that is too long is shortened."""
        layers, modules = layer_parts(checkpoint.attention or {}), module_parts(checkpoint.activations or {})
        experts = len(encode(checkpoint.moe)) if checkpoint.moe else 0
        if checkpoint.history is UNSET:
            return self.plan(tensors, layers, modules, step_state, experts=experts)
        max_bytes = bytes_for_black_box(
            tensors,
            layers,
            modules,
            self._ordinal(step_state),
            self.budget_kb,
            encoding=self.grids,
            suffix=self.suffix,
            sizes=self._sizes(step_state, experts),
        )
        whole, checkpoint.history = checkpoint.history, newest_that_fit(checkpoint.history, max_bytes)
        if len(checkpoint.history.steps) < len(whole.steps):
            checkpoint.left_out = [*(checkpoint.left_out or []), "history.steps"]
        return self.plan(tensors, layers, modules, step_state, len(encode(checkpoint.history)), experts)

    def _sizes(self, step_state: StepState, experts: int) -> Sizes:
        sizes = with_extra_numbers(SIZES if step_state.step else WEIGHTS_ONLY, exact=self.exact, spectral=self.spectral)
        return replace(sizes, rest=sizes.rest + experts)

    def _ordinal(self, step_state: StepState) -> int:
        return ordinal(step_state.step, self.cadence)


def layer_parts(attention: dict[str, AttentionStats]) -> list[SizedPart]:
    """Return the attention layers as parts."""
    return [
        SizedPart(name, depth_of(name), stats.heads or 0, is_causal=stats.causal is True) for name, stats in attention.items()
    ]


def module_parts(activations: Iterable[str]) -> list[SizedPart]:
    """Return the measured modules as parts."""
    return [SizedPart(name, depth_of(name)) for name in activations]


def newest_that_fit(history: History, room: float, *, at_least: int = 8) -> History:
    """Return the newest steps of a black box that fit into `room` bytes of JSON.

    Args:
        history: All steps.
        room: Bytes.
        at_least: Steps that are kept in any case, enough to show what preceded an event.
    """
    size, names, steps = len(encode(history)), len(encode(_newest(history, 0))), len(history.steps)
    if size <= room:
        return history
    return _newest(history, min(steps, max(at_least, int(steps * (room - names) / (size - names)))))


def _newest(history: History, count: int) -> History:
    """Return the last steps; a tensor without a value in them has no column."""
    start = len(history.steps) - count

    def cut(column: Any) -> Any:
        if not isinstance(column, dict):
            return column if column is UNSET else column[start:]
        shorter = {name: values[start:] for name, values in column.items()}
        return {name: values for name, values in shorter.items() if set(values) != {None}} or UNSET

    return History(**{name: cut(getattr(history, name)) for name in History.__struct_fields__})
