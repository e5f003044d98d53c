"""Asks the budget what the checkpoint of an attempt may hold."""

from collections.abc import Iterable, Sequence

from msgspec import UNSET, Struct

from ckaudit.contract.analysis import Checkpoint
from ckaudit.contract.behaviour import AttentionStats
from ckaudit.contract.budget import Plan, due, plan, room
from ckaudit.contract.cadence import ordinal
from ckaudit.contract.encode import encode
from ckaudit.contract.grids import GridEncoding
from ckaudit.contract.manifest import Cadence
from ckaudit.contract.sizes import Part
from ckaudit.recorder.attempt import Attempt
from ckaudit.recorder.history import fitted
from ckaudit.recorder.names import depth_of


class Planner(Struct, frozen=True, kw_only=True):
    """How a run is to be written.

    Attributes:
        grids: How grids are written, if at all.
        budget_kb: Size of a checkpoint file, in thousands of bytes; None: everything in every checkpoint.
        suffix: How files are packed.
        cadence: When checkpoints are due.
    """

    grids: GridEncoding
    budget_kb: float | None
    suffix: str
    cadence: Sequence[Cadence]

    def depths(self, parts: Sequence[Part], attempt: Attempt) -> frozenset[int | None]:
        """Return the depths that may have grids, and perhaps more where heads are not known yet."""
        if self.grids == "none":
            return frozenset()
        if self.budget_kb is None:
            return frozenset(part.depth for part in parts)
        return due(parts, self._ordinal(attempt), last="last" in attempt.triggers).depths

    def plan(
        self, tensors: Sequence[Part], layers: Sequence[Part], modules: Sequence[Part], attempt: Attempt, besides: int = 0
    ) -> Plan:
        """Return what the checkpoint of an attempt holds; `besides` are the bytes of its black box."""
        return plan(
            tensors,
            layers,
            modules,
            self._ordinal(attempt),
            self.budget_kb,
            encoding=self.grids,
            suffix=self.suffix,
            last="last" in attempt.triggers,
            besides=besides,
        )

    def fit(self, checkpoint: Checkpoint, tensors: Sequence[Part], attempt: Attempt) -> Plan:
        """Return what a checkpoint holds whose other sections are there; its black box is shortened where it is too long."""
        layers, modules = layer_parts(checkpoint.attention or {}), module_parts(checkpoint.activations or {})
        if checkpoint.history is UNSET:
            return self.plan(tensors, layers, modules, attempt)
        ordinal = self._ordinal(attempt)
        most = room(tensors, layers, modules, ordinal, self.budget_kb, encoding=self.grids, suffix=self.suffix)
        whole, checkpoint.history = checkpoint.history, fitted(checkpoint.history, most)
        if len(checkpoint.history.steps) < len(whole.steps):
            checkpoint.left_out = ["history.steps"]
        return self.plan(tensors, layers, modules, attempt, len(encode(checkpoint.history)))

    def _ordinal(self, attempt: Attempt) -> int:
        return ordinal(attempt.step, self.cadence)


def layer_parts(attention: dict[str, AttentionStats]) -> list[Part]:
    """Return the attention layers as parts."""
    return [Part(name, depth_of(name), stats.heads or 0, is_causal=stats.causal is True) for name, stats in attention.items()]


def module_parts(activations: Iterable[str]) -> list[Part]:
    """Return the measured modules as parts."""
    return [Part(name, depth_of(name)) for name in activations]
