"""The index of public training logs, and how its truth is held against what an audit says."""

import pytest

from benchmarks import real_runs
from benchmarks.real_runs import Log, Verdict

LOGS = real_runs.index()


def log(**facts) -> Log:
    plain = {"id": "a", "repository": "o/r", "commit": "c" * 40, "path": "p", "licence": "MIT", "format": "f", "field": "g"}
    return Log(**plain | {"points": 9, "sha256": None, "file": "a/p", "chosen": "drawn", "held_out": False, "what": "w"} | facts)


def test_the_index_is_as_wide_as_its_page_says():
    assert len({each.id for each in LOGS}) == len(LOGS) >= 150
    assert len({each.repository for each in LOGS}) >= 40
    assert len({each.format for each in LOGS}) >= 14
    assert len({each.field for each in LOGS}) >= 10
    assert 4 * sum(each.held_out for each in LOGS) == pytest.approx(len(LOGS), abs=4)


def test_every_entry_says_where_its_log_stands_and_what_is_true_of_it():
    for each in LOGS:
        assert len(each.commit) == 40
        assert each.path
        assert each.what
        assert each.truth in ("healthy", "incident", "unclear", "empty")
        assert bool(each.findings) == (each.truth == "incident")
        assert not (each.held_out and each.chosen == "kept")


def test_every_kept_log_is_in_the_index():
    kept = {each.id.removeprefix("fixtures/") for each in LOGS if each.file is None}
    real = real_runs.KEPT / "real"
    assert kept == {str(path.relative_to(real)) for path in real.rglob("*") if path.is_file() and path.parent != real}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([("overfitting", "sev2", 120, 130)], True),
        ([("overfitting", "sev2", 10, 99)], False),  # before it
        ([("overfitting", "note", 120, 130)], False),
        ([("loss_spike", "sev1", 120, 130)], False),  # of another illness
        ([("overfitting", "sev2", None, None)], True),  # of the whole run
    ],
)
def test_an_incident_is_found_by_a_rule_on_it_that_overlaps_it(found, expected):
    told = log(truth="incident", first=100, last=200, findings=["overfitting"])
    assert real_runs.is_found(told, Verdict(runs=1, findings=found)) is expected


def test_the_gravest_finding_of_a_healthy_log_counts_and_what_is_true_besides_is_told_apart():
    healthy = log(truth="healthy", true_besides={"slow_input": "two thirds of a step are spent waiting"})
    verdict = Verdict(
        runs=1, findings=[("loss_spike", "note", 1, 1), ("slow_input", "sev1", 1, 9), ("overfitting", "sev2", 1, 9)]
    )
    assert real_runs.wrong(healthy, verdict, amended=False) == "sev1"
    assert real_runs.wrong(healthy, verdict, amended=True) == "sev2"


def test_sums_leave_out_what_was_not_read():
    logs = [log(id="a", truth="healthy"), log(id="b", truth="healthy"), log(id="c", truth="incident", findings=["overfitting"])]
    results = {"a": Verdict(error="no log"), "b": Verdict(runs=1), "c": Verdict(runs=1, findings=[("overfitting", "sev2", 1, 2)])}
    rows = list(real_runs.sums(logs, results))
    assert rows[0].startswith("| read | 2 of 3,")
    assert rows[1].startswith("| healthy, flagged sev0 or sev1 | 0 of 1,")
    assert any(row.startswith("| incidents found in their place | 1 of 1,") for row in rows)


def test_a_kept_log_of_two_runs_is_judged_by_its_gravest(tmp_path):
    start = "".join(f"Epoch {number:03d} | loss: {1 / number:.4f}\n" for number in range(1, 30))
    ill = "".join(f"Epoch {number:03d} | loss: {'nan' if number > 20 else f'{1 / number:.4f}'}\n" for number in range(1, 30))
    file = tmp_path / "train.log"
    file.write_text(start + ill)
    verdict = real_runs.judged(file)
    assert verdict.runs == 2
    assert ("nonfinite_values", "sev0") in {(name, severity) for name, severity, _, _ in verdict.findings}
