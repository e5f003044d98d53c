"""Evidence is summed so that no weight overflows and no source decides alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckaudit.audit.confidence import CauseCandidate, ConfidenceFit, confidences
from ckaudit.causes.cause import contradicts, supports, total
from ckaudit.contract.schema.report import Evidence

WEIGHTS = st.floats(allow_nan=True, allow_infinity=True)


def candidate(cause, odds, *codes, is_supported=True, recorded_share=1.0):
    return CauseCandidate(cause, odds, codes, is_supported, recorded_share)


@given(st.lists(st.tuples(WEIGHTS, st.sampled_from([None, "LOSS001", "grad_global_norm"])), max_size=5), st.floats(-1e3, 1e3))
def test_any_weights_give_a_probability(weights, rival):
    odds = total([Evidence(sentence="", weight=weight, reference=source) for weight, source in weights])
    assert all(0 <= found <= 1 for found in confidences([candidate("a", odds, "X"), candidate("b", rival, "X")]))


def test_alone_it_is_the_logistic_of_two_slopes():
    for odds, fitted in ((-700.0, -1400.5), (-1.0, -2.5), (0.0, -0.5), (1.0, 1.5), (2.0, 2.5), (700.0, 700.5)):
        alone = confidences([candidate("a", odds, "X")], ConfidenceFit(base=-0.5, first=2.0, beyond=1.0, rivals=0.5))
        assert alone == [pytest.approx(math.exp(min(fitted, 0)) / (1 + math.exp(-abs(fitted))), abs=5e-4)]


def test_what_was_not_recorded_takes_from_the_odds_by_its_share():
    fit = ConfidenceFit(base=1.0, unrecorded=2.0, first=1.0, beyond=1.0, rivals=0.5)
    shares = [confidences([candidate("a", 0.5, "X", recorded_share=share)], fit)[0] for share in (1.0, 0.75, 0.0)]
    assert shares == [pytest.approx(1 / (1 + math.exp(-odds)), abs=5e-4) for odds in (1.5, 1.0, -0.5)]


def test_rivals_are_supported_causes_of_the_same_findings_and_take_by_their_odds():
    fit = ConfidenceFit(base=0.0, first=1.0, beyond=1.0, rivals=0.5)
    first, second = candidate("a", math.log(3), "X", "Y"), candidate("b", math.log(2), "Y", "Z")
    elsewhere, unsupported = candidate("c", 5.0, "W"), candidate("d", 5.0, "X", is_supported=False)
    found = confidences([first, second, elsewhere, unsupported], fit)
    # of odds 3, with half of 2 added to what speaks against: 3 / (3 + 1 + 1); of odds 2, with half of 3: 2 / (2 + 1 + 1.5)
    assert found[:2] == [pytest.approx(0.6, abs=5e-4), pytest.approx(2 / 4.5, abs=5e-4)]
    assert found[2:] == [pytest.approx(math.exp(5) / (1 + math.exp(5)), abs=5e-4), pytest.approx(0.983, abs=5e-4)]


def test_a_source_that_repeats_itself_counts_no_more_than_its_bound():
    assert total([supports(5, "", "a"), supports(5, "", "a")]) == 6
    assert total([supports(5, "", "a"), supports(5, "", "b")]) == 10
    assert total([supports(1e300, "", "a"), contradicts(2, "", "b")]) == 4
    assert total([supports(2, "", "a"), contradicts(1, "", "a"), supports(math.nan, "")]) == 1
