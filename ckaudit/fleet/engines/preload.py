"""All that an audit loads, loaded by being imported: processes that are forked from one that has it have it too."""

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
    """Have no later search for garbage look through what is loaded, once a process: it takes as long as a small run."""
    gc.collect()
    gc.freeze()
