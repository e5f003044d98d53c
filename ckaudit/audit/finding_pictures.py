"""The metric that a finding rests on, around the steps where it was found: one picture for each of the gravest."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from ckaudit.audit.pictures import chart_of
from ckaudit.contract.report import Chart, Finding
from ckaudit.metrics import Metric
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.spikes import loss_excess
from ckaudit.rules import rules
from ckaudit.run.run import Run
from ckaudit.run.series import Series

OF_LOSS = (train_loss_raw, loss_excess)
FIRST = 10  # findings that are looked at: where none of the gravest can be drawn, the rest do not stand for them
LEAST = 3  # points below which there is nothing to see
AROUND = 10  # rows before and after, at least


def finding_charts(run: Run, findings: Sequence[Finding], *, most: int = 2, points: int = 120) -> list[Chart]:
    """Return pictures of the gravest findings, each metric and place once; the loss has a picture of its own, a level none.

    Args:
        run: The run, cut at the step judged.
        findings: All findings, gravest first.
        most: Pictures at most.
        points: Values of each at most; of each stretch the one that stands out is there.
    """
    made: dict[tuple[str, str], Chart] = {}
    for place, finding in enumerate(findings[:FIRST]):
        if len(made) >= most or finding.severity == "note":
            break
        metric = _metric(run, finding)
        if metric is None or metric in OF_LOSS:
            continue
        series = metric(run)
        label = finding.where if finding.where in series.labels else series.labels[0]
        title = f"{finding.code}: {metric.name}" + (f" of {label}" if len(series.labels) > 1 else "")
        around = _around(series.only(label.__eq__).recorded_rows(), finding)
        if (metric.name, label) not in made and len(around.steps) >= LEAST and len(np.unique(around.values)) > 1:
            made[metric.name, label] = chart_of(
                around, name="finding", title=title, points=points, finding=place, unit=run.shown_unit(metric.unit)
            )
    return list(made.values())


def _metric(run: Run, finding: Finding) -> Metric | None:
    """Return what a finding is seen in: the metric that it names, else one that has its place, else the rule's first."""
    rule = rules().get(finding.code)
    if finding.first_step is None or rule is None:
        return None
    alone = [metric for metric in rule.metrics if len(metric(run).labels) == 1 and metric(run)]
    named = [metric for metric in alone if metric.name == finding.where]
    placed = [metric for metric in rule.metrics if finding.where in metric(run).labels]
    first = [metric for metric in alone if metric is rule.metrics[0]]
    return next(iter([*named, *placed, *first]), None)


def _around(series: Series, finding: Finding) -> Series:
    """Return the stretch from as long before a finding as it lasts to as long after."""
    first, last = finding.first_step or 0, finding.last_step or finding.first_step or 0
    begin, end = np.searchsorted(series.steps, [first, last + 1]).tolist()
    room = max(AROUND, end - begin)
    rows = slice(max(0, begin - room), end + room)
    return replace(series, steps=series.steps[rows], values=series.values[rows], recorded=series.recorded[rows])
