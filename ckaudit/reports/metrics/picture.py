"""The picture below the table of one metric with several labels: a map of labels by steps, or of one step ranked bars."""

from msgspec.structs import replace

from ckaudit.audit.measure import Measured
from ckaudit.contract.numbers import Number, to_word
from ckaudit.reports.terminal.maps import heatmap, ranked
from ckaudit.reports.terminal.paragraph import fit
from ckaudit.reports.terminal.style import paint, shown
from ckaudit.reports.view import View
from ckaudit.run.series import Series


def picture(measured: Measured, view: View, width: int) -> list[str]:
    """Return the lines of the picture and an empty one; nothing for a single label, or where no value is finite."""
    series = measured.series.recorded_rows()
    if len(series.labels) < 2:
        return []
    series = replace(series, labels=tuple(shown(label, view) for label in series.labels))
    rows = [(label, _cells(series, place)) for place, label in enumerate(series.labels)]
    if len(series.steps) == 1:
        lines = ranked([(name, values[0]) for name, values in rows], unit=measured.unit, width=width, unicode=view.unicode)
    else:
        lines = heatmap(rows, series.steps.tolist(), unit=measured.unit, width=width, unicode=view.unicode)
    title = [paint(line, "bold", view) for line in fit(shown(measured.title, view), width)]
    return [*title, *lines, ""] if lines else []


def _cells(series: Series, place: int) -> list[Number | None]:
    cells = zip(series.values[:, place].tolist(), series.recorded[:, place].tolist(), strict=True)
    return [to_word(value) if known else None for value, known in cells]
