"""The settings that a recorder is started with."""

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
    """Settings of what is written, and how much: see `Recorder`."""

    grids: GridEncoding
    spectral: Sequence[str]
    exact: bool
    clip_norm: float | None
    cadence: Sequence[Cadence]
    budget_kb: float | None
    suffix: str | None
    grad_of: Callable[[nn.Parameter], Tensor | None] | None = None


class HookOptions(Struct, frozen=True, kw_only=True):
    """Settings of the forward hooks: what they look at.

    Attributes:
        modules: Glob patterns of modules whose outputs are measured; None: the default choice.
        probabilities: Glob patterns of modules that put out attention probabilities (B, H, Q, K).
        logits: The same for the logits before softmax.
        queries: Queries of each sequence at which other attention is computed again; 0: it is not looked at.
        causal: Whether a query must not see later keys; None: look.
        kv_heads: Key and value heads of each layer, where queries share them.
        routers: Glob patterns of modules that put out the logits of experts.
        experts_per_token: Experts of each token; None: ask router and model.
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
    """The same on every rank; see `Recorder` for what is not said here.

    Attributes:
        model: The model without wrappers.
        path: The run folder.
        address: Where its files go from there, if they do.
        guard: Keeps failures away from the training.
        optimizer: None, one or several.
        scaler: The loss scaler, if any.
        start_step: Update attempts already finished.
        limits: When an event asks for a checkpoint.
        options: How much is written.
        hooks: What the forward hooks look at.
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
