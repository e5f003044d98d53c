"""Two curves on one scale, a line of bars each, with a mark where the runs part."""

from bisect import bisect_left, bisect_right

from ckaudit.contract.diff import Curve, Pair
from ckaudit.reports.diff.sentences import unit
from ckaudit.reports.terminal.paragraph import fit, paragraph
from ckaudit.reports.terminal.pictures import finite, sparkline, starts
from ckaudit.reports.terminal.style import paint, shown
from ckaudit.reports.view import View
from ckaudit.reports.words import number

MARGIN = 4  # two columns of indent, the name, and a space


def pictures(pair: Pair, view: View, width: int) -> list[str]:
    """Return each curve of a pair below its name."""
    return [line for curve in pair.curves for line in _picture(curve, pair, view, width)]


def _picture(curve: Curve, pair: Pair, view: View, width: int) -> list[str]:
    known = [value for value in map(finite, [*curve.left, *curve.right]) if value is not None]
    if not known:
        return []
    ends, room = (min(known), max(known)), width - MARGIN
    rows = [
        f"  {name} {sparkline(values, width=room, unicode=view.unicode, ends=ends)}".rstrip()
        for name, values in (("A", curve.left), ("B", curve.right))
    ]
    end = f" {unit(curve.unit)}" if unit(curve.unit) else ""
    caption = f"from {number(ends[0])} to {number(ends[1])}{end}, steps {curve.steps[0]} to {curve.steps[-1]}, of the second run"
    title = [paint(line, "bold", view) for line in fit(shown(curve.name, view), width)]
    dim = [paint(line, "dim", view) for line in paragraph(shown(caption, view), width)]
    return [*title, *rows, *_mark(curve, pair, room), *dim]


def _mark(curve: Curve, pair: Pair, room: int) -> list[str]:
    """Return the line that points at the parting, or nothing where there is none or it lies beyond the curve."""
    if pair.parting is None or pair.parting.step > curve.steps[-1]:
        return []
    point = bisect_left(curve.steps, pair.parting.step)
    column = bisect_right(starts(len(curve.steps), room), point) - 1
    text = f"step {pair.parting.step}"
    if column + 2 + len(text) <= room:
        return [" " * (MARGIN + column) + f"^ {text}"]
    return [" " * (MARGIN + column - len(text) - 1) + f"{text} ^"]
