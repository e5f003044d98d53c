"""Audits neural-network training runs from the statistics they wrote."""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckaudit.alarm import LogHandler, Watch
    from ckaudit.api import Audit, Difference, FleetAudit, Metrics, assert_healthy, diff, fleet, gate, metrics, triage, validate
    from ckaudit.errors import UnhealthyRunError
    from ckaudit.recorder import Recorder, Writer
    from ckaudit.run.read import read_run

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "Difference",
    "FleetAudit",
    "LogHandler",
    "Metrics",
    "Recorder",
    "UnhealthyRunError",
    "Watch",
    "Writer",
    "__version__",
    "assert_healthy",
    "diff",
    "fleet",
    "gate",
    "metrics",
    "read_run",
    "triage",
    "validate",
]

_HOMES = {name: "ckaudit.api" for name in __all__ if name != "__version__"} | {
    "LogHandler": "ckaudit.alarm",
    "Recorder": "ckaudit.recorder",
    "UnhealthyRunError": "ckaudit.errors",
    "Watch": "ckaudit.alarm",
    "Writer": "ckaudit.recorder",
    "read_run": "ckaudit.run.read",
}


if not TYPE_CHECKING:  # a type checker would otherwise accept any name as existing

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first asked for: the auditor must start fast, and without torch."""
        from importlib import import_module

        if name == "recorder":  # `ckaudit.recorder.huggingface.RecorderCallback`, as the advice spells it
            return import_module("ckaudit.recorder")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


class _Command(ModuleType):
    """A package named after a command, callable as that command: `ckaudit.diff(a, b)` beside `ckaudit.diff.align`."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the command as defined in ckaudit.api."""
        from importlib import import_module

        return getattr(import_module("ckaudit.api"), self.__name__.removeprefix("ckaudit."))(*given, **named)


class _Package(ModuleType):
    """The class of this package; importing a subpackage makes Python set it here as an attribute."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Keep a value, and make it callable if it is the package of a command."""
        if name in ("diff", "fleet", "metrics", "validate") and isinstance(value, ModuleType):
            value.__class__ = _Command
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
