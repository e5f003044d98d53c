"""Recorded pairs, which no test changes: each is read and judged once by all comparisons of a process."""

from importlib import import_module
from pathlib import Path

import pytest

from ckaudit.audit import engine

compare = import_module("ckaudit.diff.compare")
FIXTURES = Path(__file__).parents[2] / "fixtures"
JUDGED = {}


@pytest.fixture(autouse=True)
def judged_once(monkeypatch):
    """Have what is read from fixtures/ stay in memory, but where a test watches the reading or wants a policy."""
    opened, reader = compare._opened, engine.open_run

    def remembered(path, import_options, step, progress, criteria):
        is_kept = path.absolute().is_relative_to(FIXTURES)
        if not is_kept or criteria != compare.OPEN or engine.open_run is not reader:
            return opened(path, import_options, step, progress, criteria)
        key = str(path), Path.cwd(), repr(import_options), step
        if key not in JUDGED:
            JUDGED[key] = opened(path, import_options, step, progress, criteria)
        return JUDGED[key]

    monkeypatch.setattr(compare, "_opened", remembered)
