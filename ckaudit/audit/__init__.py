"""The engine: a run goes in, a report comes out."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckaudit.audit.engine import triage, triage_run

__all__ = ["triage", "triage_run"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, because measuring a run needs no rules and no causes."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ckaudit.audit import engine

    return getattr(engine, name)
