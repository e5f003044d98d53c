"""The numbers of the pictures as blocks of JSON that no browser runs, one for each tab."""

import re
from typing import Any

import msgspec

from ckaudit.contract.schema.panels import Chart, Panels
from ckaudit.reports.escape import visible
from ckaudit.reports.html.markup import Markup, join

# Inside a script element only these could end it, or open a comment in it; in JSON they stand in strings alone.
RISKY = re.compile("[<>&\u2028\u2029]")
TOLD = ("title", "metrics", "formula", "note")  # these stand in the page


def blocks(panels: Panels) -> Markup:
    """Return a block for the charts of each tab, which is read when the tab is looked at."""
    subjects = [visible(subject) for subject in panels.subjects]
    drawn = {tab.id: [_drawn(chart) for chart in tab.charts] for tab in panels.tabs if tab.charts}
    return join([_block(name, {"subjects": subjects, "charts": charts}) for name, charts in drawn.items()])


def _block(name: str, value: Any) -> Markup:
    return Markup(f'<script type="application/json" id="d-{name}">{encoded(value)}</script>')


def encoded(value: Any) -> str:
    r"""Return JSON that is safe in a page.

    >>> encoded(["</script>"])
    '["\\u003c/script\\u003e"]'
    """
    return RISKY.sub(lambda match: f"\\u{ord(match[0]):04x}", msgspec.json.encode(value).decode())


def _drawn(chart: Chart) -> dict[str, Any]:
    """Return what the script needs of a chart, steps that several curves share written once."""
    value: dict[str, Any] = _shown({key: item for key, item in msgspec.to_builtins(chart).items() if key not in TOLD})
    axes: list[Any] = []
    for trace in value.get("traces", []):
        if trace["x"] not in axes:
            axes.append(trace["x"])
        trace["x"] = axes.index(trace["x"])
    return value | ({"axes": axes} if axes else {})


def _shown(value: Any) -> Any:
    """Return nested builtins with every string made visible."""
    match value:
        case str():
            return visible(value)
        case dict():
            return {key: _shown(item) for key, item in value.items()}
        case list() | tuple():
            return [item if type(item) is float else _shown(item) for item in value]
    return value
