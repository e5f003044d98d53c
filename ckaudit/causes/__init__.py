"""The catalogue of causes: one file per hypothesis; only causes know a knob."""

from ckaudit.causes.cause import Cause, Findings, cause, causes, contradicts, supports

__all__ = ["Cause", "Findings", "cause", "causes", "contradicts", "supports"]
