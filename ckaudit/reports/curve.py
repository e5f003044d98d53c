"""The curve of memorization as a picture of lines: a bar for each group at each step, or a table in Markdown."""

from collections.abc import Iterator, Sequence

from ckaudit.audit.memorization_curve import Point
from ckaudit.reports.terminal.text import paint
from ckaudit.reports.view import View

BAR = 20  # columns of 100 %


def curve(points: Sequence[Point], format: str, view: View) -> str:  # noqa: A002  what the option is called
    """Return the curve; JSON has no picture."""
    if not points or format == "json":
        return ""
    return "\n".join(_markdown(points) if format == "markdown" else _screen(points, view)) + "\n"


def _screen(points: Sequence[Point], view: View) -> Iterator[str]:
    yield ""
    yield paint("Tokens continued exactly: training passages (#) and held-out ones (o)", "bold", view)
    for point in points:
        gap = "" if point.train is None or point.held_out is None else f"gap {100 * (point.train - point.held_out):+.0f}"
        said = "; ".join(part for part in (point.stage, f"playbook {point.expected}", gap) if part)
        yield f"  step {point.step:>8,}  {_bar(point.train, '#')}  {_percent(point.train):>6}  {said}"
        if point.held_out is not None:
            yield f"  {'':>13}  {_bar(point.held_out, 'o')}  {_percent(point.held_out):>6}"


def _bar(share: float | None, letter: str) -> str:
    return (letter * round(BAR * share) if share is not None else "").ljust(BAR, ".")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _markdown(points: Sequence[Point]) -> Iterator[str]:
    yield ""
    yield "| step | training | held out | stage | playbook, on repeated data |"
    yield "|---:|---:|---:|---|---|"
    for point in points:
        yield f"| {point.step} | {_percent(point.train)} | {_percent(point.held_out)} | {point.stage} | {point.expected} |"
