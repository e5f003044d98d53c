"""Where each finding is seen best: a tab, a chart on it, and a step."""

from collections.abc import Iterator, Sequence

from ckaudit.contract.panels import Chart, Link, Tab
from ckaudit.contract.report import Finding
from ckaudit.panels.context import Scene, metrics_of


def links(scene: Scene, tabs: Sequence[Tab], *, default: str = "unjudged") -> list[Link]:
    """Return a link for every finding; one that no chart shows leads to the tab that it belongs to, or to `default`."""
    return [_link(place, each, tabs, default) for place, each in enumerate(scene.report.findings)]


def _link(place: int, finding: Finding, tabs: Sequence[Tab], default: str) -> Link:
    step = finding.worst_step if finding.worst_step is not None else finding.first_step
    named = metrics_of(finding)
    ranked = [
        (_fit(chart, finding, named) + (4 * (place in tab.findings) if tab.kind == "question" else -1), tab, chart)
        for tab in tabs
        for chart in tab.charts
        if set(chart.metrics) & set(named)
    ]
    if ranked:
        _, tab, chart = max(ranked, key=lambda each: each[0])
        return Link(finding=place, tab=tab.id, chart=chart.id, step=step)
    home = next((tab.id for tab in tabs if place in tab.findings), default)
    return Link(finding=place, tab=home, step=step)


def _fit(chart: Chart, finding: Finding, named: Sequence[str]) -> float:
    """Return how well a chart shows a finding: its place by name counts more than which of its metrics comes first."""
    where = any(finding.where == name or (finding.where or "\0") in name for name in _names(chart))
    first = min(place for place, name in enumerate(named) if name in chart.metrics)
    return 2 * where + 1 / (1 + first)


def _names(chart: Chart) -> Iterator[str]:
    yield from (trace.name for trace in chart.traces)
    yield from chart.matrix.rows if chart.matrix else ()
