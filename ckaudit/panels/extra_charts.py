"""Charts that no tab has by itself, put up where a finding needs one to be seen."""

from collections.abc import Sequence

from msgspec.structs import replace

from ckaudit.contract.panels import Chart, Tab
from ckaudit.metrics import metrics
from ckaudit.panels.context import Scene, metrics_of
from ckaudit.panels.draw import curves
from ckaudit.panels.links import links


def completed(scene: Scene, tabs: Sequence[Tab]) -> list[Tab]:
    """Return the tabs with a chart more for each metric that a finding rests on and no chart shows."""
    added: dict[str, dict[str, Chart]] = {}
    for link in links(scene, tabs):
        if link.chart is not None:
            continue
        finding = scene.report.findings[link.finding]
        name = next((each for each in metrics_of(finding) if metrics()[each](scene.run)), None)
        if name in added.get(link.tab, {}):
            continue
        if name is not None and (chart := curves(scene, f"finding_{name}", metrics()[name].title, [name], marked=True)):
            added.setdefault(link.tab, {})[name] = chart
    return [replace(tab, charts=[*tab.charts, *added.get(tab.id, {}).values()]) for tab in tabs]
