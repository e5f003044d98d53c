"""Outputs never go onto inputs."""

import shutil
from pathlib import Path

import pytest

from ckaudit.cli.run import run

ROOT = Path(__file__).parents[2]
BASE = ROOT / "fixtures" / "pairs" / "base"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a run, a log and a folder of another tracker, that the commands run in."""
    shutil.copytree(BASE, tmp_path / "run")
    (tmp_path / "log.csv").write_text("step,loss\n" + "".join(f"{step},{3 - step / 100}\n" for step in range(50)))
    (tmp_path / "link.csv").symlink_to("log.csv")
    monkeypatch.chdir(tmp_path)
    assert run(["export", "log.csv", "--to", "tensorboard", "-o", "events", "-q"]) == 0
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "words",
    [
        "triage log.csv -o log.csv",
        "triage log.csv --format=json --output=log.csv",
        "triage log.csv -o link.csv",
        "triage link.csv -o log.csv",
        "triage run -o run/run.json",
        "metrics run --format csv -qo run/scalars.jsonl.zst",
        "triage run/analysis_checkpoint_step_00000000.json.zst -o run/run.json",
        "validate run -o run/analysis_checkpoint_step_00000000.json.zst",
        "validate run -o run/scalars-2.jsonl",
        "metrics run --format csv -o run/scalars.jsonl.zst",
        "diff run log.csv -o log.csv",
        "gate log.csv --against run -o run/run.json",
        "export log.csv -o log.csv --force",
        "export events --to tensorboard -o events --force",
        "triage events -o EVENTS",
        "import run/scalars.jsonl.zst -o run --force",
        "import log.csv -o log.csv --force",
    ],
)
def test_an_output_onto_what_is_read_is_refused_and_leaves_it_alone(folder, capfd, words):
    before = contents(folder)
    events = next((folder / "events").glob("events.out*"))
    assert run([word.replace("EVENTS", f"events/{events.name}") for word in words.split()]) == 2
    told = capfd.readouterr().err
    assert "read by this command" in told or "is no folder" in told or "this command writes no .csv" in told
    assert contents(folder) == before


@pytest.mark.parametrize("output", ["run/report.json", "run/run.html.json", "other.json", "run.json"])
def test_a_report_may_stand_beside_what_is_read_and_be_written_again(folder, output):
    for _ in range(2):
        assert run(["triage", "run", "--format", "json", "-o", output]) == 0
    assert (folder / output).read_text().startswith("{")


def test_a_report_in_a_folder_of_another_tracker_is_written_again(folder):
    for _ in range(2):
        assert run(["report", "events", "-o", "events/report.html"]) in (0, 1)
    assert (folder / "events" / "report.html").stat().st_size > 1000
