"""What a recorder is started with."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from torch import Tensor, nn

from ckaudit.contract.io.grids import GridEncoding
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.loop.triggers import Limits


class Options(Struct, frozen=True, kw_only=True):
    """How much is written: see `Recorder`."""

    grids: GridEncoding
    spectral: Sequence[str]
    exact: bool
    clip_norm: float | None
    cadence: Sequence[Cadence]
    budget_kb: float | None
    suffix: str | None
    grad_of: Callable[[nn.Parameter], Tensor | None] | None = None


class Setup(Struct, frozen=True, kw_only=True):
    """The same on every rank; see `Recorder` for what is not said here.

    Attributes:
        model: The model without wrappers.
        path: The run folder.
        guard: Keeps failures away from the training.
        optimizer: None, one or several.
        scaler: The loss scaler, if any.
        start_step: Update attempts already finished.
        limits: When an event asks for a checkpoint.
        options: How much is written.
        observe: What the forward hooks look at: the keyword arguments of `Observer`.
        facts: Facts of `run.json`.
    """

    model: nn.Module
    path: Path
    guard: Guard
    optimizer: Any
    scaler: Any
    start_step: int
    limits: Limits
    options: Options
    observe: Mapping[str, Any]
    facts: Mapping[str, Any]

    @property
    def is_hookable(self) -> bool:
        """Whether the model itself may be hooked."""
        return "" in self.observe["hookable"]
