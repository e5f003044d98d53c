"""Rows of the playbook without an id of their own: panels, importance, couplings, and what can be seen at all."""

import re
import shlex
from collections import Counter
from functools import cache

import pytest
import typer.main

from ckaudit.audit import triage_run
from ckaudit.audit.coverage.recorded import coverage_of
from ckaudit.audit.load_run import open_run
from ckaudit.causes import causes
from ckaudit.cli.app import build
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import entries
from ckaudit.rules import rules
from tests.cases import run_of
from tests.inventory import paper
from tests.inventory.sources import FIXTURES, HERE, report, table
from tests.loops import for_each

UNNAMED, COUPLINGS = table("unnamed"), table("couplings")
RULES = {rule.name: code for code, rule in rules().items()}
COUPLED = [(each["row"], each) for kind in ("case", "known") for each in COUPLINGS[kind]]
ROOT = HERE.parents[1]
PHASE = r"^Phase \d: .+\?$|\?( \(step \d+\))?$"


@cache
def recorded(source):
    kind, _, name = source.partition("/")
    assert kind == "run"
    reads = frozenset[str]().union(*(metric.paths for metric in metrics().values()))
    return open_run(FIXTURES / "runs" / name, reads=reads, progress=None)


@cache
def missed(source=None):
    """Return the names that a recording lacks; of none, those that a run of one scalar lacks."""
    bare = run_of({"name": "bare", "scalars": {"pad_fraction": {"steps": "1..50", "value": 1}}})
    told = coverage_of(recorded(source) if source else bare)
    return {found.name for level in ("must", "should", "nice") for found in told.missing(level)}


@cache
def commands_of_ckaudit():
    return typer.main.get_command(build()).commands


def with_key(key):
    return [row for row, each in UNNAMED.items() if key in each]


def test_every_kind_of_row_is_counted():
    kinds = Counter(row.partition("-")[0] for row in UNNAMED)
    assert kinds == {"DSH": 28 + 9, "IMP": 7 + 6, "CPL": 13, "VIS": 5 + 5 + 6 + 1}
    for kind, count in kinds.items():
        assert [row for row in UNNAMED if row.startswith(kind)] == [f"{kind}-{number}" for number in range(1, count + 1)]


@for_each("row", UNNAMED)
def test_what_a_row_names_exists_and_something_shows_it(row):
    each = UNNAMED[row]
    assert set(each.get("metrics", ())) <= set(metrics())
    assert set(each.get("rules", ())) <= set(RULES)
    assert set(each.get("causes", ())) <= set(causes())
    commands = commands_of_ckaudit()
    for command in each.get("commands", ()):
        program, name, *words = shlex.split(command)
        assert (program, name in commands) == ("ckaudit", True)
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known
    for test in each.get("tests", ()):
        path, _, name = test.replace(".toml: ", ".toml::").partition("::")
        assert name in (ROOT / path).read_text(encoding="utf-8")
    assert {"run", "tests", "scale", "stage", "open"} & set(each) or row in {row for row, _ in COUPLED}


@for_each("row", with_key("run"))
def test_a_recording_holds_every_number_of_the_row(row):
    each = UNNAMED[row]
    run = recorded(each["run"])
    for name in each["metrics"]:
        series = metrics()[name](run)
        assert series.finite.any(), name
        if "every" in each:
            assert len(series.steps) > 1
            assert (series.steps[-1] - series.steps[0]) / (len(series.steps) - 1) <= each["every"], name


@pytest.mark.parametrize("row", with_key("level"))
def test_what_a_run_of_a_size_must_have_is_missed_where_it_is_not_recorded(row):
    each = UNNAMED[row]
    needed = {name for name in each["metrics"] if name in entries() and getattr(entries()[name].scale, each["level"]) == "must"}
    of_experts = all(entries()[name].only_with == "experts" for name in needed)
    assert needed
    assert bool(needed & missed()) is not of_experts  # a run without experts is not asked for them
    if each.get("run"):
        assert not needed & missed(each["run"])


@pytest.mark.parametrize("row", [*with_key("scale"), *with_key("stage")])
def test_importance_is_that_of_the_row(row):
    each = UNNAMED[row]
    for name in each["metrics"]:
        entry = entries()[name]
        found = (entry.scale.nano, entry.scale.medium, entry.scale.large)
        found = (entry.stage.early, entry.stage.steady, entry.stage.late) if "stage" in each else found
        assert " ".join(found) == each.get("scale", each.get("stage"))


@for_each(("row", "case"), COUPLED)
def test_several_numbers_together_name_the_cause(row, case):
    found = report(case["source"]) if "source" in case else triage_run(run_of(case))
    assert set(case["finds"]) <= {each.code for each in found.findings}
    assert set(case["finds"]) & {RULES[name] for name in UNNAMED[row]["rules"]}
    if "cause" in case:
        first = found.diagnoses[0].cause if found.diagnoses else ""
        assert first == case["cause"]
        assert not first or first in UNNAMED[row]["causes"]
    assert case.get("says", "") in " ".join(found.response)


@pytest.mark.parametrize("row", COUPLINGS["quiet"])
def test_a_coupling_is_silent_where_it_judged(row):
    code = RULES[UNNAMED[row]["rules"][0]]
    found = report(COUPLINGS["quiet"][row])
    assert {each.code: each.outcome for each in found.checks}[code] == "passed"
    assert not {each.cause for each in found.diagnoses} & set(UNNAMED[row].get("causes", ()))


def test_every_coupling_has_cases_that_differ():
    by_row = {row: [case.get("cause") for found, case in COUPLED if found == row] for row, _ in COUPLED}
    assert set(by_row) == set(COUPLINGS["quiet"]) == {row for row in UNNAMED if row.startswith("CPL")}
    assert all(len(set(first)) > 1 for row, first in by_row.items() if row != "CPL-12")


def test_what_is_shown_asks_a_question():
    found = report("run/healthy")
    assert all(re.search(PHASE, chart.title) for chart in found.charts)
    assert all(phase.title.endswith("?") for phase in found.interview)
    assert all(answer.question.endswith("?") for phase in found.interview for answer in phase.answers)


def test_the_document_is_the_one_on_file():
    on_file = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
    assert on_file == paper.document(), "run python -m tests.inventory.paper"
