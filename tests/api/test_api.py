"""The commands as functions: what they return is what the commands say, short in a notebook, and safe there."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckaudit
from ckaudit.errors import UnreadableError, UsageError
from tests import in_process

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
ILL, HEALTHY = RUNS / "lr_too_high", RUNS / "healthy"


def printed(*arguments: str) -> str:
    """Return what the command line prints."""
    return str(in_process.ckaudit(*arguments, cwd=Path.cwd()).stdout)


def written(folder: Path, losses: list[float], name: str = "log.csv") -> Path:
    """Write losses as a table under a name of their own."""
    path = folder / name
    path.write_text("iteration,my nll\n" + "".join(f"{step},{loss}\n" for step, loss in enumerate(losses, 1)))
    return path


@pytest.mark.parametrize("kind", [str, Path])
def test_an_audit_is_what_the_command_says(kind: type) -> None:
    audit = ckaudit.triage(kind(ILL))
    document = json.loads(printed("triage", str(ILL), "--no-config", "--format", "json"))
    assert audit.to_dict() == document
    assert audit.severity == document["severity"] == audit.findings[0].severity
    assert audit.verdict == document["verdict"]
    assert [cause.cause for cause in audit.diagnoses] == [cause["cause"] for cause in document["diagnoses"]]


def test_a_run_that_is_in_memory_is_audited_as_its_folder_is() -> None:
    run = ckaudit.read_run(ILL)
    of_memory, of_folder = (
        [(found.severity, found.code, found.where, found.first_step, found.value) for found in audit.findings]
        for audit in (ckaudit.triage(run, step=100), ckaudit.triage(ILL, step=100))
    )
    assert of_memory == of_folder
    assert len(repr(run)) < 300


def test_what_a_notebook_shows_is_short_and_the_text_is_whole() -> None:
    audit = ckaudit.triage(ILL)
    assert repr(audit).startswith("<Audit of ")
    assert len(repr(audit)) < 500
    assert audit.word in repr(audit)
    assert audit.findings[0].code in str(audit)
    html = audit._repr_html_()
    assert html.count("<tr>") >= 1 + len(audit.findings[:8])
    assert "<svg" in html
    assert len(html) < 20_000


def curves(html: str) -> list[np.ndarray]:
    """Return the points (N, 2) of each line that is drawn."""
    return [np.array([point.split(",") for point in each.split()], float) for each in re.findall('points="([^"]+)"', html)]


def test_the_curve_of_a_notebook_goes_through_the_losses(tmp_path: Path) -> None:
    losses = [float(value) for value in np.linspace(4, 2, 90)]
    html = ckaudit.triage(written(tmp_path, losses), columns={"loss": "my nll"})._repr_html_()
    (points,) = curves(html)
    assert len(points) == 90
    assert np.abs(np.diff(points, 2, axis=0)).max() < 0.3  # a straight line, its places rounded to a tenth of a pixel
    assert points[0, 1] < points[-1, 1]  # down is greater


def test_a_notebook_shows_where_findings_begin_and_what_they_are_seen_in() -> None:
    audit = ckaudit.triage(ILL)
    html = audit._repr_html_()
    marked = {int(step) for step in re.findall('data-step="([0-9]+)"', html)}
    assert marked <= {found.first_step for found in audit.findings}
    assert marked
    assert html.count("<figure>") == 1 + len([chart for chart in audit.report.charts if chart.name == "finding"])
    assert audit.diagnoses[0].knob in html


def test_a_notebook_draws_the_losses_of_two_runs_and_the_course_of_metrics() -> None:
    two = ckaudit.diff(HEALTHY, ILL)._repr_html_()
    assert {look for look in ("curve c0", "curve c1") if f'class="{look} d0"' in two} == {"curve c0", "curve c1"}
    assert len(ckaudit.gate(ILL, HEALTHY)._repr_html_()) < 30_000
    course = ckaudit.metrics(HEALTHY, "val_loss", "train_loss_raw")._repr_html_()
    assert [len(points) <= 120 for points in curves(course)] == [True, True]


def test_the_styles_of_a_notebook_hold_for_its_own_parts_alone() -> None:
    style = ckaudit.triage(ILL)._repr_html_().partition("<style>")[2].partition("</style>")[0]
    depth = 0
    for place, letter in enumerate(style):
        depth += (letter == "{") - (letter == "}")
        assert depth > 0 or letter == "}" or place < len(".ckaudit {"), style[place:]


def test_names_out_of_files_are_text_in_a_notebook(tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    folder.mkdir()
    audit = ckaudit.triage(written(folder, [3.0] * 40 + [float("nan")] * 20, "<script>.csv"), columns={"loss": "my nll"})
    assert audit.severity == "sev0"
    (other := folder / "<b onclick=x>.csv").write_text((folder / "<script>.csv").read_text())
    columns = {"loss": "my nll"}
    compared = ckaudit.diff(other, folder / "<script>.csv", columns=columns)
    for shown in (audit, ckaudit.metrics(folder / "<script>.csv", columns=columns), compared):
        text = shown._repr_html_()
        assert "<b onclick" not in text
        assert "<script" not in text
        assert "<img" not in text


def test_a_log_says_how_much_could_be_judged(tmp_path: Path) -> None:
    audit = ckaudit.triage(written(tmp_path, [4 * 0.98**step for step in range(60)]), columns={"loss": "my nll"})
    assert (audit.severity, audit.word) == (None, "LIMITED")
    assert "LIMITED" in audit._repr_html_()
    assert not audit.fails("note")


def test_what_could_not_be_judged_is_not_ok(tmp_path: Path) -> None:
    path = tmp_path / "rate.csv"
    path.write_text("step,lr\n" + "".join(f"{step},0.001\n" for step in range(1, 60)))
    audit = ckaudit.triage(path)
    assert (audit.severity, audit.word) == (None, "NOT JUDGED")
    assert "0 findings" in repr(audit)
    assert str(audit).split("\n")[0].strip().startswith("NOT JUDGED")


def test_one_finding_is_counted_as_one(tmp_path: Path) -> None:
    audit = ckaudit.triage(written(tmp_path, [3.0] * 40 + [float("nan")] * 20), columns={"loss": "my nll"})
    assert len(audit.findings) == 1
    assert "SEV0, 1 finding:" in repr(audit)


def test_metrics_are_those_of_the_command() -> None:
    metrics = ckaudit.metrics(HEALTHY, "grad_*", "train_loss_raw")
    document = json.loads(printed("metrics", str(HEALTHY), "grad_*", "train_loss_raw", "--format", "json"))
    assert list(metrics) == [metric["name"] for metric in document["metrics"]]
    table = metrics.to_arrow()
    rows = [row["value"] for row in table.to_pylist() if row["metric"] == "train_loss_raw"]
    series = metrics["train_loss_raw"]
    assert rows == series.values[series.recorded].tolist()
    assert table.num_rows == sum(int(each.recorded.sum()) for each in metrics.values())
    assert len(repr(metrics)) < 300


def test_runs_are_held_against_each_other() -> None:
    difference = ckaudit.diff(HEALTHY, ILL)
    document = json.loads(printed("diff", str(HEALTHY), str(ILL), "--format", "json"))
    assert difference.to_dict() == document
    assert (difference.word, difference.outcome) == (document["word"], None) == ("worse", None)
    assert "WORSE" in difference._repr_html_()
    assert ckaudit.diff(str(HEALTHY), str(HEALTHY)).word == "same"


@pytest.mark.parametrize(("canary", "outcome"), [(HEALTHY, "passed"), (ILL, "failed")])
def test_a_run_is_held_against_good_ones(canary: Path, outcome: str) -> None:
    gated = ckaudit.gate(canary, HEALTHY)
    assert gated.to_dict() == json.loads(
        printed("gate", str(canary), "--against", str(HEALTHY), "--no-config", "--format", "json")
    )
    assert gated.outcome == outcome
    assert f": {outcome}: " in repr(gated)
    assert outcome.upper() in gated._repr_html_()
    with pytest.raises(UsageError, match="no good run"):
        ckaudit.gate(canary)


def test_a_folder_is_held_against_the_contract() -> None:
    assert ckaudit.validate(HEALTHY).severity is None
    assert ckaudit.validate(HEALTHY, ILL).report.files > ckaudit.validate(HEALTHY).report.files


def test_an_ill_run_fails_a_test_with_all_that_is_said() -> None:
    assert not ckaudit.assert_healthy(HEALTHY).fails()
    with pytest.raises(AssertionError, match=r"<Audit of .*lr_too_high"):
        ckaudit.assert_healthy(ILL)
    with pytest.raises(UsageError, match="there is no severity 'sev7'"):
        ckaudit.assert_healthy(HEALTHY, fail_on="sev7")  # type: ignore[arg-type]


def test_the_example_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (RUNS.parents[1] / "README.md").read_text(encoding="utf-8")
    (block,) = [part.partition("```")[0] for part in text.split("```python\n") if "assert_healthy" in part.partition("```")[0]]
    for name in ("run", "before"):
        (tmp_path / name).symlink_to(HEALTHY, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["audit"].to_dict() == ckaudit.triage(HEALTHY).to_dict() | {"subject": "run"}
    assert "grad_global_norm" in (norms := names["norms"]["metric"].unique().to_pylist())
    assert all(name.startswith("grad_") for name in norms)
    assert capsys.readouterr().out.splitlines()[-1] == "same passed"


def test_a_run_that_could_not_be_judged_fails_a_test(tmp_path: Path) -> None:
    path = tmp_path / "rate.csv"
    path.write_text("step,lr\n" + "".join(f"{step},0.001\n" for step in range(1, 60)))
    with pytest.raises(AssertionError, match="nothing could be judged: "):
        ckaudit.assert_healthy(path)
    assert ckaudit.assert_healthy(path, allow_empty=True).word == "NOT JUDGED"


def test_a_run_can_be_named_by_its_address(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    path = written(folder, [3.0 - 0.01 * step for step in range(60)])
    assert ckaudit.triage(path.as_uri(), columns={"loss": "my nll"}).report.step == 60
    with pytest.raises(UnreadableError, match=r"file://elsewhere/run is not on this machine"):
        ckaudit.triage("file://elsewhere/run")
    with pytest.raises(UsageError, match=r"nothing here reads ftp:// addresses"):
        ckaudit.triage("ftp://elsewhere/run")


def test_runs_in_memory_are_compared_and_measured_as_their_folders_are() -> None:
    healthy, ill = ckaudit.read_run(HEALTHY), ckaudit.read_run(ILL)
    assert ckaudit.diff(healthy, ill).word == ckaudit.diff(HEALTHY, ILL).word == "worse"
    assert ckaudit.gate(ill, healthy).outcome == ckaudit.gate(ILL, HEALTHY).outcome == "failed"
    of_memory, of_folder = (ckaudit.metrics(run, "grad_*").to_arrow() for run in (ill, ILL))
    assert of_memory.equals(of_folder)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_metrics_are_a_data_frame(library: str) -> None:
    pytest.importorskip(library)
    metrics = ckaudit.metrics(HEALTHY, "val_loss")
    frame = getattr(metrics, f"to_{library}")()
    assert list(frame.columns) == ["step", "metric", "label", "value"]
    assert frame["value"].to_list() == metrics.to_arrow()["value"].to_pylist()


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="nothing to validate"):
        ckaudit.validate()
    with pytest.raises(UnreadableError, match=r"runs/none does not exist"):
        ckaudit.triage("runs/none")
    with pytest.raises(UsageError, match="nothing to compare"):
        ckaudit.diff(HEALTHY)


def test_a_fleet_is_what_the_command_says_and_each_of_its_rows_what_triage_says(tmp_path: Path) -> None:
    names = [str(RUNS / "healthy"), str(RUNS / "nan_batch"), str(tmp_path / "none")]
    (tmp_path / "none").mkdir()
    fleet = ckaudit.fleet(*names, output=tmp_path / "data", jobs=1)
    assert [run.run for run in fleet.runs] == [names[1], names[2], names[0]]
    audits = [ckaudit.triage(RUNS / name) for name in ("nan_batch", "healthy")]
    assert [run.verdict for run in (fleet.runs[0], fleet.runs[2])] == [audit.verdict for audit in audits]
    assert fleet.severity == "sev0"
    assert fleet.to_dict()["runs"][0]["cause"] == audits[0].diagnoses[0].cause
    assert fleet.to_dict()["dataset"] == str(tmp_path / "data")
    assert repr(fleet) == f"<FleetAudit of 3 runs: {fleet.verdict}>"
    assert "SEV0" in fleet._repr_html_()
    assert names[1] in fleet._repr_html_()
    with pytest.raises(UsageError, match="nothing to audit"):
        ckaudit.fleet()


def test_a_fleet_and_an_assertion_hold_runs_against_their_siblings() -> None:
    pairs = RUNS.parent / "pairs"
    good = [pairs / "replica", pairs / "replica_2"]
    rows = ckaudit.fleet(pairs / "lr_doubled", pairs / "replica", like=good, jobs=1).runs
    assert [(run.siblings, "SIB007" in {finding.code for finding in run.findings}) for run in rows] == [(2, True), (1, False)]
    with pytest.raises(AssertionError, match="SIB007"):
        ckaudit.assert_healthy(pairs / "lr_doubled", like=good, fail_on="sev2")


def test_packages_that_bear_the_name_of_a_command_are_packages_still() -> None:
    script = (
        "import ckaudit, ckaudit.diff.align, ckaudit.metrics.loss as loss\n"
        f"run = {str(HEALTHY)!r}\n"
        "print(len(ckaudit.metrics(run)) > 9, ckaudit.diff(run, run).word, ckaudit.metrics.loss is loss)\n"
        "print(ckaudit.validate(run).word)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "same", "True", "OK"], done.stderr
