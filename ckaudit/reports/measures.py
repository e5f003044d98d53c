"""Measured values and the memorization curve for human readers: on a screen and in Markdown."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.contract.schema.raw_measurements import Measure, Measures
from ckaudit.reports.escape import code, escaped
from ckaudit.reports.json import dumps
from ckaudit.reports.terminal.screen_text import columns, pad, paint, printable, wrap
from ckaudit.reports.view import PLAIN, View
from ckaudit.wording import plural

if TYPE_CHECKING:
    from ckaudit.audit.memorization_curve import MemorizationPoint

FORMATS = ("terminal", "json", "markdown")
HEAD = ("value", "", "95 % interval", "reference")
MIN_REMARK_COLUMNS = 24  # minimum columns of a remark next to its value
CURVE_BAR = 20  # columns of 100 %


def render(measures: Measures, format: str, view: View = PLAIN) -> str:  # noqa: A002  what the option is called
    """Return measured values in one of `FORMATS`."""
    if format == "json":
        return dumps(measures)
    lines = _markdown(measures) if format == "markdown" else _screen(measures, view)
    return "\n".join(lines) + "\n"


def number(value: float | str | None, unit: str) -> str:
    """Return a value in readable form, in its unit in a run: a rate in percent, all else with four digits.

    >>> number(0.04567, "1"), number(0.001234, "%"), number(3.14159, "nats"), number(1234, "tokens"), number(None, "1")
    ('0.04567', '0.0012 %', '3.142', '1,234', '')
    """
    if value is None or isinstance(value, str):
        return value or ""
    if unit == "%":
        return f"{value:.2f} %" if value == 0 or value >= 0.01 else f"{value:.2g} %"
    return f"{value:,.1f}".removesuffix(".0") if value == int(value) or abs(value) >= 1000 else f"{value:.4g}"


def _cells(measure: Measure) -> tuple[str, ...]:
    low, high = number(measure.low, measure.unit), number(measure.high, measure.unit)
    unit = "" if measure.unit in ("1", "%") else measure.unit
    interval = f"{low.removesuffix(' %')} to {high}" if low else ""
    return number(measure.value, measure.unit), unit, interval, number(measure.reference, measure.unit)


def _screen(measured: Measures, view: View) -> Iterator[str]:
    yield from _hanging(f"{printable(measured.subject, view)}: {_counted(measured)}", view, "", "  ")
    measures = list(_first(measured.measures, view))
    yield from _table(measures, view) if measures else ()
    for heading, lines in _sections(measured):
        yield f"\n{paint(heading, 'bold', view)}"
        for line in lines:
            yield from _hanging(printable(line, view), view, "  ", "    ")


def _table(measures: list[Measure], view: View) -> Iterator[str]:
    """Yield a row for each value; on a screen too narrow for a table, a sentence with the same content."""
    rows = [("", *HEAD), *((printable(measure.name, view), *_cells(measure)) for measure in measures)]
    used = [index for index in range(len(HEAD) + 1) if any(row[index] for row in rows[1:])]
    widths = {index: max(columns(row[index]) for row in rows) for index in used}
    taken = sum(widths.values()) + 2 * len(used)
    is_narrow = view.width is not None and taken > view.width
    for row, measure in zip(rows, [None, *measures], strict=True):
        remark = printable((measure and measure.detail) or "", view)
        if not is_narrow:
            line = "  " + "  ".join(pad(row[index], widths[index], right=index in (1, 4)) for index in used)
            yield from _with_remark(line, remark, taken + 2, view)
        elif measure:
            name, value, unit, interval, reference = row
            parts = [f"{value} {unit}".strip(), interval and f"95 % interval {interval}", reference and f"reference {reference}"]
            yield from _hanging(f"{name}: {', '.join(part for part in parts if part)}", view, "  ", "    ")
            yield from (paint(part, "dim", view) for part in _hanging(remark, view, "      ", "      ") if remark)


def _with_remark(line: str, remark: str, taken: int, view: View) -> Iterator[str]:
    """Yield a row with its remark next to it, in two lines at most, or below it."""
    room = view.width - taken if view.width is not None else columns(remark)
    parts = wrap(remark, room) if remark and room >= MIN_REMARK_COLUMNS else []
    if not 1 <= len(parts) <= 2:
        yield line.rstrip()
        yield from (paint(part, "dim", view) for part in _hanging(remark, view, "    ", "    ") if remark)
        return
    yield f"{line}  {paint(parts[0], 'dim', view)}"
    yield from (" " * taken + paint(part, "dim", view) for part in parts[1:])


def _hanging(text: str, view: View, first: str, rest: str) -> Iterator[str]:
    """Yield `text` wrapped to the screen, its first line preceded by `first` and the others by `rest`."""
    lines = [text] if view.width is None else wrap(text, max(view.width, 20) - len(rest))
    yield first + lines[0]
    yield from (rest + line for line in lines[1:])


def _first(measures: list[Measure], view: View, *, max_rows: int = 12) -> Iterator[Measure]:
    """Yield the values; of a family with many labels only the first ones, the last saying how many more there are."""
    counts = Counter(measure.name.partition("/")[0] for measure in measures)
    seen: Counter[str] = Counter()
    for measure in measures:
        family = measure.name.partition("/")[0]
        seen[family] += 1
        if view.verbose or seen[family] < max_rows or counts[family] <= max_rows:
            yield measure
        elif seen[family] == max_rows:
            yield replace(measure, detail=f"and {counts[family] - max_rows:,} more: -v, or --format json")


def _markdown(measures: Measures) -> Iterator[str]:
    yield f"### ckaudit {escaped(measures.command)}: {escaped(measures.subject)}\n"
    yield f"{_counted(measures)}\n"
    if measures.measures:
        yield "| name | value | 95 % interval | reference | remark |"
        yield "|---|---:|---|---:|---|"
    for measure in measures.measures:
        value, unit, interval, reference = _cells(measure)
        whole = escaped(f"{value} {unit}".strip())
        yield f"| {code(measure.name)} | {whole} | {interval} | {reference} | {escaped(measure.detail or '')} |"
    for heading, lines in _sections(measures):
        yield f"\n**{heading}**\n"
        yield from (f"- {escaped(line)}" for line in lines)


def _counted(measures: Measures) -> str:
    return f"{plural(measures.records, 'record')} in {plural(measures.files, 'file')}"


def _sections(measures: Measures) -> Iterator[tuple[str, list[str]]]:
    if measures.missing:
        yield "Not measured", [f"{missing.name} ({missing.row}): {missing.detail}" for missing in measures.missing]
    if measures.clusters:
        lines = [
            f"{cluster.documents:,} documents, {', '.join(cluster.places)}: {cluster.excerpt}" for cluster in measures.clusters
        ]
        yield "Largest groups of near duplicates", lines
    if measures.findings:
        yield (
            "Findings",
            [f"{finding.severity} {finding.code} {finding.file or ''}: {finding.message}" for finding in measures.findings],
        )
    if measures.notes:
        yield "Notes", list(measures.notes)


# The memorization curve: a bar for each group at each step, or a table in Markdown.
def memorization_curve(points: "Sequence[MemorizationPoint]", format: str, view: View) -> str:  # noqa: A002  what the option is called
    """Return the curve; JSON has no chart."""
    if not points or format == "json":
        return ""
    return "\n".join(_curve_in_markdown(points) if format == "markdown" else _curve_on_screen(points, view)) + "\n"


def _curve_on_screen(points: "Sequence[MemorizationPoint]", view: View) -> Iterator[str]:
    yield ""
    yield paint("Tokens continued exactly: training passages (#) and held-out ones (o)", "bold", view)
    for point in points:
        gap = "" if point.train is None or point.held_out is None else f"gap {100 * (point.train - point.held_out):+.0f}"
        remark = "; ".join(part for part in (point.stage, f"playbook {point.expected}", gap) if part)
        yield f"  step {point.step:>8,}  {_bar(point.train, '#')}  {_percent(point.train):>6}  {remark}"
        if point.held_out is not None:
            yield f"  {'':>13}  {_bar(point.held_out, 'o')}  {_percent(point.held_out):>6}"


def _bar(share: float | None, letter: str) -> str:
    return (letter * round(CURVE_BAR * share) if share is not None else "").ljust(CURVE_BAR, ".")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _curve_in_markdown(points: "Sequence[MemorizationPoint]") -> Iterator[str]:
    yield ""
    yield "| step | training | held out | stage | playbook, on repeated data |"
    yield "|---:|---:|---:|---|---|"
    for point in points:
        yield f"| {point.step} | {_percent(point.train)} | {_percent(point.held_out)} | {point.stage} | {point.expected} |"
