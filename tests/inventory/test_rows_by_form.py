"""Every row of the playbook in every form: what is judged there is found, and a healthy run is left alone."""

import pytest

from tests.inventory.rows_by_form import FORMS, HERE, MAP, Judged, cells, document, input_of, problem, report, rows
from tests.inventory.sources import ids
from tests.loops import for_each

SHOWN = [
    (form, row, cell)
    for form in FORMS
    if form != "recorder"
    for row, cell in cells()[form].items()
    if isinstance(cell, Judged) and not cell.open and row not in MAP
]
WRITTEN = sorted({input_of(form, row) for form, row, _ in SHOWN})


def test_every_row_has_a_cell_in_every_form():
    assert set(rows()) < set(ids())
    for form in FORMS:
        assert set(cells()[form]) >= set(rows()), form


@pytest.mark.parametrize("form", WRITTEN)
def test_a_healthy_run_is_left_alone(form):
    found = report(form, "")
    assert [each.message for each in found.findings if each.severity != "note"] == []
    assert [each.id for phase in found.interview for each in phase.answers if each.word == "bad"] == []


@for_each(("form", "row", "cell"), SHOWN)
def test_what_is_judged_is_found_and_the_healthy_run_has_an_answer(form, row, cell):
    assert problem(form, row, cell) == ""


def test_the_document_is_the_one_on_file():
    on_file = (HERE.parents[1] / "docs" / "rows-by-form.md").read_text(encoding="utf-8")
    assert on_file == document(), "run python -m tests.inventory.rows_by_form"
