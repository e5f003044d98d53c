"""A drill from the command line to its report: real trainings, what is told of them, and everything that can go wrong before."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from ckaudit.audit import triage
from ckaudit.cli.run import run
from ckaudit.contract.schema.report import Severity
from ckaudit.lab.drill.bundle import without_names
from ckaudit.lab.drill.outcomes import DrillReport, FaultOutcome, HealthyOutcome, Seen, remedy_of
from ckaudit.lab.drill.trainings import DrillPlan, train_all
from ckaudit.recorder.drill.settings import DRILL_ENVIRONMENT_VARIABLE, KINDS, DrillSettings
from ckaudit.reports import render
from ckaudit.reports.escape import UNSAFE
from ckaudit.reports.schemas import output_schema
from ckaudit.reports.view import View
from tests.lab.forked_trainings import ROOT, ForkedTrainings

TRAIN = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from ckaudit.recorder import Recorder

torch.set_num_threads(1)
torch.manual_seed(0)
x = torch.randn(512, 16)
loader = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
recorder = Recorder(model, "run/", optimizer=optimizer)
for _ in range(int(sys.argv[1])):
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        recorder.after_backward()
        optimizer.step()
        recorder.step(loss, batch=(inputs, targets))
print("trained to the end")
"""


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    pytest.importorskip("torch")
    trainings = ForkedTrainings(tmp_path_factory.mktemp("s"))
    yield trainings
    trainings.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "90")
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def drill(*words: object) -> int:
    return run(["drill", *map(str, words)])


def script(here: Path, text: str) -> list[str]:
    (here / "other.py").write_text(text)
    return [sys.executable, "-S", "-E", str(here / "other.py")]


@pytest.mark.torch
def test_faults_are_found_in_the_own_training_and_no_real_run_is_touched(
    here: Path, forked: ForkedTrainings, capfd: pytest.CaptureFixture[str]
) -> None:
    (here / "run").mkdir()
    (here / "run" / "scalars.jsonl").write_text("mine")
    options = ("--faults", "matrix_zeroed,loader_stuck,norms_missing", "--steps", 40, "--keep", "kept", "--format", "json")
    code = drill(*options, "--", *forked.command(here / "train.py", "100"))
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert (code, err, report["schema_version"]) == (0, "", "ck.drill.v1")
    assert [path.name for path in (here / "run").iterdir()] == ["scalars.jsonl"]
    assert (report["steps"], report["onset"], report["is_repeatable"], report["learns"]) == (40, 21, True, True)
    assert [(each["steps"], each["findings"]) for each in report["healthy"]] == [(40, []), (40, [])]
    zeroed, stuck, missing = report["faults"]
    assert (zeroed["outcome"], zeroed["onset"], zeroed["place"], zeroed["is_cause_right"]) == ("found", 21, "2", True)
    step, code_told = zeroed["seen_step"], zeroed["finding"]["code"]
    assert zeroed["delay"] == step - 21
    told = [{each.code for each in triage(here / "kept" / "matrix_zeroed", step=at).findings} for at in (step - 1, step)]
    assert [code_told in codes for codes in told] == [False, True]
    assert (stuck["outcome"], stuck["cause"]) == ("found", "loader_stuck")
    assert stuck["onset"] < stuck["seen_step"] <= 40
    assert (missing["outcome"], missing["reason"]) == ("not_done", "the model has no normalisation")
    kept = {path.name for path in (here / "kept").iterdir() if path.is_dir()}
    assert kept == {"healthy-1", "healthy-2", "matrix_zeroed", "loader_stuck"}
    losses = [
        [json.loads(line)["train_loss_raw"] for line in (here / "kept" / name / "scalars.jsonl").read_text().splitlines()]
        for name in ("healthy-1", "matrix_zeroed")
    ]
    assert losses[0][:20] == losses[1][:20]  # the fault draws nothing that the training would have drawn
    assert losses[0][21] != losses[1][21]


@pytest.mark.torch
def test_a_training_that_ends_early_is_said_or_judged_as_far_as_it_goes(
    here: Path, forked: ForkedTrainings, capfd: pytest.CaptureFixture[str]
) -> None:
    command = forked.command(here / "train.py", "2")  # 2 epochs of 16 batches
    assert drill("--faults", "weights_times_5", "--steps", 100, "--", *command) == 2
    err = capfd.readouterr().err
    assert "ended by itself after 32 steps, before the onset of the faults at step 51" in err
    assert drill("--faults", "weights_times_5", "--steps", 100, "--onset", 15, "--", *command) == 0
    out = capfd.readouterr().out
    assert "1 of 1 fault with an effect found, healthy trainings left alone" in out
    assert "healthy-1, healthy-2 ended by itself before step 100" in out


def test_a_command_that_crashes_makes_no_recorder_or_is_not_there_is_told(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def error_of(*words: object) -> str:
        assert drill(*words) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert "Traceback" not in err.splitlines()[0][:10]
        return err

    crash = error_of(
        "--", *script(here, "import sys\nprint('a' * 9999, file=sys.stderr)\nraise RuntimeError('no data in \\x1b[31m')")
    )
    assert "exit code 1 before it made a recorder; it said last:" in crash
    assert "RuntimeError: no data in \\x1b[31m" in crash
    assert "hint: it must run as it is:" in crash
    killed = error_of("--", *script(here, "import os\nos.kill(os.getpid(), 9)"))
    assert "signal SIGKILL before it made a recorder" in killed
    silent = error_of("--", *script(here, "print('trained')"))
    assert "ended without making a recorder" in silent
    assert "needs a training that records itself with ckaudit.Recorder" in silent
    slow = error_of("--wait", "0.3", "--", *script(here, "import time\ntime.sleep(60)"))
    assert "no recorder was made within 0.3 s" in slow
    assert "cannot start ./nowhere: No such file" in error_of("--", "./nowhere")


def test_a_request_that_makes_no_sense_is_refused(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "full").mkdir()
    (here / "full" / "mine.txt").touch()
    for words, message in (
        ([], "no command was given"),
        (["--faults", "matrix_zeroed"], "no command was given"),
        (["--faults", "matrix_zero", "--", "true"], "unknown fault 'matrix_zero'\nhint: did you mean matrix_zeroed?"),
        (["--steps", "10", "--", "true"], "--steps 10 shows nothing"),
        (["--steps", "40", "--onset", "40", "--", "true"], "--onset 40 lies at or after the last of 40 steps"),
        (["--strength", "2", "--", "true"], "--strength '2' is no number from 0 to 1"),
        (["--jobs", "none", "--", "true"], "--jobs 'none' is not a number of at least 1"),
        (["--keep", "full", "--", "true"], "--keep: full is not empty"),
        (["--format", "html", "--", "true"], "unknown format 'html'"),
    ):
        assert drill(*words) == 2
        assert message in capfd.readouterr().err
    # Without the dashes options of drill come first, and all that follows the command is its own.
    assert drill("true", "--steps", "10") == 2
    assert "ended without making a recorder" in capfd.readouterr().err


def test_the_faults_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert drill("--list", "--format", "json") == 0
    listed = json.loads(capfd.readouterr().out)["faults"]
    assert [each["name"] for each in listed] == [*KINDS]
    assert 12 <= sum(each["usual"] for each in listed) <= 16
    assert drill("--list") == 0
    assert {*KINDS} <= set(capfd.readouterr().out.split())


def test_what_is_left_of_a_program_is_stopped(here: Path) -> None:
    """A program that goes on after its training has ended does not hold the drill up; here it never gets so far."""
    text = f"import json, os, pathlib, time\norder = json.loads(os.environ[{DRILL_ENVIRONMENT_VARIABLE!r}])\n"
    text += "pathlib.Path(order['folder'] + '.note.json').write_text(json.dumps({'done': order['steps'], 'is_over': True}))\n"
    text += "if not os.fork():\n    time.sleep(60)\n"
    plan = DrillPlan(command=tuple(script(here, text)), faults=(), steps=20, onset=10)
    trained = train_all(plan, here)
    assert [(each.name, each.end, each.note.done) for each in trained] == [("healthy-1", "steps", 20), ("healthy-2", "steps", 20)]


def test_who_ends_a_drill_ends_its_training(here: Path) -> None:
    text = "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(60)"
    drilling = subprocess.Popen([sys.executable, "-m", "ckaudit", "drill", "--", *script(here, text)])
    while not (here / "pid").exists() or not (here / "pid").read_text():
        time.sleep(0.05)
    drilling.send_signal(signal.SIGTERM)
    assert drilling.wait(timeout=60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int((here / "pid").read_text()), 0)


# What a report says, made by hand.
SEEN = Seen(code="GRAD001", name="vanishing", severity="sev2", first_step=3, where="secret.weight", message="secret is small")


def outcome(**changes: object) -> FaultOutcome:
    usual = FaultOutcome(fault="part_frozen", title="a part", truth="frozen_by_mistake", outcome="missed", onset=1, steps=40)
    return replace(usual, **changes)


def report(*faults: FaultOutcome, findings: tuple[Seen, ...] = ()) -> DrillReport:
    return DrillReport(
        command=("python", "my \x1b[31mtrain.py"),
        steps=40,
        onset=21,
        strength=0.5,
        seed=0,
        is_repeatable=False,
        learns=False,
        to_judge_more="recorder.step(loss)",
        healthy=(HealthyOutcome(name="healthy-1", steps=30, loss=1.0, findings=findings),),
        faults=faults,
    )


FOUND = outcome(outcome="found", seen_step=10, delay=9, finding=SEEN, cause="dead_units")


@pytest.mark.parametrize("format_", ["terminal", "markdown", "json"])
def test_every_outcome_is_told_and_nothing_harms_the_screen(format_: str) -> None:
    crashed, harmless = outcome(outcome="crashed", reason="Boom \x1b[0m"), outcome(outcome="harmless", fault="rate_too_low")
    missed = outcome(fault="gradient_nan", remedy="Recorder(x=1) lets NUM001 judge")
    text = render(report(FOUND, crashed, harmless, missed, findings=(SEEN,)), format_, View(width=80))
    assert set(UNSAFE.findall(text)) <= {"\n"}
    if format_ == "json":
        Draft202012Validator(output_schema("ck.drill.v1")).validate(json.loads(text))
    else:
        flat = " ".join(text.replace("\\", "").split())
        assert "1 of 2 faults with an effect found, 1 healthy training of 1 flagged" in flat
        for part in ("step 10 (+9)", "it is frozen", "Recorder(x=1) lets NUM001 judge", "harmless here", "it crashed"):
            assert part in flat
        assert "rate" in flat
        assert "the two healthy trainings differ" in flat
    if format_ == "terminal":
        assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("made", "clean"),
    [
        (report(FOUND), True),
        (report(FOUND, outcome(outcome="harmless"), outcome(outcome="not_done"), outcome(outcome="crashed")), True),
        (report(FOUND, outcome()), False),
        (report(FOUND, findings=(SEEN,)), False),
    ],
)
def test_a_miss_or_a_false_alarm_fails(made: DrillReport, clean: bool) -> None:
    assert made.is_clean is clean


def test_a_report_that_is_sent_names_nothing() -> None:
    text = render(
        without_names(report(FOUND, outcome(remedy="secret", reason="secret", place="secret"), findings=(SEEN,))), "json"
    )
    assert "secret" not in text
    assert "train.py" not in text
    assert "GRAD001" in text


def test_the_line_that_would_show_a_fault_is_named(tmp_path: Path) -> None:
    from ckaudit.audit.load_run import open_run
    from ckaudit.metrics import metrics

    # A record with losses alone: no batch was handed over, so that no check can see one come again.
    lines = [{"step": step, "train_loss_raw": 2.0 - 0.01 * step, "steps_seen": step} for step in range(1, 61)]
    (tmp_path / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    manifest = {"schema_version": "ck.run.v1", "source": "ckaudit recorder 0.1.0", "sessions": [{"start": 1}]}
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    reads = frozenset().union(*(metric.paths for metric in metrics().values()))
    remedy = remedy_of(KINDS["loader_stuck"], open_run(tmp_path, reads=reads))
    assert remedy == "recorder.step(..., batch=(inputs, targets)) gives DATA003 repeated_batch more to judge by"


def test_a_bundle_holds_the_record_without_its_words(tmp_path: Path) -> None:
    from ckaudit.lab.drill.bundle import write_bundle
    from ckaudit.lab.drill.trainings import Trained
    from ckaudit.recorder.drill.settings import DrillStatus

    runs = ROOT / "fixtures" / "runs"
    trained = [Trained(name="healthy-1", folder=runs / "nan_batch", note=DrillStatus(), end="steps", code=0)]
    assert write_bundle(report(FOUND, findings=()), trained, tmp_path / "none.zip") == []
    assert write_bundle(report(FOUND, findings=(SEEN,)), trained, tmp_path / "b.zip") == ["healthy-1"]
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        archive.extractall(tmp_path / "b")
    manifest = json.loads((runs / "nan_batch" / "run.json").read_text())
    words = {word for name in manifest["tensors"] for word in name.split(".")} - {"weight", "bias"}
    told = json.loads((tmp_path / "b" / "healthy-1" / "run.json").read_text())
    assert {"commit", "environment", "model", "name"}.isdisjoint(told)
    text = "".join(json.dumps(name) for name in told["tensors"])
    assert not [word for word in words if not word.isdecimal() and word in text]

    def severe(folder: Path) -> set[tuple[str, Severity, int | None]]:
        found = triage(folder).findings
        return {(each.code, each.severity, each.first_step) for each in found if each.severity != "note"}

    assert severe(tmp_path / "b" / "healthy-1") == severe(runs / "nan_batch")


def test_an_order_survives_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from ckaudit.errors import UsageError
    from ckaudit.recorder.drill.settings import settings_from_environment

    settings = DrillSettings(folder='a "b"', steps=20, fault="matrix_zeroed", onset=3, strength=0.25, seed=7)
    assert settings_from_environment() is None
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    assert settings_from_environment() == settings
    for wrong in ("1", "{}", '{"folder": "x", "steps": 3, "more": 1}', '{"folder": "x", "steps": 3, "fault": "no"}'):
        monkeypatch.setenv(DRILL_ENVIRONMENT_VARIABLE, wrong)
        with pytest.raises(UsageError):
            settings_from_environment()
