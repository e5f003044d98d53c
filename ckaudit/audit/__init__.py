"""The engine: a run goes in, a report comes out."""

from ckaudit.audit.report import triage, triage_run

__all__ = ["triage", "triage_run"]
