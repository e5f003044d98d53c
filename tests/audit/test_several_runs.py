"""A file that holds several runs: all are judged, and the gravest is reported."""

from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.errors import UsageError
from ckaudit.policy.acceptance import AcceptanceCriteria, Baseline

FALL = [2.0, 1.5, 1.2, 1.0, 0.85, 0.74, 0.66, 0.6, 0.56, 0.53, 0.51, 0.5]


def _table(path: Path, *runs: tuple[str, list[float]]) -> Path:
    rows = [f"{name},{epoch},{loss}" for name, losses in runs for epoch, loss in enumerate(losses, 1)]
    path.write_text("\n".join(["fold,epoch,train_loss", *rows]) + "\n")
    return path


def test_the_gravest_run_is_reported_and_the_others_are_named(tmp_path: Path) -> None:
    ill = [*FALL[:6], *[float("nan")] * 6]
    report = triage(_table(tmp_path / "folds.csv", ("a", FALL), ("b", ill), ("c", FALL)))
    assert report.severity == "sev0"
    assert report.verdict.startswith("b, of 3 runs the gravest: ")
    assert "sev0: b; no illness: a, c" in report.notes[0]
    assert report.findings[0].first_step == 7


def test_of_runs_of_which_none_is_ill_the_last_is_reported(tmp_path: Path) -> None:
    report = triage(_table(tmp_path / "folds.csv", ("a", FALL), ("b", FALL)))
    assert report.severity in (None, "note")
    assert report.verdict.startswith("b, of 2 runs of which none is ill: ")


def test_a_run_that_is_named_is_judged_alone(tmp_path: Path) -> None:
    path = _table(tmp_path / "folds.csv", ("a", FALL), ("b", [*FALL, float("nan")]))
    report = triage(path, import_options=ImportOptions(run="a"))
    assert report.severity in (None, "note")
    assert "of 2 runs" not in report.verdict


def test_a_run_that_ends_before_the_step_asked_for_does_not_stop_the_others(tmp_path: Path) -> None:
    path = tmp_path / "starts.csv"
    rows = [f"a,{step},{loss}" for step, loss in enumerate(FALL, 1)] + [f"b,{step},{loss}" for step, loss in enumerate(FALL, 100)]
    path.write_text("\n".join(["run,step,train_loss", *rows]) + "\n")
    assert triage(path, step=5).step == 5
    with pytest.raises(UsageError, match="at or before step 0"):
        triage(path, step=0)


def test_of_very_many_runs_one_has_to_be_named(tmp_path: Path) -> None:
    path = _table(tmp_path / "sweep.csv", *((str(number), FALL) for number in range(41)))
    with pytest.raises(UsageError, match="holds 41 runs") as raised:
        triage(path)
    assert "ckaudit fleet" in raised.value.hint


def test_a_baseline_is_of_one_run(tmp_path: Path) -> None:
    path = _table(tmp_path / "folds.csv", ("a", FALL), ("b", FALL))
    criteria = AcceptanceCriteria(baseline=Baseline(file="known.json", entries=()))
    with pytest.raises(UsageError, match="holds 2 runs"):
        triage(path, criteria=criteria)
    assert triage(path, import_options=ImportOptions(run="a"), criteria=criteria).severity in (None, "note")
