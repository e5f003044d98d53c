"""Evidence is summed so that no weight overflows and no source decides alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckaudit.audit.diagnose import confidence_of
from ckaudit.causes.cause import contradicts, supports, total
from ckaudit.contract.schema.report import Evidence

WEIGHTS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(WEIGHTS, st.sampled_from([None, "LOSS001", "grad_global_norm"]))))
def test_any_weights_give_a_probability(weights):
    found = confidence_of(total([Evidence(sentence="", weight=weight, reference=source) for weight, source in weights]))
    assert 0 <= found <= 1


def test_the_probability_is_the_logistic_and_what_is_beyond_one_strong_reason_counts_three_tenths():
    for odds, trusted in ((-700.0, -700.0), (-3.0, -3.0), (0.0, 0.0), (0.1, 0.1), (1.0, 1.0), (3.0, 1.6), (700.0, 210.7)):
        assert confidence_of(odds) == pytest.approx(1 / (1 + math.exp(-trusted)), abs=5e-4)


def test_a_source_that_repeats_itself_counts_no_more_than_its_bound():
    assert total([supports(5, "", "a"), supports(5, "", "a")]) == 6
    assert total([supports(5, "", "a"), supports(5, "", "b")]) == 10
    assert total([supports(1e300, "", "a"), contradicts(2, "", "b")]) == 4
    assert total([supports(2, "", "a"), contradicts(1, "", "a"), supports(math.nan, "")]) == 1
