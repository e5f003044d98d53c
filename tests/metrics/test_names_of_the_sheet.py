"""The formula sheet's own names lead to the metrics that compute them."""

import pytest

from ckaudit.explain.names import is_known
from ckaudit.metrics.catalogue import entries


@pytest.mark.parametrize(
    ("name", "metric", "row"), [("tau", "irregular_tax", "F14"), ("grad_to_weight", "gradient_to_weight", "F16")]
)
def test_a_name_of_the_sheet_is_known(name, metric, row):
    entry = entries()[metric]
    assert name in entry.also_called
    assert row in entry.rows
    assert is_known(name)
