"""Writes the statistics of a PyTorch training while it runs: `from ckaudit.recorder import Recorder`."""

from ckaudit.recorder.recorder import Recorder
from ckaudit.recorder.triggers import Limits

__all__ = ["Limits", "Recorder"]
