"""The settings of a recorder at its start."""

from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from torch import Tensor, nn

from ckaudit.contract.io.grids import GridEncoding
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.loop.triggers import EventThresholds


class RecordingOptions(Struct, frozen=True, kw_only=True):
    """Settings for what is written, and how much; see `Recorder`."""

    grids: GridEncoding
    spectral: Sequence[str]
    exact: bool
    clip_norm: float | None
    cadence: Sequence[Cadence]
    budget_kb: float | None
    suffix: str | None
    grad_of: Callable[[nn.Parameter], Tensor | None] | None = None


class HookOptions(Struct, frozen=True, kw_only=True):
    """Settings for what the forward hooks measure.

    Attributes:
        modules: Glob patterns of modules whose outputs are measured; None: the default choice.
        probabilities: Glob patterns of modules that output attention probabilities (B, H, Q, K).
        logits: The same for the logits before softmax.
        queries: Queries per sequence for which other attention is recomputed; 0: it is not measured.
        causal: Whether a query must not see later keys; None: detect it.
        kv_heads: Number of key and value heads per layer, if query heads share them.
        routers: Glob patterns of modules that output the logits of experts.
        experts_per_token: Experts per token; None: take it from router or model.
        hookable: Names of the modules that may be hooked.
    """

    modules: Sequence[str] | None
    probabilities: Sequence[str]
    logits: Sequence[str]
    queries: int
    causal: bool | None
    kv_heads: int | None
    routers: Sequence[str]
    experts_per_token: int | None
    hookable: Container[str]


class Setup(Struct, frozen=True, kw_only=True):
    """Arguments of a recorder, the same on every rank; see `Recorder` for details.

    Attributes:
        model: The model without wrappers.
        path: The run folder.
        address: Address that its files are uploaded to, if any.
        guard: Keeps failures away from the training.
        optimizer: None, one or several.
        scaler: The loss scaler, if any.
        start_step: Update attempts already finished.
        limits: When an event triggers a checkpoint.
        options: How much is written.
        hooks: What the forward hooks measure.
        facts: Facts of `run.json`.
    """

    model: nn.Module
    path: Path
    guard: Guard
    optimizer: Any
    scaler: Any
    start_step: int
    limits: EventThresholds
    options: RecordingOptions
    hooks: HookOptions
    facts: Mapping[str, Any]
    address: str | None = None

    @property
    def is_hookable(self) -> bool:
        """Whether the model itself may be hooked."""
        return "" in self.hooks.hookable
