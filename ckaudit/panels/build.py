"""The charts of a run, or of two: builds every tab, and links every finding to its chart."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from ckaudit.audit.engine import triage_reads
from ckaudit.audit.interview import interview_reads
from ckaudit.contract.schema.diff import Comparison
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.contract.schema.panels import VERSION, Chart, Link, Panels, Tab
from ckaudit.contract.schema.report import Finding, Report
from ckaudit.diff.divergence import reads as comparison_reads
from ckaudit.metrics import metrics
from ckaudit.panels.first_page import first_page, other_run_summary
from ckaudit.panels.metric_charts import curves
from ckaudit.panels.scene import Scene, metrics_of
from ckaudit.panels.tab import tabs
from ckaudit.questions.question import PHASES
from ckaudit.run.run import Run


@ignoring_float_errors
def panels(
    run: Run,
    report: Report,
    *,
    path: Path | None,
    other: tuple[Run, Report, Path | None] | None = None,
    comparison: Comparison | None = None,
) -> Panels:
    """Return the charts of a run.

    Args:
        run: The run, read with `panel_reads`, up to the judged step.
        report: Its report from triage.
        path: Path of its checkpoints, from which grids and histograms of a few steps are read; None: they are left out.
        other: The run that it is compared with, its report, and the path of its checkpoints.
        comparison: Comparison of the other run with this one.
    """
    other_scene = Scene(*other) if other else None
    scene = Scene(run, report, path, other_scene, comparison)
    drawn = with_missing_charts(scene, [tab(scene) for tab in tabs() if comparison is not None or tab.id != "other_run"])
    subjects = [report.subject, *([other[1].subject] if other else [])]
    is_thinned = any(" are drawn" in chart.note for tab in drawn for chart in tab.charts)
    notes = ["of long curves every stretch is drawn by its lowest and its highest value, so that no spike is lost"]
    return Panels(
        schema_version=VERSION,
        subjects=subjects,
        tabs=drawn,
        front=first_page(scene),
        beside=other_run_summary(scene),
        links=links(scene, drawn),
        notes=notes if is_thinned else [],
    )


def panel_reads(*, beside: bool = False) -> frozenset[str]:
    """Return the checkpoint paths that triage, questions and charts read, and for two runs the comparison."""
    drawn = (metrics()[name].paths for tab in tabs() for name in tab.reads)
    compared = comparison_reads() if beside else frozenset()
    return frozenset[str]().union(triage_reads(), interview_reads(PHASES), compared, *drawn)


# Additional charts for findings that no chart of a tab shows.
def with_missing_charts(scene: Scene, tabs: Sequence[Tab]) -> list[Tab]:
    """Return the tabs with an additional chart for each metric of a finding that no chart shows."""
    added: dict[str, dict[str, Chart]] = {}
    for link in links(scene, tabs):
        if link.chart is not None:
            continue
        finding = scene.report.findings[link.finding]
        name = next((metric for metric in metrics_of(finding) if metrics()[metric](scene.run)), None)
        if name in added.get(link.tab, {}):
            continue
        if name is not None and (chart := curves(scene, f"finding_{name}", metrics()[name].title, [name], marked=True)):
            added.setdefault(link.tab, {})[name] = chart
    return [replace(tab, charts=[*tab.charts, *added.get(tab.id, {}).values()]) for tab in tabs]


# The best place to see each finding: a tab, a chart on it, and a step.
def links(scene: Scene, tabs: Sequence[Tab], *, default: str = "unjudged") -> list[Link]:
    """Return a link for every finding; findings without a chart link to the tab that owns them, or to `default`."""
    findings_by_tab = {tab.id: frozenset(tab.findings) for tab in tabs}
    return [_link(place, finding, tabs, findings_by_tab, default) for place, finding in enumerate(scene.report.findings)]


def _link(place: int, finding: Finding, tabs: Sequence[Tab], findings_by_tab: Mapping[str, frozenset[int]], default: str) -> Link:
    step = finding.worst_step if finding.worst_step is not None else finding.first_step
    named = metrics_of(finding)
    ranked = [
        (_fit(chart, finding, named) + (4 * (place in findings_by_tab[tab.id]) if tab.kind == "question" else -1), tab, chart)
        for tab in tabs
        for chart in tab.charts
        if set(chart.metrics) & set(named) and chart.run != 1
    ]
    if ranked:
        _, tab, chart = max(ranked, key=lambda candidate: candidate[0])
        return Link(finding=place, tab=tab.id, chart=chart.id, step=step)
    home = next((tab.id for tab in tabs if place in findings_by_tab[tab.id]), default)
    return Link(finding=place, tab=home, step=step)


def _fit(chart: Chart, finding: Finding, named: Sequence[str]) -> float:
    """Return how well a chart shows a finding: its place by name counts more than the order of its metrics."""
    where = any(finding.where == name or (finding.where or "\0") in name for name in _names(chart))
    first = min(place for place, name in enumerate(named) if name in chart.metrics)
    return 2 * where + 1 / (1 + first)


def _names(chart: Chart) -> Iterator[str]:
    yield from (trace.name for trace in chart.traces)
    yield from chart.matrix.rows if chart.matrix else ()
