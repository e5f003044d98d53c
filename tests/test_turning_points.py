"""Where the verdicts of all rules, and the evidence of all causes, turn: as it was when it was last read."""

from pathlib import Path

import pytest

from tests import case_verdicts
from tests.case_verdicts import TURNING_POINTS, turning_points_of

HERE = Path(__file__).parent
RULES, CAUSES = (sorted((HERE / room).glob("*.toml")) for room in ("rules", "causes"))


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_a_rule_turns_where_it_did(path: Path) -> None:
    known = (TURNING_POINTS / "rules" / f"{path.stem}.txt").read_text(encoding="utf-8")
    assert turning_points_of(path) == known, case_verdicts.__doc__


@pytest.mark.parametrize("path", CAUSES, ids=lambda path: path.stem)
def test_a_cause_turns_where_it_did(path: Path) -> None:
    known = (TURNING_POINTS / "causes" / f"{path.stem}.txt").read_text(encoding="utf-8")
    assert turning_points_of(path) == known, case_verdicts.__doc__
