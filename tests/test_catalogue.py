"""The catalogue keeps its promises: names, sections, cases, sources."""

import re
from pathlib import Path

from ckaudit.causes import causes
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import categories, entries
from ckaudit.rules import rules
from ckaudit.run.column_builder import unknown_paths
from tests.cases import load
from tests.loops import for_each

HERE = Path(__file__).parent
SECTIONS = ("## What it checks", "## Why it matters", "## False alarms")


@for_each("code", rules())
def test_rule_has_its_own_file_sections_and_cases(code: str) -> None:
    rule = rules()[code]
    assert re.fullmatch(r"[A-Z]{3,6}\d{3}", code)
    assert re.fullmatch(rf"ckaudit\.rules\.\w+\.{rule.name}", rule.function.__module__)
    assert all(section in rule.doc for section in SECTIONS)
    assert rule.title.endswith(".")
    head, cases = load(HERE / "rules" / f"{rule.name}.toml")
    assert head["rule"] == code
    assert any(case.expect for case in cases), "no case fires"
    assert any(not case.expect and not case.skip for case in cases), "no case is healthy"
    assert any(case.skip for case in cases), "no case is skipped"


@for_each("code", rules())
def test_every_threshold_is_explained(code: str) -> None:
    rule = rules()[code]
    for name, default in rule.thresholds.items():
        assert default is not None
        assert f"`{name}`" in rule.doc, f"{rule.name} does not explain {name}"


@for_each("name", causes())
def test_cause_has_its_own_file_and_advice(name: str) -> None:
    cause = causes()[name]
    assert re.fullmatch(rf"ckaudit\.causes\.\w+\.{name}", cause.function.__module__)
    assert cause.explains
    for text in (cause.title, cause.knob, cause.inspect, cause.runbook):
        assert text.endswith(".")
        assert len(text) > 20
    assert (HERE / "causes" / f"{name}.toml").exists()


@for_each("name", metrics())
def test_metric_says_unit_source_and_reads_what_exists(name: str) -> None:
    metric = metrics()[name]
    assert metric.unit
    assert metric.source
    assert metric.reads
    assert metric.title.endswith(".")
    assert not unknown_paths(metric.paths)


def test_an_entry_read_alone_is_the_one_of_its_file() -> None:
    whole = {name: entry for category in categories() for name, entry in category.entries.items()}
    assert list(entries()) == list(whole)
    assert dict(entries()) == whole
    for name, entry in whole.items():
        assert entries().field(name, "action") == entry.action
        assert (entries().field(name, "only_with") or "") == entry.only_with
        assert tuple(entries().field(name, "covers") or ()) == entry.covers
