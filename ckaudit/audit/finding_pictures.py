"""The metric that a finding rests on, around the steps where it was found: one picture for each of the gravest."""

from collections.abc import Iterator, Sequence

import numpy as np

from ckaudit.audit.pictures import chart_of
from ckaudit.contract.report import Chart, Finding
from ckaudit.metrics import Metric
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.spikes import loss_excess
from ckaudit.rules import rules
from ckaudit.run.run import Run
from ckaudit.run.series import Series

OF_LOSS = (train_loss_raw, loss_excess)
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
    for place, finding in enumerate(findings):
        if len(made) >= most or finding.severity == "note":
            break
        shown = next(_shown(run, finding), None)
        if shown is None or (shown[0].name, shown[1].labels[0]) in made:
            continue
        metric, series = shown
        of = f" of {series.labels[0]}" if series.labels[0] != metric.name else ""
        title = f"{finding.code}: {metric.name}{of}"
        around = _around(series, finding)
        if len(around.steps) >= LEAST and len(np.unique(around.values)) > 1:
            made[metric.name, series.labels[0]] = chart_of(
                around, name="finding", title=title, points=points, finding=place, unit=metric.unit
            )
    return list(made.values())


def _shown(run: Run, finding: Finding) -> Iterator[tuple[Metric, Series]]:
    """Yield the metrics that a finding may be seen in, the rule's first before others, each at the place of the finding."""
    rule = rules().get(finding.code)
    if finding.first_step is None or rule is None:
        return
    for metric in rule.metrics:
        series = metric(run)
        places = [finding.where] if finding.where in series.labels else list(series.labels) if len(series.labels) == 1 else []
        if metric not in OF_LOSS and places and series:
            column = series.labels.index(places[0] or "")
            values, recorded = series.values[:, [column]], series.recorded[:, [column]]
            yield metric, Series(series.name, series.unit, series.steps, (places[0] or "",), values, recorded).recorded_rows()


def _around(series: Series, finding: Finding) -> Series:
    """Return the stretch from as long before a finding as it lasts to as long after."""
    first, last = finding.first_step or 0, finding.last_step or finding.first_step or 0
    begin, end = np.searchsorted(series.steps, [first, last + 1]).tolist()
    room = max(AROUND, end - begin)
    rows = slice(max(0, begin - room), end + room)
    return Series(series.name, series.unit, series.steps[rows], series.labels, series.values[rows], series.recorded[rows])
