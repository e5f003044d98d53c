"""`ckaudit resume-check` from the outside: formats, checksums, and the facts that it adds to a run."""

import html
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.cli.run import run
from ckaudit.contract.schema.report import Report, ResumeCheckpoint
from ckaudit.reports import FORMATS
from ckaudit.reports.terminal.verdict import window
from ckaudit.reports.view import PLAIN
from ckaudit.resume.check import resume_check
from ckaudit.validate import validate

RUN = Path(__file__).parents[2] / "fixtures/runs/healthy"


@pytest.fixture
def broken(saved):
    path = saved / "step_300.pt"
    path.write_bytes(path.read_bytes()[:-100])
    return saved


def test_the_window_is_listed_with_the_one_to_go_on_from(broken, capfd):
    assert run(["resume-check", str(broken)]) == 1
    out = capfd.readouterr().out
    assert "1 of 3 resume checkpoints is broken; the newest whole one is step_200.pt of step 200" in " ".join(out.split())
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip().endswith(".pt") and "yes" in line}
    assert set(rows) == {"100", "200"}


def kept(saved, torch, step, *parts):
    """Keep these parts alone of the checkpoint of a step."""
    path = saved / f"step_{step}.pt"
    state = torch.load(path)
    torch.save({name: state[name] for name in parts}, path)


def verdict_of(folder):
    return resume_check(folder).report.verdict


def test_the_one_to_go_on_from_has_weights_and_moments(saved, torch):
    kept(saved, torch, 300, "model", "step")
    assert verdict_of(saved).endswith(
        "3 whole; the newest to go on from is step_200.pt of step 200: step_300.pt of step 300 has no optimizer state"
    )
    (saved / "step_200.pt").write_bytes((saved / "step_200.pt").read_bytes()[:-100])
    assert "; the newest to go on from is step_100.pt of step 100: " in verdict_of(saved)
    kept(saved, torch, 100, "optimizer", "step")
    assert verdict_of(saved).endswith(
        "; none of them can be gone on from: step_300.pt of step 300, the newest, has no optimizer state"
    )


def test_remarks_are_those_on_the_one_named_and_on_none_with_a_longer_name(saved):
    for step, name in ((200, "checkpoint-200"), (300, "checkpoint-2000")):
        (saved / name).mkdir()
        (saved / f"step_{step}.pt").rename(saved / name / "state.pt")
    path = saved / "checkpoint-2000/state.pt"
    path.write_bytes(path.read_bytes()[:-100])
    assert verdict_of(saved).endswith("the newest whole one is checkpoint-200 of step 200")


def test_what_all_checkpoints_lack_is_said_once_and_nothing_where_they_lack_nothing():
    def drawn(absent):
        kept = [ResumeCheckpoint(name=f"step_{step}", step=step, form="torch", absent=absent, ok=True) for step in (1, 2)]
        report = Report(
            schema_version="ck.report.v1", tool="", command="resume-check", subject="", verdict="", resume_checkpoints=kept
        )
        return "\n".join(window(report, PLAIN, 100))

    assert drawn(["random_state"]).count("all lack random state") == 1
    assert "lack" not in drawn([])


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_names_the_broken_file(broken, capfd, form):
    assert run(["resume-check", str(broken), "--format", form, "-q"]) == 1
    out = html.unescape(capfd.readouterr().out)
    assert "step_300.pt" in out
    assert "RSM003" in out
    if form == "json":
        entries = json.loads(out)["resume_checkpoints"]
        assert [(each["step"], each.get("ok")) for each in entries] == [(100, True), (200, True), (300, False)]


def test_checksums_are_those_of_sha256sum_both_ways(saved, capfd):
    listed = saved / "SHA256SUMS"
    assert run(["resume-check", str(saved), "--write-checksums", str(listed), "-q"]) == 0
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=saved, check=True, capture_output=True)
    theirs = subprocess.run(
        ["sha256sum", *sorted(path.name for path in saved.glob("*.pt"))], cwd=saved, check=True, capture_output=True
    )
    assert listed.read_bytes() == theirs.stdout
    capfd.readouterr()
    assert run(["resume-check", str(saved)]) == 0
    assert "checksums to compare" not in capfd.readouterr().out
    (saved / "step_100.pt").write_bytes((saved / "step_200.pt").read_bytes())
    assert run(["resume-check", str(saved)]) == 1
    assert "RSM018" in capfd.readouterr().out


def test_a_list_elsewhere_and_one_beside_a_file(saved, tmp_path_factory, capfd):
    listed = tmp_path_factory.mktemp("lists") / "mine.txt"
    assert run(["resume-check", str(saved), "--write-checksums", str(listed), "-q"]) == 0
    assert run(["resume-check", str(saved), "--checksums", str(listed)]) == 0
    (saved / "step_200.pt.sha256").write_text("0" * 64 + "\n")
    assert run(["resume-check", str(saved)]) == 1
    assert "RSM018" in capfd.readouterr().out
    listed.write_text("not a list\n")
    assert run(["resume-check", str(saved), "--checksums", str(listed)]) == 2
    assert "line 1 is not a checksum" in capfd.readouterr().err


def test_names_with_line_breaks_are_written_as_sha256sum_does(saved):
    (saved / "step_100.pt").rename(saved / "step_100\n\\.pt")
    listed = saved / "SHA256SUMS"
    assert run(["resume-check", str(saved), "--write-checksums", str(listed), "-q"]) == 0
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=saved, check=True, capture_output=True)
    assert run(["resume-check", str(saved), "-q"]) == 0


def test_a_broken_checkpoint_becomes_a_fact_of_the_run(torch, saved, tmp_path_factory, capfd):
    folder = tmp_path_factory.mktemp("runs") / "run"
    shutil.copytree(RUN, folder)
    last = triage(folder).step
    for old, step in ((200, last), (300, last + 1000)):
        state = torch.load(saved / f"step_{old}.pt", weights_only=True)
        torch.save({**state, "step": step}, saved / f"step_{step}.pt")
        (saved / f"step_{old}.pt").unlink()
    whole = (saved / f"step_{last}.pt").read_bytes()
    (saved / f"step_{last}.pt").write_bytes(whole[:-100])
    before = {finding.code for finding in triage(folder).findings}
    assert run(["resume-check", str(saved), "--into", str(folder)]) == 1
    assert f"left out 1 checkpoint after the last step of {folder}" in capfd.readouterr().err
    rows = [json.loads(line) for line in (folder / "scalars-resume.jsonl").read_text().splitlines()]
    assert {row["step"]: row["checkpoint_ok"] for row in rows} == {100: 1.0, last: 0.0}
    assert all(row["checkpoint_size"] > 1000 for row in rows)
    after = triage(folder)
    assert {each.code for each in after.findings} - before == {"FILE002"}
    assert next(each for each in after.findings if each.code == "FILE002").first_step == last
    assert validate([folder]).severity in (None, "note")
    assert run(["resume-check", str(saved), "--into", str(folder)]) == 1
    assert len((folder / "scalars-resume.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no nowhere"),
        (["."], "holds no resume checkpoint"),
        ([".", "--into", "nowhere"], "no folder"),
        ([".", "--checksums", "nowhere"], "no file"),
        ([".", "-f", "xml"], "unknown format"),
    ],
)
def test_what_makes_no_sense_is_told(tmp_path, monkeypatch, capfd, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert run(["resume-check", *arguments]) == 2
    assert message in capfd.readouterr().err


def test_nothing_that_could_be_judged_is_no_success(torch, tmp_path, capfd):
    torch.save({"w": torch.ones(2)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert run(["resume-check", str(tmp_path)]) == 2
    assert run(["resume-check", str(tmp_path), "--allow-empty"]) == 0
    assert "NOT JUDGED" in capfd.readouterr().out
