"""A fleet of real recordings and logs: each is told as `ckaudit triage` tells it; what goes wrong costs itself alone."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ckaudit.audit import triage
from ckaudit.contract.schema.fleet import Fleet, FleetRun
from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.errors import UsageError
from ckaudit.fleet import fleet as module
from ckaudit.fleet.audit_run import audit_run
from ckaudit.fleet.dataset import read_stored
from ckaudit.fleet.find_runs import find_runs
from ckaudit.fleet.fingerprint import audit_key, state_of
from ckaudit.fleet.fleet import FleetRequest, audit_fleet, ranked
from ckaudit.fleet.source import RunSource
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria
from ckaudit.policy.policy_schema import Ignore, Policy, PolicyClauses
from ckaudit.reports import render
from ckaudit.reports.view import View

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOG = "step,loss\n" + "".join(f"{step},{3 / step:.4f}\n" for step in range(1, 60))


class Here:
    """Audits in this process, and remembers what."""

    workers = 1

    def __init__(self):
        self.asked = []

    def results(self, sources: Iterable[RunSource]) -> Iterator[list[FleetRun]]:
        for source in sources:
            self.asked.append(source.name)
            yield audit_run(source)


def fleet_at(folder: Path, *patterns: object, engine: Here | None = None, **asked) -> Fleet:
    return audit_fleet(FleetRequest(patterns=[str(pattern) for pattern in patterns], folder=folder, **asked), engine or Here())


PATTERNS = (
    "runs/*",
    "trackers/mlruns",
    "trackers/sacred",
    "trackers/wandb",
    "trackers/lightning_logs",
    "trackers/k*",
    "trackers/dvc*",
    "trackers/ray",
    "real/hf_trainer",
    "real/algoperf",
    "real/llmc",
    "real/mmengine",
    "real/parameter_golf/lower*",
    "real/pythia/*csv",
)


@pytest.fixture(scope="module")
def audited(tmp_path_factory) -> tuple[Fleet, Path]:
    folder = tmp_path_factory.mktemp("fleet") / "data"
    return fleet_at(folder, *(FIXTURES / pattern for pattern in PATTERNS)), folder


def test_every_run_of_every_format_is_told_once(audited):
    fleet, _ = audited
    names = [run.run.removeprefix(f"{FIXTURES}/") for run in fleet.runs]
    assert len(names) == len(set(names)) > 30
    assert {name.split("/")[0] for name in names} == {"runs", "trackers", "real"}
    assert {"trackers/mlruns#first", "trackers/mlruns#second", "trackers/wandb#first"} <= set(names)
    assert {run.status for run in fleet.runs} == {"audited"}
    assert "passed over" in fleet.notes[0]
    assert fleet.audited == len(names)


@pytest.mark.parametrize("name", ["runs/healthy", "runs/lr_too_high", "runs/nan_batch", "real/pythia/160m-8.first5000.csv"])
def test_a_row_says_what_triage_says(audited, name):
    run = next(run for run in audited[0].runs if run.run == str(FIXTURES / name))
    report = triage(FIXTURES / name)
    first = next(iter(report.diagnoses), None)
    assert (run.verdict, run.severity, run.judged, run.last_step) == (report.verdict, report.severity, report.judged, report.step)
    assert (run.cause, run.confidence, run.knob) == ((first.cause, first.confidence, first.knob) if first else (None, None, None))
    assert [(each.code, each.message) for each in run.findings] == [(each.code, each.message) for each in report.findings]
    assert run.state == report.state
    assert {vital for vital, state in run.vital.items() if state == "not_judged"} == {
        vital.name for vital in report.vital if vital.outcome == "not_judged"
    }
    assert run.files == report.files


def test_a_row_is_as_old_as_its_verdict_says(audited):
    matches = {row.run: re.search(r", since step (\d+)", row.verdict) for row in audited[0].runs}
    steps = {row.run: row.first_step for row in audited[0].runs}
    assert any(matches.values())
    assert all(steps[run] == int(match[1]) for run, match in matches.items() if match)


def test_one_of_several_runs_in_a_tracker_is_told_as_triage_tells_it(audited):
    run = next(run for run in audited[0].runs if run.run.endswith("mlruns#second"))
    report = triage(FIXTURES / "trackers" / "mlruns", import_options=ImportOptions(run="second"))
    assert (run.verdict, run.severity, run.cause) == (report.verdict, report.severity, report.diagnoses[0].cause)
    assert run.source == str(FIXTURES / "trackers" / "mlruns")
    assert run.facts["config.lr"] == "0.1"


def test_the_gravest_stand_first_and_the_surest_of_these(audited):
    order = ["sev0", "sev1", "sev2", "note", None]
    ranks = [(order.index(run.severity), -(run.confidence or 0)) for run in audited[0].runs if run.severity not in (None, "note")]
    assert ranks == sorted(ranks)
    assert audited[0].runs[0].run == str(FIXTURES / "runs" / "nan_batch")
    assert ranked(reversed(audited[0].runs)) == audited[0].runs


def test_nothing_is_read_again_where_nothing_changed(audited):
    fleet, folder = audited
    engine = Here()
    again = fleet_at(folder, *(FIXTURES / pattern for pattern in PATTERNS), engine=engine)
    assert engine.asked == []
    assert again.runs == fleet.runs
    assert (again.audited, again.unchanged) == (0, len(fleet.runs))
    only_changed = fleet_at(folder, *(FIXTURES / pattern for pattern in PATTERNS), engine=engine, changed_only=True)
    assert only_changed.runs == []
    assert "not changed since their last audit" in only_changed.notes[-1]


def test_groups_are_counted_as_one_counts_by_hand(audited):
    fleet = fleet_at(audited[1], *(FIXTURES / pattern for pattern in PATTERNS), group_by=["seed", "config.lr"])
    counted = {}
    for run in fleet.runs:
        runs, ill = counted.get((run.facts.get("seed"), run.facts.get("config.lr")), (0, 0))
        counted[run.facts.get("seed"), run.facts.get("config.lr")] = runs + 1, ill + (run.severity in ("sev0", "sev1", "sev2"))
    assert {tuple(group.values): (group.runs, group.ill) for group in fleet.groups} == counted
    assert fleet.groups[0].cause == "bad_batch"
    with pytest.raises(UsageError, match="no run says its 'learning'"):
        fleet_at(audited[1], FIXTURES / "runs" / "healthy", group_by=["learning"])


def test_the_document_is_what_its_schema_says(audited):
    from jsonschema import Draft202012Validator

    from ckaudit.contract.schema.published import schema

    text = render(audited[0], "json")
    Draft202012Validator(schema("ck.fleet.v1")).validate(msgspec.json.decode(text))
    assert msgspec.json.decode(text, type=Fleet) == audited[0]


@pytest.mark.parametrize("width", [40, 60, 90, 200])
def test_a_screen_of_any_width_holds_it(audited, width):
    for view in (View(width=width), View(width=width, verbose=True, unicode=False)):
        lines = render(audited[0], "terminal", view).splitlines()
        assert max(map(len, lines)) <= min(max(width, 40), 110)
        assert any(line.startswith("sev0") for line in lines)
    assert "What to change first" in render(audited[0], "terminal", View(width=width))


def a_fleet(folder: Path) -> list[Path]:
    """Write some logs, and return their paths."""
    folder.mkdir()
    paths = [folder / f"log-{number}.csv" for number in range(4)]
    for path in paths:
        path.write_text(LOG)
    return paths


def test_only_what_changed_is_read_again(tmp_path):
    paths = a_fleet(tmp_path / "logs")
    fleet_at(tmp_path / "data", tmp_path / "logs" / "*")
    paths[1].write_text(LOG + "60,nan\n61,nan\n")
    (tmp_path / "logs" / "new.csv").write_text(LOG)
    engine = Here()
    fleet = fleet_at(tmp_path / "data", tmp_path / "logs" / "*", engine=engine, changed_only=True)
    assert sorted(engine.asked) == [str(paths[1]), str(tmp_path / "logs" / "new.csv")]
    assert [run.run for run in fleet.runs] == [str(paths[1]), str(tmp_path / "logs" / "new.csv")]
    assert fleet.runs[0].severity == "sev0"
    assert len(read_stored(tmp_path / "data").runs) == 5


def test_what_else_a_verdict_depends_on_makes_it_anew(tmp_path):
    log = a_fleet(tmp_path / "logs")[0]
    key = audit_key(OPEN, ImportOptions())
    policy = Policy(file="p", base=PolicyClauses(ignore=[Ignore(code="LOSS001", reason="known")]), profiles={})
    keys = [
        key,
        audit_key(AcceptanceCriteria(policy=policy), ImportOptions()),
        audit_key(OPEN, ImportOptions(columns={"loss": "x"})),
    ]
    assert len({state_of(str(log), each).fingerprint for each in keys}) == 3
    assert state_of(str(log), key) == state_of(str(log), audit_key(OPEN, ImportOptions()))
    os.utime(log, (1, 1))
    assert state_of(str(log), key).written == 1
    assert state_of(str(tmp_path / "gone"), key).fingerprint == ""


@pytest.mark.parametrize("pattern", ["logs", "logs/*", "logs/**/*"])
def test_the_data_set_may_lie_among_the_runs(tmp_path, pattern):
    paths = a_fleet(tmp_path / "logs")
    fleet_at(tmp_path / "logs" / "data", tmp_path / pattern)
    again = fleet_at(tmp_path / "logs" / "data", tmp_path / pattern)
    assert sorted(run.run for run in again.runs) == [str(path) for path in paths]
    assert again.notes == []


def test_the_data_set_may_lie_in_a_run(tmp_path):
    shutil.copytree(FIXTURES / "runs" / "nan_batch", tmp_path / "run")
    fleet_at(tmp_path / "run", tmp_path / "run")
    again = fleet_at(tmp_path / "run", tmp_path / "run")
    assert (again.audited, again.unchanged) == (0, 1)


def test_since_leaves_out_what_nobody_wrote_to(tmp_path):
    paths = a_fleet(tmp_path / "logs")
    os.utime(paths[0], (1_000_000, 1_000_000))
    fleet = fleet_at(tmp_path / "data", tmp_path / "logs", since=2_000_000.0)
    assert sorted(run.run for run in fleet.runs) == [str(path) for path in paths[1:]]
    assert "left out, because not written to since then: 1 source" in fleet.notes


def test_a_run_that_is_deleted_or_broken_meanwhile_costs_itself_alone(tmp_path):
    paths = a_fleet(tmp_path / "logs")
    shutil.copytree(FIXTURES / "runs" / "healthy", tmp_path / "logs" / "run")

    class Deleting(Here):
        def results(self, sources):
            for source in sources:
                if source.name.endswith("run"):
                    shutil.rmtree(source.path)
                if source.name.endswith("log-2.csv"):
                    Path(source.path).unlink()
                is_odd = source.name.endswith("log-3.csv")
                yield audit_run(replace(source, import_options=None) if is_odd else source)  # what only a bug would do

    fleet = fleet_at(tmp_path / "data", tmp_path / "logs" / "*", engine=Deleting())
    status = {Path(run.run).name: (run.status, run.problem or "") for run in fleet.runs}
    assert {name: word for name, (word, _) in status.items()} == {
        "log-0.csv": "audited",
        "log-1.csv": "audited",
        "log-2.csv": "unreadable",
        "log-3.csv": "error",
        "run": "unreadable",
    }
    assert "does not exist" in status["log-2.csv"][1]
    engine = Here()
    paths[2].write_text(LOG)
    again = fleet_at(tmp_path / "data", tmp_path / "logs" / "*", engine=engine)
    assert sorted(engine.asked) == [str(paths[2]), str(paths[3])]  # what the auditor broke on is tried anew
    assert {run.status for run in again.runs} == {"audited"}


HOSTILE = (
    "a\x1b[31mred",
    "<script>alert(1)</script>",
    "new\nline",
    "pipe|`tick`",
    "\u202eright",
    "#hash",
    os.fsdecode(b"no-text-\xff"),
)


def test_hostile_names_are_text(tmp_path):
    for name in HOSTILE:
        (tmp_path / "logs" / name.replace("/", "_")).mkdir(parents=True)
        (tmp_path / "logs" / name.replace("/", "_") / "metrics.csv").write_text(LOG + "61,nan\n62,nan\n")
    fleet = fleet_at(tmp_path / "data", tmp_path / "logs")
    assert len(fleet.runs) == len(HOSTILE)
    assert {run.status for run in fleet.runs} == {"audited"}
    again = fleet_at(tmp_path / "data", tmp_path / "logs", engine=(engine := Here()))
    assert (again.unchanged, engine.asked) == (len(HOSTILE), [])
    for kind in ("terminal", "json", "markdown"):
        text = render(fleet, kind, View(width=100))
        assert not set(text) & {"\x1b", "\u202e"}
        assert text.encode()
        assert "<script>" not in text or kind != "markdown"


def _audit_once(folder: Path, pattern: str) -> None:
    module.BATCH_SECONDS = 0.0
    fleet_at(folder, pattern)


def test_two_fleets_write_one_data_set_at_once(tmp_path):
    for number in range(30):
        folder = tmp_path / ("logs" if number < 20 else "more")
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.csv").write_text(LOG)
    context = get_context("spawn")
    processes = [
        context.Process(target=_audit_once, args=(tmp_path / "data", str(tmp_path / pattern)))
        for pattern in ("logs/*", "[lm]o*/*", "more/*")
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    stored = read_stored(tmp_path / "data")
    assert (len(stored.runs), stored.problems) == (30, [])
    (tmp_path / "data" / "runs" / "part-0.parquet").write_bytes(b"PAR1 no more")
    fleet = fleet_at(tmp_path / "data", tmp_path / "logs" / "*", engine=(engine := Here()))
    assert (engine.asked, fleet.unchanged) == ([], 20)
    assert "cannot be read and is passed over" in fleet.notes[0]


def test_links_in_circles_and_what_is_named_twice_are_walked_once(tmp_path):
    paths = a_fleet(tmp_path / "logs")
    (tmp_path / "logs" / "deep").mkdir()
    (tmp_path / "logs" / "deep" / "back").symlink_to(tmp_path / "logs", target_is_directory=True)
    (tmp_path / "logs" / "deep" / "self").symlink_to("self")
    (tmp_path / "link").symlink_to(tmp_path / "logs", target_is_directory=True)
    for patterns in (["logs"], ["logs/*"], ["**/*.csv"], ["logs", "link", "*", "logs/log-[0-3].csv"]):
        found = find_runs([str(tmp_path / pattern) for pattern in patterns])
        assert sorted(map(os.path.realpath, found.paths.values())) == list(map(str, paths)), patterns
    with pytest.raises(UsageError, match="matches nothing"):
        find_runs([str(tmp_path / "nothing*")])
    assert list(find_runs([str(tmp_path / "named")]).paths) == [str(tmp_path / "named")]


def test_a_pattern_that_names_the_files_of_a_run_names_the_run():
    run = FIXTURES / "runs" / "healthy"
    assert list(find_runs([str(run / "analysis*")]).paths) == [str(run)]
    assert list(find_runs([str(FIXTURES / "runs" / "*" / "run.json")]).paths) == list(
        find_runs([str(FIXTURES / "runs" / "*")]).paths
    )
