"""A healthy and an ill series drawn side by side on one axis."""

from collections.abc import Sequence
from itertools import zip_longest

from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.report import Chart
from ckaudit.explain.page import Shapes
from ckaudit.reports.terminal.pictures import curve
from ckaudit.reports.terminal.text import fit, pad, paint, shown
from ckaudit.reports.view import View
from ckaudit.reports.words import number

GAP = 3  # columns between the two drawings


def sketch(shapes: Shapes, view: View, width: int, *, widest: int = 40, height: int = 4) -> list[str]:
    """Return the two drawings, below each what it shows, and the ends of their axis.

    Args:
        shapes: The two series and their words.
        view: What the screen can do.
        width: Columns in all.
        widest: Columns of one drawing at most; a series of few points gains nothing from more.
        height: Rows.
    """
    half = min(widest, (width - GAP) // 2)
    # One chart of both, with a gap, has one axis.
    values: list[Number | None] = [*resampled(shapes.good_values, half), *[None] * GAP, *resampled(shapes.bad_values, half)]
    chart = Chart(name="shapes", title="", unit="1", labels=[str(index) for index in range(len(values))], values=values)
    rows = curve(chart, width=len(values), height=height, unicode=view.unicode)[:height]
    lines = [paint(pad(row[:half], half), "ok", view) + " " * GAP + paint(row[half + GAP :], "sev2", view) for row in rows]
    good, bad = (fit(shown(text, view), half) for text in (f"good: {shapes.good}", f"bad: {shapes.bad}"))
    lines += [pad(left, half) + " " * GAP + right for left, right in zip_longest(good, bad, fillvalue="")]
    both = (*shapes.good_values, *shapes.bad_values)
    subject = f" of {shapes.of}" if shapes.of else ""
    axis = fit(f"an example{subject}, from {number(min(both))} to {number(max(both))}", width)
    return [*(line.rstrip() for line in lines), *(paint(line, "dim", view) for line in axis)]


def resampled(values: Sequence[float], count: int) -> list[float]:
    """Return `count` values on the straight lines between the given ones, both ends kept.

    >>> resampled([0.0, 2.0, 1.0], 5)
    [0.0, 1.0, 2.0, 1.5, 1.0]
    """
    found = []
    for place in range(count):
        exact = place * (len(values) - 1) / (count - 1)
        before = min(int(exact), len(values) - 2)
        share = exact - before
        found.append(values[before] * (1 - share) + values[before + 1] * share)
    return found
