"""Pictures of findings: which metric, around which steps, and that they fit a narrow screen."""

from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit import triage
from ckaudit.audit.engine import triage_reads
from ckaudit.audit.figures import finding_charts
from ckaudit.audit.load_run import open_run
from ckaudit.cli.run import run as command
from ckaudit.metrics import metrics
from ckaudit.reports.terminal.verdict import draw
from ckaudit.reports.view import View
from ckaudit.rules import rules

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
ILL = ("lr_too_high", "no_warmup_spike", "zeroed_projection", "overfit_tiny", "float16_overflow")


@pytest.mark.parametrize("name", ILL)
def test_values_are_those_of_a_metric_of_the_rule_around_the_finding(name):
    run = open_run(RUNS / name, reads=triage_reads())
    findings = triage(RUNS / name).findings
    for chart in finding_charts(run, findings, max_charts=99):
        finding = findings[chart.finding]
        title = chart.title.split()
        assert title[0] == f"{finding.code}:"
        assert title[1] in {metric.name for metric in rules()[finding.code].metrics} - {"train_loss_raw", "loss_excess"}
        series = metrics()[title[1]](run)
        column = series.labels.index(title[3]) if len(title) > 2 else 0
        own = dict(zip(map(str, series.steps.tolist()), series.values[:, column].tolist(), strict=True))
        drawn = [float(value) for value in chart.values]
        np.testing.assert_array_equal(drawn, [own[label] for label in chart.labels])
        assert int(chart.labels[0]) <= finding.first_step <= int(chart.labels[-1])


def test_there_are_two_at_most_of_different_things_and_none_of_notes():
    for name in ILL:
        report = triage(RUNS / name)
        shown = [chart for chart in report.charts if chart.finding is not None]
        assert len(shown) <= 2
        assert len({chart.title.split(": ")[1] for chart in shown}) == len(shown)
        assert all(report.findings[chart.finding].severity != "note" for chart in shown)
    assert [chart.name for chart in triage(RUNS / "healthy").charts] == ["loss", "gradient_waterfall"]


def test_what_is_shown_is_what_the_finding_names():
    titles = {name: [chart.title for chart in triage(RUNS / name).charts[2:]] for name in (*ILL, "nan_batch")}
    assert titles == {
        "lr_too_high": ["ATTN002: max_attn_logit of layer.0/head.2", "ATTN002: max_attn_logit of layer.0/head.3"],
        "no_warmup_spike": [],
        "zeroed_projection": [],  # gradients of 0 from start to end are no picture
        "overfit_tiny": ["LOSS002: val_loss"],
        "float16_overflow": [],  # nothing but notes
        "nan_batch": ["NUM001: val_loss", "NUM001: grad_global_norm"],
    }


@pytest.mark.parametrize("unicode", [True, False])
def test_they_fit_sixty_columns_and_mark_the_step(unicode):
    report = triage(RUNS / "lr_too_high")
    lines = draw(report, View(width=60, unicode=unicode)).splitlines()
    chart = next(chart for chart in report.charts if chart.finding is not None)
    start = lines.index(chart.title)
    first = report.findings[chart.finding].first_step
    mark = next(line for line in lines[start:] if line.strip() == "^")
    place = next(place for place, label in enumerate(chart.labels) if int(label) >= first)
    each = max(1, 58 // len(chart.labels))
    assert mark.index("^") - 2 == place * (each * len(chart.labels) if len(chart.labels) <= 58 else 58) // len(chart.labels)
    assert max(map(len, lines)) <= 60
    assert unicode or "\n".join(lines).isascii()
    assert f"^ from {first}" in " ".join(line.strip() for line in lines[start:])


def test_pictures_can_be_turned_off(capfd):
    command(["triage", str(RUNS / "lr_too_high"), "--no-pictures"])
    bare = capfd.readouterr().out
    command(["triage", str(RUNS / "lr_too_high")])
    assert "Is the loss going down?" not in bare
    assert "ATTN002: max_attn_logit of layer.0/head.2" not in bare
    assert "ATTN002: max_attn_logit of layer.0/head.2" in capfd.readouterr().out
    assert "What to do now" in bare
