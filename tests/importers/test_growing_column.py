"""Columns that grow line by line hold what was put there, and nothing in between."""

import numpy as np

from ckaudit.importers.tables.growing_column import GrowingColumn
from ckaudit.importers.tables.numbers import Numbers
from ckaudit.importers.text.line_reader import step_lines


def test_cells_between_those_that_were_put_are_not_recorded():
    column = GrowingColumn()
    column.put(0, 1.5)
    column.put(3, None)
    column.put(4, float("nan"))
    column.fill(6)
    cells = column.numbers()
    np.testing.assert_array_equal(cells.values, [1.5, np.nan, np.nan, np.nan, np.nan, np.nan])
    assert cells.recorded.tolist() == [True, False, False, False, True, False]


def test_pieces_stand_one_behind_the_other():
    column = GrowingColumn()
    for start in (0, 3):
        column.add(Numbers(np.arange(start, start + 3.0), np.array([True, False, True])))
    assert len(column) == 6
    assert column.numbers().values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert column.numbers().recorded.tolist() == [True, False, True] * 2


def test_lines_are_taken_one_by_one():
    rows = step_lines((line, 10 * line, {"loss": 1.0 * line} | ({"val": 2.0} if line == 2 else {})) for line in (1, 2, 5))
    assert rows.steps.tolist() == [10, 20, 50]
    assert rows.origin.lines.tolist() == [1, 2, 5]
    assert rows.columns["loss"].values.tolist() == [1.0, 2.0, 5.0]
    assert rows.columns["val"].recorded.tolist() == [False, True, False]
