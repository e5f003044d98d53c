import csv
import json
import re
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from shutil import copy

import pytest

from ckaudit.cli.run import run
from ckaudit.contract.io.files import read_bytes
from ckaudit.lab import archive
from ckaudit.lab.cache import keep
from ckaudit.lab.record import FinishedTraining
from ckaudit.lab.score import score
from ckaudit.lab.training_spec import recipe
from ckaudit.optional import install_command

WORKERS = score._workers
RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Keep recorded runs under the names of the lab's trainings that they resemble."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "LEVEL", 1)  # these are large, and made once
        _keep_all(folder)
    return str(folder)


@pytest.fixture(autouse=True, scope="module")
def _judged_once():
    """Judge each recording once: most tests here are of what is done with the verdicts."""
    verdicts, judge = {}, score._judge

    def remembered(work):
        path, *rest = work
        key = (sha256(path.read_bytes()).hexdigest(), *rest)
        return verdicts[key] if key in verdicts else verdicts.setdefault(key, judge(work))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score, "_judge", remembered)
        patch.setattr(score, "_workers", lambda _: nullcontext(map))  # no function of a test reaches other processes
        yield


def _keep_all(folder):
    for name, seed, recorded in (
        ("healthy", 0, "healthy"),
        ("lr_too_high", 0, "lr_too_high"),
        ("lr_too_high", 10, "lr_too_high"),
    ):
        keep(folder, recipe(name, seed), _beginning(folder.parent / "shorter" / recorded, RUNS / recorded))


def _beginning(folder, run, *, until=400):
    """Copy what a run had recorded by a step; a score judges it at every checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    copy(run / "run.json", folder)
    for file in run.glob("analysis_checkpoint_step_*"):
        if int(re.search(r"step_(\d+)", file.name)[1]) <= until:
            copy(file, folder)
    lines = (run / "scalars.jsonl").read_text().splitlines(keepends=True)
    (folder / "scalars.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] <= until))
    return folder


def run_lab(capfd, *arguments):
    code = run(["lab", *arguments])
    return code, *capfd.readouterr()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "lr_to_high"], ("no fault, control or healthy training called 'lr_to_high'", "did you mean lr_too_high")),
        (["run", "healthy", "--seed", "7"], ("no split of the lab has the seed 7", "dev 0, 1, 2; test 10, 11")),
        (["run", "healthy", "--seed", "x"], ("--seed 'x' is not a whole number", "digits")),
        (["run", "healthy", "--out", "used"], ("used holds notes.txt", "--out")),
        (["score", "--split", "train"], ("unknown split 'train'", "dev, test, both")),
        (
            ["score", "--cache", "gone"],
            ("there is no folder gone", "ckaudit lab record --cache gone\n", "--cache DIR looks elsewhere"),
        ),
        (["score", "--cache", "empty"], ("nothing is recorded: empty is empty", "ckaudit lab record --cache empty\n")),
        (["score", "--cache", "old", "--only", "lr_too_*", "--split", "test"], ("old holds none of the 4", "unreadable: 1)")),
        (
            ["score", "--cache", "a b", "--only", "lr_too_*", "--split", "both"],
            ("ckaudit lab record --cache 'a b' --split both --only 'lr_too_*'\n",),
        ),
        (["score", "--only", "x*"], ("no fault or control matches 'x*'", "ckaudit lab list")),
        (["record", "--jobs", "0"], ("--jobs '0' is not a number of at least 1", "--jobs 2")),
        (["curriculum", "EXP-99"], ("unknown experiment 'EXP-99'", "choose from EXP-1, EXP-2,", "EXP-12; ckaudit lab list")),
        (["curriculum", "init_scales"], ("unknown experiment 'init_scales'", "did you mean init_scale?")),
        (["list", "x_*"], ("nothing in the lab matches 'x_*'", "ckaudit lab list")),
        (["run", "LR_TOO_HIGH"], ("'LR_TOO_HIGH'", "hint: did you mean lr_too_high?\n")),
        (["run", "exp-4"], ("exp-4 is an experiment", "ckaudit lab curriculum exp-4")),
        (["run", "healthy", "--stop", "0"], ("--stop 0 would train nothing", "--stop 1 or more")),
    ],
)
def test_what_cannot_be_meant_is_told(here, capfd, arguments, told):
    (here / "used").mkdir()
    (here / "used" / "notes.txt").touch()
    (here / "empty").mkdir()
    (here / "old").mkdir()
    (here / "old" / "lr_too_low.10.tar.zst").touch()
    code, out, err = run_lab(capfd, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert all(part in err for part in told)


@pytest.mark.torch
@pytest.mark.parametrize("inside", ["/proc/x", "a_file/x", "x" * 300])
@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["run", "healthy", "--stop", "2"], "--out"),
        (["run", "healthy", "--stop", "2", "--force"], "--out"),
        (["curriculum", "exp-4"], "--out"),
        (["record", "--only", "healthy.0"], "--cache"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_training(here, capfd, monkeypatch, arguments, option, inside):
    pytest.importorskip("torch")

    def train(*_, **__):
        raise AssertionError("nothing may be trained")

    monkeypatch.setattr("ckaudit.lab.training.train", train)
    (here / "a_file").touch()
    code, out, err = run_lab(capfd, *arguments, option, inside)
    assert (code, out) == (2, "")
    assert re.search(f"error: cannot (write|look) into {inside}: ", err)
    assert f"hint: name another folder: {option} DIR" in err


@pytest.mark.torch
def test_a_run_of_which_nothing_was_written_is_no_success(here, capfd, monkeypatch):
    pytest.importorskip("torch")
    from ckaudit.recorder import recorder

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recorder, "start", full)
    code, out, err = run_lab(capfd, "run", "healthy", "--stop", "2", "--out", "x")
    assert (code, out) == (2, "")
    assert "error: the training ran, but could not be recorded in x\n" in err
    assert "next:" not in err


def test_without_torch_a_training_says_what_to_install(here, capfd, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    code, _, err = run_lab(capfd, "run", "healthy")
    assert code == 2
    assert f"hint: {install_command('torch')}" in err
    assert run_lab(capfd, "record", "--cache", "x")[0] == 2


@pytest.mark.torch
def test_a_run_is_recorded_and_holds_nothing_of_its_label(here, capfd):
    pytest.importorskip("torch")
    code, out, err = run_lab(capfd, "run", "lr_too_high", "--stop", "2", "--out", "x")
    assert (code, out, err) == (0, "", "recorded x\nnext: ckaudit triage x\n")
    files = {file.name: read_bytes(file, file.name) for file in (here / "x").iterdir() if ".json" in file.name}
    assert {"run.json", "scalars.jsonl", "analysis_checkpoint_step_00000002.json.zst"} <= files.keys()
    manifest = json.loads(files["run.json"])
    assert not {"name", "config"} & manifest.keys()
    assert not [word for word in (b"lr_too", b"too high", b"fault", b"lrtoohigh") if word in b"".join(files.values()).lower()]
    code, _, err = run_lab(capfd, "run", "healthy", "--stop", "2", "--out", "x")
    assert (code, "--force replaces it" in err) == (2, True)


@pytest.fixture
def trained(monkeypatch):
    """Put a function in the place of the trainings: those of seed 1 fail, the others take a minute each."""
    asked = []

    def gather(recipes, cache, *, jobs, on_done):
        asked.append((cache, jobs, [f"{each.name}.{each.seed}" for each in recipes]))
        done = [
            FinishedTraining(
                name=each.name, seed=each.seed, seconds=60, **({"error": "it broke"} if each.seed == 1 else {"size": 150_000})
            )
            for each in recipes
        ]
        for each in done:
            on_done(each)
        return done

    monkeypatch.setattr("ckaudit.lab.record.gather", gather)
    return asked


def test_record_trains_what_is_missing_and_lists_what_failed(here, cache, capfd, trained):
    pytest.importorskip("torch")
    code, out, err = run_lab(capfd, "record", "--cache", cache, "--only", "lr_too_high", "--jobs", "1")
    assert trained == [(Path(cache), 1, ["lr_too_high.1", "lr_too_high.2"])]
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        f"2 of 3 trainings to record in {cache}",
        "1 of 2: lr_too_high under seed 1, 60 s, failed; about 60 s left",
        "2 of 2: lr_too_high under seed 2, 60 s, 150 KB",
        "failed: lr_too_high under seed 1: it broke",
        "1 recorded, 1 failed",
    ]


def test_record_fresh_trains_everything_and_nothing_is_done_twice(here, cache, capfd, trained):
    pytest.importorskip("torch")
    assert run_lab(capfd, "record", "--cache", cache, "--only", "lr_too_high", "--split", "test", "--fresh")[0] == 0
    assert trained == [(Path(cache), 2, ["lr_too_high.10", "lr_too_high.11"])]
    trained.clear()
    keep(Path(cache), recipe("healthy_mlp", 1), RUNS / "nan_batch")
    keep(Path(cache), recipe("healthy_mlp", 2), RUNS / "nan_batch")
    keep(Path(cache), recipe("healthy_mlp", 0), RUNS / "nan_batch")
    code, _, err = run_lab(capfd, "record", "--cache", cache, "--only", "healthy_mlp")
    assert (code, err, trained) == (0, f"0 of 3 trainings to record in {cache}\n", [])


def test_score_fresh_trains_first(here, cache, capfd, trained):
    pytest.importorskip("torch")
    code, _, err = run_lab(capfd, "score", "--cache", cache, "--only", "lr_too_high", "--fresh", "--jobs", "1")
    assert trained == [(Path(cache), 1, ["lr_too_high.0", "lr_too_high.1", "lr_too_high.2"])]
    assert (code, "1 failed" in err) == (0, True)


def test_score_prints_tables_and_what_is_missing(here, cache, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run_lab(capfd, "score", "--cache", cache, "--only", "*h*")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    lines = [line.split() for line in out.splitlines()]
    assert ["all", "1", "100", "%", "100", "%"] in [line[:6] for line in lines]
    assert "healthy runs with sev0 or sev1" in out
    assert "without a recording, not scored" in out
    assert "dev split" in out
    assert "test split" not in out


@pytest.fixture(scope="module")
def healthy_only(tmp_path_factory):
    """Keep a healthy run under its own name, and an ill one as if it were a control."""
    folder = tmp_path_factory.mktemp("controls")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "LEVEL", 1)
        keep(folder, recipe("healthy", 0), RUNS / "healthy")
        keep(folder, recipe("constant_lr", 0), RUNS / "lr_too_high")
    return str(folder)


@pytest.mark.parametrize("options", [[], ["-v"], ["-f", "markdown"]])
def test_without_a_fault_the_score_says_so_and_names_the_healthy_runs_that_were_flagged(here, healthy_only, capfd, options):
    code, out, _ = run_lab(capfd, "score", "--cache", healthy_only, *options)
    assert code == 0
    assert "o fault is recorded yet" in out
    flagged = next(line for line in out.splitlines() if "constant_lr.0" in line and "exploding_gradient" in line)
    assert "healthy.0" not in flagged
    assert not {"detected", "delay", "first cause", "false"} & set(out.replace("|", "").split())
    assert "Fault by fault" not in out


def test_a_score_of_healthy_trainings_alone_asks_for_no_fault(here, healthy_only, capfd):
    assert "no fault is among these" in run_lab(capfd, "score", "--cache", healthy_only, "--only", "healthy")[1]


def test_a_score_of_faults_alone_has_no_shares_of_healthy_runs(here, cache, capfd):
    lines = run_lab(capfd, "score", "--cache", cache, "--only", "lr_too_high")[1].splitlines()
    assert [line.split() for line in lines if line.startswith("healthy")] == [["healthy", "runs", "none", "recorded"]]


@pytest.mark.parametrize("options", [[], ["-f", "markdown"], ["-f", "markdown", "--bare"]])
def test_a_recording_of_an_older_program_is_scored_and_named(here, cache, capfd, monkeypatch, options):
    monkeypatch.setattr("ckaudit.lab.cache.__version__", "9.9")
    out = " ".join(run_lab(capfd, "score", "--cache", cache, "--only", "lr_too_high", *options)[1].replace("\\", "").split())
    assert "older loop or recorder, scored all the same: lr_too_high.0" in out
    assert "100 %" in out


def test_a_fault_without_consequence_is_in_no_share_but_has_its_line(here, tmp_path, capfd):
    from ckaudit.lab.specs import faults

    name = next(each.name for each in faults().values() if each.harmless)
    keep(tmp_path / "kept", recipe(name, 0), RUNS / "nan_batch")
    out = run_lab(capfd, "score", "--cache", "kept", "-v")[1]
    assert "no fault that has a consequence is recorded yet" in out
    assert "harmless faults noted" in out
    assert f"{name}.0" in out.split("without a recording")[0]


@pytest.mark.parametrize("width", [60, 100])
def test_a_verbose_score_fits_and_has_a_line_for_each_run_of_a_fault(here, cache, capfd, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    out = run_lab(capfd, "score", "--cache", cache, "--split", "both", "-v")[1]
    assert max(map(len, out.splitlines())) <= width
    rows = [line.split() for line in out.splitlines()]
    assert ["detected", "first", "cause", "truth"] in rows
    if width == 100:
        for run_id in ("lr_too_high.0", "lr_too_high.10"):
            assert [run_id, "yes", "learning_rate_too_high", "learning_rate_too_high"] in rows


def test_a_score_in_a_pipe_has_a_hundred_columns(here, cache, capfd, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    out = run_lab(capfd, "score", "--cache", cache, "-v")[1]
    assert 90 <= max(map(len, out.splitlines())) <= 100


def test_processes_at_work_keep_the_order():
    with WORKERS(2) as over:
        assert [*over(abs, [-3, 2, -1])] == [3, 2, 1]


def test_score_as_json_is_the_same_twice(here, cache, capfd):
    one, other = (run_lab(capfd, "score", "--cache", cache, "--only", "lr_too_high", "-f", "json")[1] for _ in range(2))
    assert one == other
    found = json.loads(one)
    assert (found["schema_version"], found["only"], found["bare"]) == ("ck.lab_score.v1", "lr_too_high", False)
    outcome = found["boards"][0]["outcomes"][0]
    assert (outcome["name"], outcome["detected"], outcome["first_right"], outcome["cause"]) == (
        "lr_too_high",
        True,
        True,
        "learning_rate_too_high",
    )
    assert found["missing"] == {"lr_too_high.1": "missing", "lr_too_high.2": "missing"}


def test_bare_shows_the_auditor_only_the_log(here, cache, capfd):
    found = json.loads(run_lab(capfd, "score", "--cache", cache, "--only", "lr_too_high", "--bare", "-f", "json")[1])
    assert found["boards"][0]["outcomes"][0]["detected"]
    assert found["bare"]
    assert not found["broken"]


def test_every_look_at_the_test_split_is_written_down(here, cache, capfd):
    (here / "docs").mkdir()
    for _ in range(2):
        assert run_lab(capfd, "score", "--split", "test", "--cache", cache)[2] == "added a line to docs/benchmark-history.csv\n"
    run_lab(capfd, "score", "--cache", cache)
    rows = list(csv.DictReader((here / "docs" / "benchmark-history.csv").read_text().splitlines()))
    assert [(row["runs"], row["detected"], row["first_cause"], row["healthy_sev2"]) for row in rows] == [
        ("1", "1.0000", "1.0000", "")
    ] * 2


def test_the_document_is_written_between_its_marks(here, cache, capfd):
    assert run_lab(capfd, "score", "--cache", cache, "--write")[0] == 2
    (here / "docs").mkdir()
    run_lab(capfd, "score", "--cache", cache, "--write")
    path = here / "docs" / "benchmark.md"
    path.write_text(path.read_text().replace("# Benchmark", "# Benchmark\n\nBy hand.") + "\nBelow.\n")
    before = path.read_text()
    run_lab(capfd, "score", "--cache", cache, "--write")
    assert path.read_text() == before
    assert "\nBy hand.\n" in before
    assert before.endswith("\nBelow.\n")
    assert "`ckaudit lab score --split dev --write`" in before
    code, _, error = run_lab(capfd, "score", "--cache", cache, "--only", "*.0", "--write")
    assert (code, "tables of whole splits" in error) == (2, True)
    assert "| lr_too_high | 1 | 100 % |" in before
    path.write_text("nothing of ours")
    assert run_lab(capfd, "score", "--cache", cache, "--write")[0] == 2


def test_the_log_alone_has_a_part_of_its_own_that_the_other_leaves_as_it_is(here, cache, capfd):
    (here / "docs").mkdir()
    path = here / "docs" / "benchmark.md"
    run_lab(capfd, "score", "--cache", cache, "--write")
    whole = path.read_text()
    for _ in range(2):
        assert run_lab(capfd, "score", "--cache", cache, "--bare", "--write")[2] == "wrote docs/benchmark.md\n"
    both = path.read_text()
    assert both.startswith(whole.rstrip("\n"))
    part = both.removeprefix(whole.rstrip("\n"))
    assert "`ckaudit lab score --split dev --bare --write`" in part
    assert part.count("## The log alone: dev split, ") == 1
    assert "test split" not in part
    assert "|  | ckaudit 0.1.0 |" in part
    for measure in ("any alarm", "right kind", "first cause", "healthy runs flagged"):
        assert f"| {measure} | " in part
    run_lab(capfd, "score", "--cache", cache, "--write")
    assert path.read_text() == both


def test_a_split_that_is_written_leaves_the_other_as_it_was(here, cache, capfd):
    (here / "docs").mkdir()
    path = here / "docs" / "benchmark.md"
    run_lab(capfd, "score", "--cache", cache, "--split", "both", "--write")
    whole = path.read_text()
    assert "`ckaudit lab score --split dev --write`" in whole
    assert "`ckaudit lab score --split test --write`" in whole
    assert whole.index("## Dev split, ") < whole.index("## Test split, ")
    path.write_text(whole.replace("## Dev split, ", "## Dev split of old, ").replace("## Test split, ", "## To go, "))
    run_lab(capfd, "score", "--cache", cache, "--split", "test", "--write")
    assert path.read_text() == whole.replace("## Dev split, ", "## Dev split of old, ")
    path.write_text(path.read_text().replace("<!-- end of ckaudit lab score --split test -->", ""))
    code, _, err = run_lab(capfd, "score", "--cache", cache, "--split", "test", "--write")
    assert (code, "does not say where a part ends" in err) == (2, True)


@pytest.mark.parametrize(("name", "count"), [("exp-4", 1), ("", 12)])
def test_the_curriculum_prints_the_page_of_each_experiment(here, capfd, monkeypatch, name, count):
    pytest.importorskip("torch")
    from ckaudit.lab import curriculum

    def studies(chosen, folder):
        for experiment in chosen:
            page = folder / f"{experiment.id}.md"
            page.write_text(f"# {experiment.id}\n")
            yield curriculum.Study(experiment, (), page)

    monkeypatch.setattr(curriculum, "studies", studies)
    arguments = ["curriculum", *([name] if name else []), "--out", "x"]
    code, out, err = run_lab(capfd, *arguments)
    ids = [f"EXP-{number}" for number in range(1, 13)] if count == 12 else ["EXP-4"]
    assert (code, out) == (0, "".join(f"# {each}\n" for each in ids))
    assert [line for line in err.splitlines() if line.startswith("wrote")] == [f"wrote x/{each}.md" for each in ids]
    code, _, err = run_lab(capfd, *arguments)
    assert (code, "x is in use" in err) == (2, True)


@pytest.mark.parametrize("command", ["list", "run", "record", "score", "curriculum"])
def test_help_fits_a_screen_and_has_examples_and_exit_codes(capfd, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run_lab(capfd, command, "--help")
    assert code == 0
    assert f"Examples:\n    ckaudit lab {command}" in out
    assert "Exit codes:\n    0  " in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("run", "Delete the run in DIR and record anew; a folder with any other file is still refused."),
        ("run", "The label is not written into the run folder: nothing there says which fault"),
        ("score", "Nothing is trained without --fresh"),
        ("score", "Train everything again first; without it nothing is trained."),
    ],
)
def test_help_says_what_is_deleted_told_and_trained(capfd, command, told):
    assert told in " ".join(run_lab(capfd, command, "--help")[1].split())
