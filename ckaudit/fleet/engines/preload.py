"""Imports everything that an audit needs, so that processes forked from one with this module have it loaded."""

import gc
from functools import cache

from ckaudit.audit.engine import triage_reads
from ckaudit.causes import causes
from ckaudit.fleet.audit_run import audit_run
from ckaudit.questions import questions
from ckaudit.rules import rules
from ckaudit.run.column_builder import decoder

CATALOGUES = (rules(), causes(), questions(), decoder(triage_reads()))
__all__ = ["CATALOGUES", "audit_run", "forget_garbage"]


@cache
def forget_garbage() -> None:
    """Exclude loaded objects from garbage collection, once per process: scanning them takes as long as a small run."""
    gc.collect()
    gc.freeze()
