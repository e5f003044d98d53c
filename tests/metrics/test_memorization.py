"""The memorization protocol on probes made by hand."""

import math

import pytest

from ckaudit.metrics.memorization import (
    forgetting,
    memorization_curve,
    memorization_gap,
    memorization_stage,
    probe_group_perplexity,
    probe_overlap,
    worst_forgetting,
)
from tests.metrics.samples import NAN, cells, close, run_of

HELD = {"probes.*.held_out": {0: {"a": 0.0, "b": 0.0, "out": 1.0}}}
MATCH = {
    0: {"a": 0.0, "b": 0.0, "out": 0.0},
    100: {"a": 0.1, "b": 0.1, "out": 0.08},
    500: {"a": 0.5, "b": 0.3, "out": 0.2},
    2000: {"a": 0.9, "b": 0.7, "out": 0.3},
    5000: {"a": 1.0, "b": 0.9, "out": 0.3},
}


def values(series):
    return {step: value for (step, _), value in cells(series).items()}


def test_the_playbooks_curve_goes_through_its_five_stages():
    run = run_of({"probes.*.exact_match": MATCH, **HELD})
    curve = {step: 100 * (row["a"] + row["b"]) / 2 for step, row in MATCH.items()}
    assert values(memorization_curve(run)) == pytest.approx(curve)
    assert values(memorization_stage(run)) == {0: 0, 100: 1, 500: 2, 2000: 3, 5000: 4}


def test_the_gap_to_held_out_probes_is_a_difference():
    run = run_of({"probes.*.exact_match": MATCH, **HELD})
    expected = {step: (row["a"] + row["b"]) / 2 - row["out"] for step, row in MATCH.items()}
    assert values(memorization_gap(run)) == pytest.approx(expected)
    assert not memorization_gap(run_of({"probes.*.exact_match": MATCH}))


def test_overlap_and_perplexity_by_group():
    overlap = {10: {"a": 0.5, "b": 0.7, "out": 0.2}}
    losses = {10: {"a": 1.0, "b": 2.0, "out": 3.0}}
    run = run_of({"probes.*.overlap": overlap, "probes.*.loss": losses, **HELD})
    assert cells(probe_overlap(run)) == pytest.approx({(10, "train"): 0.6, (10, "held_out"): 0.2})
    found = cells(probe_group_perplexity(run))
    assert found == pytest.approx({(10, "train"): math.exp(1.5), (10, "held_out"): math.exp(3.0)})


def test_forgetting_is_measured_from_the_best_so_far():
    perplexity = {1: {"a": 8.0, "b": 5.0}, 2: {"a": 2.0, "b": NAN}, 3: {"a": 6.0, "b": 4.0}, 4: {"a": 1.0}}
    run = run_of({"probes.*.perplexity": perplexity})
    expected = {(1, "a"): 1.0, (1, "b"): 1.0, (2, "a"): 1.0, (2, "b"): NAN, (3, "a"): 3.0, (3, "b"): 1.0, (4, "a"): 1.0}
    assert close(cells(forgetting(run)), expected)
    assert values(worst_forgetting(run)) == {1: 1.0, 2: 1.0, 3: 3.0, 4: 1.0}
