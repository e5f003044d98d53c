"""The curve of memorization as a picture of lines: a bar for each group at each step, or a table in Markdown."""

from collections.abc import Iterator, Sequence

from ckaudit.audit.memorization_curve import Point
from ckaudit.reports.terminal.style import paint
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
    for each in points:
        gap = "" if each.train is None or each.held_out is None else f"gap {100 * (each.train - each.held_out):+.0f}"
        said = "; ".join(part for part in (each.stage, f"playbook {each.expected}", gap) if part)
        yield f"  step {each.step:>8,}  {_bar(each.train, '#')}  {_percent(each.train):>6}  {said}"
        if each.held_out is not None:
            yield f"  {'':>13}  {_bar(each.held_out, 'o')}  {_percent(each.held_out):>6}"


def _bar(share: float | None, letter: str) -> str:
    return (letter * round(BAR * share) if share is not None else "").ljust(BAR, ".")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _markdown(points: Sequence[Point]) -> Iterator[str]:
    yield ""
    yield "| step | training | held out | stage | playbook, on repeated data |"
    yield "|---:|---:|---:|---|---|"
    for each in points:
        yield f"| {each.step} | {_percent(each.train)} | {_percent(each.held_out)} | {each.stage} | {each.expected} |"
