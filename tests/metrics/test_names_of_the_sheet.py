"""The formula sheet's own names lead to the metrics that compute them."""

import pytest

from ckaudit.explain.names import is_known, pages_of
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import entries


@pytest.mark.parametrize(
    ("name", "row"), [("divergence_step", "F12"), ("tau", "F14"), ("spike_flags", "F15"), ("grad_to_weight", "F16")]
)
def test_a_name_of_the_sheet_is_a_metric_with_its_own_page(name, row):
    assert row in entries()[name].rows
    assert name in metrics()
    (page,) = pages_of(name)
    assert page.name == name


@pytest.mark.parametrize("name", ["irregular_tax", "gradient_to_weight", "loss_spike_flag"])
def test_former_names_are_still_known(name):
    assert is_known(name)
