"""What a notebook shows of a report and of a comparison: a short piece of HTML, in which names out of files are text."""

import math
from collections.abc import Sequence
from html import escape

from ckaudit.contract.schema.diff import Comparison
from ckaudit.contract.schema.report import Chart, Finding, Report
from ckaudit.reports.escape import visible
from ckaudit.reports.terminal.screen_text import badge

MAX_ROWS = 8
"""Findings that are shown; the text and the JSON leave none out."""

CURVE = (640, 120)
"""Width and height of the loss in a notebook, in pixels."""

COLOURS = {"sev0": "#b42318", "sev1": "#b42318", "sev2": "#b54708", "note": "#475467", "ok": "#067647"}


def audit(report: Report) -> str:
    """Return the verdict, the loss, the findings and the first causes of a report."""
    word, colour = badge(report)
    title = f'<b style="color:{COLOURS[colour]}">{word}</b> {_text(report.verdict)}'
    findings = [
        (found.severity, found.code, found.where or "", _steps(found), found.message) for found in report.findings[:MAX_ROWS]
    ]
    causes = [(f"{cause.confidence:.2f}", cause.title, cause.knob) for cause in report.diagnoses[:3]]
    parts = [
        f"<p>{title}<br><small>{_text(report.subject)}</small></p>",
        _curve(report.charts),
        table(("confidence", "likely cause", "first knob"), causes),
        table(("severity", "code", "where", "steps", "what"), findings),
    ]
    if (more := len(report.findings) - MAX_ROWS) > 0:
        parts.append(f"<p><small>and {more} more</small></p>")
    return "".join(parts)


def comparison(compared: Comparison) -> str:
    """Return the word, or what the gate says, the verdict, and what each pair came to."""
    rows = [(pair.right, pair.word, pair.verdict) for pair in compared.pairs]
    word = (compared.gate.outcome if compared.gate else compared.word).upper()
    return f"<p><b>{_text(word)}</b> {_text(compared.verdict)}</p>" + table(("run", "word", "verdict"), rows)


def _text(text: str) -> str:
    return escape(visible(text))


def _steps(found: Finding) -> str:
    if found.first_step is None:
        return ""
    return f"{found.first_step}" if found.last_step in (None, found.first_step) else f"{found.first_step}\u2013{found.last_step}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table of HTML, nothing where there are none."""
    if not rows:
        return ""
    cells = ["".join(f"<td>{_text(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><tr>{''.join(f'<th>{_text(cell)}</th>' for cell in head)}</tr>{body}</table>"


def _curve(charts: Sequence[Chart]) -> str:
    """Return the loss as a line of SVG, nothing where it was not recorded at two steps."""
    values = next((chart.values for chart in charts if chart.name == "loss"), [])
    points = [
        (place, float(value)) for place, value in enumerate(values) if isinstance(value, int | float) and math.isfinite(value)
    ]
    if len(points) < 2:
        return ""
    (width, height), low, high = CURVE, min(value for _, value in points), max(value for _, value in points)
    across, up = width / max(1, len(values) - 1), (height - 4) / (high - low or 1.0)
    line = " ".join(f"{place * across:.1f},{height - 2 - (value - low) * up:.1f}" for place, value in points)
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="training loss">'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
        f"<br><small>training loss, {low:.4g} to {high:.4g}</small>"
    )
