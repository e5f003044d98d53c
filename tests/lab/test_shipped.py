"""The recordings of the lab that are shipped: of today's changes, small, and judged without their names."""

from pathlib import Path

import pytest

from ckaudit.lab import archive
from ckaudit.lab.cache import cached_training
from ckaudit.lab.drill.bundle import OWN, USER_FACTS
from ckaudit.lab.score.score import score
from ckaudit.lab.training_spec import recipe
from tests.lab.test_anonymous import disguised, verdicts

SHIPPED = Path(__file__).parents[2] / "fixtures" / "lab"
ENTRIES = sorted(path.name.removesuffix(".tar.zst") for path in SHIPPED.glob("*.tar.zst"))
MAX_BYTES = 250_000
IN_RUNS = {"healthy.0", "lr_too_high.0", "nan_inject.0", "no_warmup.0", "overfit_tiny.0", "zero_proj.0"}
"""Of these fixtures/runs has one that is judged in disguise too."""


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_shipped_recording_is_of_today_and_small(entry: str) -> None:
    name, _, seed = entry.rpartition(".")
    found = cached_training(SHIPPED, recipe(name, int(seed)))
    again = f"ckaudit lab record --fresh --cache fixtures/lab --only {entry} --split both"
    assert found.usable, f"{found.state}: {found.why}; {again}"
    assert found.path.stat().st_size <= MAX_BYTES


@pytest.mark.parametrize("entry", sorted({*ENTRIES} - IN_RUNS))
def test_a_shipped_recording_is_judged_by_what_any_run_has(entry: str, tmp_path: Path) -> None:
    archive.unpack(SHIPPED / f"{entry}.tar.zst", tmp_path)
    assert disguised(tmp_path, facts=OWN | USER_FACTS) == verdicts(tmp_path)


def test_what_the_auditor_makes_of_what_is_shipped() -> None:
    (board,) = score(SHIPPED, ["dev"], only=",".join(ENTRIES), jobs=1).boards
    detected = {each.name for each in board.outcomes if each.detected}
    named = {each.name for each in board.outcomes if each.first_right}
    assert detected >= {"clip_tiny", "lr_too_high", "missing_in_optimizer", "nan_inject", "no_warmup"}
    assert detected >= {"eval_with_dropout", "overfit_tiny", "repeat_batch", "zero_proj"}
    assert named >= {"clip_tiny", "eval_with_dropout", "lr_too_high", "missing_in_optimizer", "overfit_tiny", "zero_proj"}
    assert not [each.name for each in board.outcomes if each.false]
    assert not [each.name for each in board.controls if each.grave or each.sev2]
    assert len(board.outcomes) >= 10
    assert len(board.controls) >= 5
