"""The schemas of what commands print: those on file are of today's types, describe everything and hold real output."""

import json
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError

from ckaudit.audit.autopsy import autopsy
from ckaudit.audit.coverage.recorded import coverage
from ckaudit.audit.drop import benchmark_drop
from ckaudit.contract.schema.published import DOCUMENTS as IN
from ckaudit.reports import render
from ckaudit.reports.schemas import DOCUMENTS, output_schema
from ckaudit.reports.view import PLAIN

ROOT = Path(__file__).parents[2]
RUNS = sorted(path.parent.name for path in (ROOT / "fixtures" / "runs").glob("*/run.json"))
EVENTS = {"lr_too_high", "nan_batch", "no_warmup_spike"}
OF_RUNS = [version for version in DOCUMENTS if version != "ck.drill.v1"]  # that is of trainings: tests/lab/test_drill.py
PRINTED = [(version, run) for version in OF_RUNS for run in RUNS if version != "ck.autopsy.v1" or run in EVENTS]


@cache
def made(version, run):
    """What the command prints of a run, as other programs read it."""
    if version == "ck.coverage.v1":
        return json.loads(render(coverage(run), "json", PLAIN))
    if version == "ck.autopsy.v1":
        return json.loads(render(autopsy(run), "json", PLAIN))
    return json.loads(render(benchmark_drop(run, since=100), "json", PLAIN))


@pytest.mark.parametrize("version", DOCUMENTS)
def test_the_committed_schema_is_the_one_of_the_types(version):
    path = ROOT / "schemas" / f"{version}.schema.json"
    assert json.loads(path.read_text(encoding="utf-8")) == output_schema(version), "run python schemas/make.py"


def test_there_is_a_file_for_each_document_and_a_line_in_the_readme():
    files = {path.name.removesuffix(".schema.json") for path in (ROOT / "schemas").glob("*.schema.json")}
    assert files == {*IN, *DOCUMENTS}
    text = (ROOT / "schemas" / "README.md").read_text(encoding="utf-8")
    assert all(f"`{version}.schema.json`" in text for version in files)


@pytest.mark.parametrize("version", DOCUMENTS)
def test_a_schema_describes_every_member_and_is_one(version):
    found = output_schema(version)
    Draft202012Validator.check_schema(found)
    for each in (found, *found["$defs"].values()):
        assert each["description"]
        assert "Attributes:" not in each["description"]
        assert [name for name, part in each["properties"].items() if not part.get("description")] == []


@pytest.mark.parametrize(("version", "run"), PRINTED)
def test_what_is_printed_of_a_recorded_run_is_valid(version, run):
    document = made(version, ROOT / "fixtures" / "runs" / run)
    assert set(document) == set(output_schema(version)["properties"])
    Draft202012Validator(output_schema(version)).validate(document)


@pytest.mark.parametrize(
    ("version", "run", "place"),
    [
        ("ck.coverage.v1", "healthy", ("rows", 0, "level")),
        ("ck.benchmark_drop.v1", "experts_two_ranks", ("gates", 0, "outcome")),
        ("ck.autopsy.v1", "nan_batch", ("event", "triggers")),
    ],
)
def test_what_is_not_of_the_document_is_refused(version, run, place):
    good = made(version, ROOT / "fixtures" / "runs" / run)
    for change in ("another word", None):
        bad = deepcopy(good)
        *way, last = place
        inner = bad
        for key in way:
            inner = inner[key]
        if change is None:
            del inner[last]
        else:
            inner[last] = change
        with pytest.raises(ValidationError):
            Draft202012Validator(output_schema(version)).validate(bad)
