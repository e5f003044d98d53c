"""The program as its users run it: a process, real files, an exit code."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import ckaudit as forked

ROOT = Path(__file__).parents[1]
VALID, INVALID, RUNS = (ROOT / "fixtures" / name for name in ("checkpoints/valid", "checkpoints/invalid", "runs"))


def ckaudit(*arguments: object, code: int) -> str:
    """Run the program, check its exit code, and return what it printed."""
    done = forked(*arguments, cwd=ROOT)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return str(done.stdout)


def test_the_program_can_be_started_as_a_module() -> None:
    command = [sys.executable, "-m", "ckaudit", "triage", str(RUNS / "lr_too_high")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")
    assert "The learning rate is too high" in done.stdout


def test_a_folder_of_loose_documents_is_judged_one_by_one() -> None:
    assert f"{len(list(VALID.iterdir()))} files follow" in ckaudit("validate", VALID, code=0)
    found = json.loads(ckaudit("validate", INVALID, "--format", "json", code=1))["findings"]
    promised = {path.name: path.name.partition("_")[0] for path in INVALID.iterdir() if path.is_file()}
    told = {(Path(finding["file"]).name, finding["code"]) for finding in found}
    assert set(promised.items()) <= told


def test_strict_fails_on_what_is_otherwise_passed() -> None:
    loose = next(INVALID.glob("SCH008_*.json"))
    ckaudit("validate", loose, code=0)
    ckaudit("validate", loose, "--strict", code=1)


@pytest.mark.parametrize("name", ["healthy", "zeroed_projection"])
def test_a_recorded_run_keeps_the_contract(name: str) -> None:
    ckaudit("validate", RUNS / name, "--strict", code=0)


def test_a_broken_file_does_not_stop_the_audit_of_the_others(tmp_path: Path) -> None:
    run = shutil.copytree(RUNS / "zeroed_projection", tmp_path / "run")
    (run / "analysis_checkpoint_step_00000500.json").write_text('{"schema_version": "ck.an')
    report = json.loads(ckaudit("triage", run, "--format", "json", code=1))
    assert {finding["code"] for finding in report["findings"]} >= {"SYN005", "GRAD003"}
    assert report["diagnoses"][0]["cause"] == "dead_path"


def test_a_step_is_judged_with_what_was_known_then() -> None:
    early = json.loads(ckaudit("triage", RUNS / "nan_batch", "--step", 149, "--format", "json", code=0))
    assert early["step"] == 149
    assert early["severity"] in (None, "note")
    late = json.loads(ckaudit("triage", RUNS / "nan_batch", "--step", 150, "--format", "json", code=1))
    assert late["severity"] == "sev0"


@pytest.mark.parametrize("command", ["validate", "triage"])
def test_an_empty_folder_could_not_be_audited(command: str, tmp_path: Path) -> None:
    ckaudit(command, tmp_path, code=2)


def test_a_name_is_explained_in_every_format() -> None:
    assert "max_(q,k) q" in ckaudit("explain", "M19", code=0)
    assert json.loads(ckaudit("explain", "M19", "LOSS001", "--format", "json", code=0))["pages"][1]["name"] == "loss_spike"
    assert ckaudit("explain", "dead_path", "-f", "markdown", code=0).startswith("## dead")
    assert "M67" in ckaudit("explain", code=0)


def test_an_unknown_name_could_not_be_explained() -> None:
    assert ckaudit("explain", "M19", "max_atn_logit", code=2) == ckaudit("explain", "M19", code=0)
    assert not ckaudit("explain", "max_atn_logit", code=2)
    assert not ckaudit("explain", "M19", "--format", "sarif", code=2)


def test_coverage_fails_only_where_it_is_strict() -> None:
    told = json.loads(ckaudit("coverage", RUNS / "healthy", "--format", "json", code=0))
    assert told["scale"] == "nano"
    strict = forked("coverage", RUNS / "healthy", "--strict", cwd=ROOT)
    assert (strict.returncode, strict.stderr.count("near_dup_rate, train_val_overlap, doc_repeat_hotspots")) == (1, 1)
    assert "What to record next, the most telling first" in strict.stdout
    ckaudit("coverage", RUNS / "healthy", "--scale", "huge", code=2)
    ckaudit("coverage", RUNS / "no_such_run", code=2)
