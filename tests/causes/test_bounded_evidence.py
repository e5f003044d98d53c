"""Evidence is summed so that no weight overflows and no source decides alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckaudit.audit.diagnose import _logistic
from ckaudit.causes.cause import contradicts, supports, total
from ckaudit.contract.schema.report import Evidence

WEIGHTS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(WEIGHTS, st.sampled_from([None, "LOSS001", "grad_global_norm"]))))
def test_any_weights_give_a_probability(weights):
    found = _logistic(total([Evidence(sentence="", weight=weight, reference=source) for weight, source in weights]))
    assert 0 <= found <= 1


def test_the_probability_is_the_logistic_where_that_can_be_computed():
    for odds in (-700.0, -3.0, -0.1, 0.0, 0.1, 3.0, 700.0):
        assert _logistic(odds) == pytest.approx(1 / (1 + math.exp(-odds)), abs=5e-4)


def test_a_source_that_repeats_itself_counts_no_more_than_its_bound():
    assert total([supports(5, "", "a"), supports(5, "", "a")]) == 6
    assert total([supports(5, "", "a"), supports(5, "", "b")]) == 10
    assert total([supports(1e300, "", "a"), contradicts(2, "", "b")]) == 4
    assert total([supports(2, "", "a"), contradicts(1, "", "a"), supports(math.nan, "")]) == 1
