"""Writes the statistics of a training while it runs: `Recorder` for PyTorch, `Writer` for everything else."""

from typing import TYPE_CHECKING, Any

from ckaudit.optional import needed
from ckaudit.recorder.loop.triggers import EventThresholds

if TYPE_CHECKING:
    from ckaudit.recorder.recorder import Recorder
    from ckaudit.recorder.writer import Writer

__all__ = ["EventThresholds", "Recorder", "Writer"]

_HOMES = {"Recorder": "ckaudit.recorder.recorder", "Writer": "ckaudit.recorder.writer"}
_TRAINERS = ("huggingface", "lightning")  # `ckaudit.recorder.huggingface.RecorderCallback` needs no import of its module


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a writer must not need torch."""
    from importlib import import_module

    if name in _TRAINERS:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed(f"ckaudit.{name}", "torch"):
        return getattr(import_module(_HOMES[name]), name)
