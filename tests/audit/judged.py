"""What is said of the runs and logs in fixtures, which no test changes: each is read and judged once."""

from functools import cache
from pathlib import Path
from typing import Any

from ckaudit.audit import engine
from ckaudit.audit.coverage import recorded
from ckaudit.audit.coverage.table import Coverage
from ckaudit.contract.schema.report import Report

FIXTURES = Path(__file__).parents[2] / "fixtures"


def coverage(path: Path, **more: Any) -> Coverage:
    """Return what `ckaudit coverage` says of a run or a log."""
    return _coverage(path) if path.is_relative_to(FIXTURES) and not more else recorded.coverage(path, **more)


def triage(path: Path, **more: Any) -> Report:
    """Return what `ckaudit triage` says of a run or a log."""
    return _triage(path, **more) if path.is_relative_to(FIXTURES) else engine.triage(path, **more)


_coverage = cache(recorded.coverage)
_triage = cache(engine.triage)
