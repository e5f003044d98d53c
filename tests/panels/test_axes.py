"""A logarithmic axis is drawn only for what lies above zero."""

import pytest

from ckaudit.audit import triage_run
from ckaudit.panels.build import panels
from tests.cases import run_of


def axes(values):
    """Return whether the loss of each dashboard is on a logarithmic axis."""
    steps = list(range(1, len(values) + 1))
    run = run_of({"name": "run", "scalars": {"train_loss_raw": {"steps": steps, "values": values}}})
    drawn = [chart for tab in panels(run, triage_run(run), path=None).tabs for chart in tab.charts]
    return {chart.log for chart in drawn if chart.id == "panel_1_loss"}


@pytest.mark.parametrize("values", [[0.02, -0.01, 1e-9, -3.0, 0.0] * 12, [-2.0 - step / 60 for step in range(60)], [0.0] * 60])
def test_a_loss_that_is_not_above_zero_has_a_plain_axis(values):
    assert axes(values) == {False}


def test_a_loss_above_zero_has_a_logarithmic_one_also_where_a_value_is_no_number():
    assert axes([3.0 - step / 30 for step in range(60)]) == {True}
    assert axes([3.0, float("nan"), 2.0, float("inf"), 1.0] * 6) == {True}
