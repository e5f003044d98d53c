"""Audits neural-network training runs from the statistics they wrote."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckaudit.audit import triage
    from ckaudit.recorder import Recorder, Writer
    from ckaudit.run.read import read_run
    from ckaudit.validate import validate

__version__ = "0.1.0"

__all__ = ["Recorder", "Writer", "__version__", "read_run", "triage", "validate"]

_HOMES = {
    "Recorder": "ckaudit.recorder",
    "Writer": "ckaudit.recorder",
    "read_run": "ckaudit.run.read",
    "triage": "ckaudit.audit",
    "validate": "ckaudit.validate",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: the auditor must start fast, and without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
