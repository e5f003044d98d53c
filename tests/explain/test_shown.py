"""What pages name as showing a rule or a cause does: held against labels, shipped recordings, logs and cases."""

import importlib.util
from functools import cache
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.causes import causes
from ckaudit.explain import explain
from ckaudit.explain.catalogue_pages import TITLE, recordings_shown
from ckaudit.lab import archive
from ckaudit.lab.specs import faults
from ckaudit.rules import rules
from tests.loops import for_each

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path.name.split(".")[0] for path in (ROOT / "fixtures" / "lab").glob("*.0.tar.zst"))
NAMES = [*(("rules", rule.name) for rule in rules().values()), *(("causes", name) for name in causes())]


@cache
def writer():
    spec = importlib.util.spec_from_file_location("docs_shown", ROOT / "docs" / "shown.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def table(kind):
    return recordings_shown().rules if kind == "rules" else recordings_shown().causes


@for_each(("kind", "name"), NAMES)
def test_a_page_says_where_its_subject_can_be_seen_or_that_it_cannot(kind, name):
    found = table(kind)[name]
    (page,) = [each for each in explain([name]) if each.kind == kind.removesuffix("s")]
    (section,) = [each for each in page.sections if each.title == TITLE]
    told = " ".join(section.items)
    assert found.case == writer().case_of(kind, name) != ""
    for shows in (*found.lab, *found.noted, *found.missed, *found.runs, *found.logs):
        assert shows in told
    assert ("ckaudit lab run" in told) is bool(found.lab)
    assert ("in the lab" in told.lower()) is not bool(found.lab)
    assert (found.case in told) is not bool(found.lab or found.runs or found.logs)


@for_each(("kind", "name"), NAMES)
def test_a_training_that_is_named_has_it_on_its_label(kind, name):
    found = table(kind)[name]
    for each in (*found.lab, *found.noted, *found.missed):
        label = faults()[each]
        assert name in ((*label.symptoms, *label.consequences) if kind == "rules" else (label.truth,))


@pytest.mark.parametrize("name", [each for each in SHIPPED if each in faults()])
def test_a_shipped_training_shows_what_it_is_named_for(name, tmp_path):
    archive.unpack(ROOT / "fixtures" / "lab" / f"{name}.0.tar.zst", tmp_path)
    fault, report = faults()[name], triage(tmp_path)
    fields = {(kind, each): field for kind, each, field in writer().of_fault(fault, report)}
    for kind, each in NAMES:
        row, field = table(kind)[each], fields.get((kind, each))
        assert (name in row.lab) <= (field in {"lab", "follows"})
        assert (field == "lab") <= (name in row.lab)
        assert (name in row.noted) <= (field == "noted")
        assert (name in row.missed) <= (field == "missed")


def test_recorded_runs_and_real_logs_show_what_they_are_named_for_and_nothing_else():
    for field, path, report in writer().recordings():
        found = set(writer().of_recording(report)) & set(NAMES)
        assert found == {(kind, name) for kind, name in NAMES if path in getattr(table(kind)[name], field)}


def test_the_file_names_what_there_is_and_is_written_as_the_script_writes_it():
    assert set(recordings_shown().rules) == {rule.name for rule in rules().values()}
    assert set(recordings_shown().causes) == set(causes())
    fields = {
        kind: {
            name: {f: list(getattr(row, f)) if f != "case" else row.case for f in writer().FIELDS}
            for name, row in table(kind).items()
        }
        for kind in ("rules", "causes")
    }
    assert writer().SHOWN.read_text(encoding="utf-8") == writer().text(fields)
