"""Published scaling laws must come out of points made by their own formulas, and a run that leaves its law must show it."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.scaling import (
    entropy_floor,
    fit_power_law,
    loss_above_floor,
    scaling_law_exponent,
    scaling_law_residual,
    unigram_entropy,
)
from ckaudit.run.run import Run
from tests.metrics.samples import NAN, cells, column, run_of


def chinchilla(tokens, parameters=70e9):
    """Hoffmann et al. 2022, equation 10."""
    return 1.69 + 406.4 / parameters**0.34 + 410.7 / tokens**0.28


def kaplan(tokens):
    """Kaplan et al. 2020, equation 1.2."""
    return (5.4e13 / tokens) ** 0.095


def test_chinchilla_is_recovered_from_its_own_points():
    tokens = np.geomspace(1e8, 1.4e12, 200)
    law = fit_power_law(tokens, chinchilla(tokens))
    assert law.exponent == pytest.approx(0.28, rel=1e-4)
    assert law.scale == pytest.approx(410.7, rel=1e-3)
    assert law.offset == pytest.approx(1.69 + 406.4 / 70e9**0.34, rel=1e-4)


def test_kaplan_is_recovered_from_its_own_points():
    tokens = np.geomspace(1e7, 2e10, 200)
    law = fit_power_law(tokens, kaplan(tokens))
    assert law.exponent == pytest.approx(0.095, rel=1e-3)
    assert law.offset == pytest.approx(0.0, abs=5e-3)


def test_spikes_do_not_bend_the_fit_and_errors_are_about_as_large_as_the_scatter_of_fits():
    rng = np.random.default_rng(0)
    steps = np.arange(100.0, 20_000.0, 10.0)
    found = []
    for _ in range(12):
        noisy = 2.0 + 30.0 * steps**-0.5 + rng.normal(0, 0.02, len(steps))
        noisy[rng.random(len(steps)) < 0.03] += 5.0
        found.append(fit_power_law(steps, noisy, groups=8))
    offsets = np.array([law.offset for law in found])
    assert np.median(offsets) == pytest.approx(2.0, abs=0.02)
    scatter, estimated = offsets.std(), np.median([law.offset_error for law in found])
    assert 0.3 < estimated / scatter < 4.0


def test_a_constant_has_no_scale():
    law = fit_power_law(np.arange(1.0, 100.0), np.full(99, 3.0))
    assert law.at(np.array([5.0, 500.0])) == pytest.approx([3.0, 3.0])


def losses(steps, rng=None):
    curve = 1.5 + 8.0 * steps**-0.3
    return curve if rng is None else curve + rng.normal(0, 0.01, len(steps))


def series(steps, values):
    return column(values.tolist(), name="train_loss_raw", steps=steps)


def test_a_run_on_its_law_has_no_residual_and_a_step_change_is_its_own_size():
    steps = np.arange(1, 3001)
    values = losses(steps, np.random.default_rng(1))
    values[2500:] += 0.4
    residual = scaling_law_residual(Run("r", scalars={"train_loss_raw": series(steps, values)}))
    found = residual.values[:, 0]
    assert not residual.recorded[:50].any()
    assert residual.recorded[50:].all()
    assert abs(np.median(found[1000:2500])) < 0.01
    assert np.median(found[2500:2600]) == pytest.approx(0.4, abs=0.03)


def test_log_spaced_points_tokens_and_nan():
    steps = np.unique(np.geomspace(1, 1e6, 400).astype(int))
    values = losses(steps * 1.0)
    values[200] = NAN
    tokens = column((steps * 4096.0).tolist(), name="tokens_seen", steps=steps)
    run = Run("r", scalars={"train_loss_raw": series(steps, values), "tokens_seen": tokens})
    found = scaling_law_residual(run).values[:, 0]
    assert math.isnan(found[200])
    assert np.nanmax(np.abs(found[60:])) < 1e-3
    exponent, floor = scaling_law_exponent(run), entropy_floor(run)
    assert exponent.labels == ("exponent", "error")
    assert exponent.values[-1, 0] == pytest.approx(0.3, rel=1e-3)
    assert floor.values[-1, 0] == pytest.approx(1.5, rel=1e-3)
    assert floor.values[-1, 1] < 0.01


def test_distance_to_the_floor():
    steps = np.arange(1, 801)
    run = Run("r", scalars={"train_loss_raw": series(steps, losses(steps))})
    assert exactly(loss_above_floor(run), {800: 8.0 * 790.5**-0.3}, 0.02)


def exactly(found, expected, tolerance):
    return all(abs(cells(found)[step, "loss_above_floor"] - value) < tolerance for step, value in expected.items())


def test_a_million_points_are_fitted_in_a_few_seconds():
    steps = np.arange(1, 1_000_001)
    run = Run("r", scalars={"train_loss_raw": series(steps, losses(steps * 1.0, np.random.default_rng(2)))})
    assert np.median(np.abs(scaling_law_residual(run).values[100_000:])) < 0.02


@pytest.mark.parametrize(
    ("ways", "match", "expected"),
    [
        ({"a": "bidirectional"}, None, False),
        ({"a": "causal", "b": "cross"}, None, False),
        ({"a": "causal"}, None, True),
        ({}, None, True),
        ({"a": "bidirectional"}, 1.0, True),
        ({"a": "bidirectional"}, 0.1, False),
        ({"a": "causal"}, 0.1, True),
    ],
)
def test_the_tokens_of_the_inputs_tell_nothing_of_masked_words_or_a_translation(ways, match, expected):
    rows = {"data.token_histogram": {10: {"b.0": 2.0, "b.1": 1.0}}}
    if match is not None:
        rows["data.target_shift_match"] = {10: {"data.target_shift_match": match}}
    run = replace(run_of(rows), manifest=Manifest(schema_version="ck.run.v1", attention=ways))
    assert bool(unigram_entropy(run)) is expected


@pytest.mark.parametrize(("source", "expected"), [("ckaudit recorder 0.1.0", False), ("mine", True)])
def test_tokens_that_our_recorder_counted_without_a_declared_vocabulary_may_be_a_classifiers(source, expected):
    rows = {"data.token_histogram": {10: {"b.0": 2.0, "b.1": 1.0}}}
    facts = Manifest(schema_version="ck.run.v1", source=source)
    assert bool(unigram_entropy(replace(run_of(rows), manifest=facts))) is expected
    declared = Manifest(schema_version="ck.run.v1", source=source, vocabulary=2, attention={"a": "causal"})
    assert unigram_entropy(replace(run_of(rows), manifest=declared))


@pytest.mark.parametrize(
    ("source", "ways", "match", "expected"),
    [
        ("ckaudit recorder 0.1.0", {}, None, False),  # such as masked words, in a model whose attention is not seen
        ("ckaudit recorder 0.1.0", {}, 1.0, True),
        ("ckaudit recorder 0.1.0", {}, 0.1, True),
        ("ckaudit recorder 0.1.0", {"a": "causal"}, None, True),
        ("mine", {}, None, True),
    ],
)
def test_our_recorder_says_how_targets_relate_to_inputs_where_it_sees_both(source, ways, match, expected):
    rows = {"data.token_histogram": {10: {"b.0": 2.0, "b.1": 1.0}}}
    if match is not None:
        rows["data.target_shift_match"] = {10: {"data.target_shift_match": match}}
    facts = Manifest(schema_version="ck.run.v1", source=source, vocabulary=2, attention=ways)
    assert bool(unigram_entropy(replace(run_of(rows), manifest=facts))) is expected


def test_unigram_entropy_by_hand():
    counts = {10: {"b.0": 2.0, "b.1": 1.0, "b.2": 1.0, "b.3": 0.0}, 20: {"b.0": 5.0, "b.1": 0.0, "b.2": 0.0, "b.3": 0.0}}
    found = cells(unigram_entropy(run_of({"data.token_histogram": counts})))
    assert found == {(10, "unigram_entropy"): pytest.approx(1.5 * math.log(2)), (20, "unigram_entropy"): 0.0}


def test_a_logged_residual_counts_without_a_loss():
    assert cells(scaling_law_residual(run_of(scalars={"scaling_law_residual": [0.1]}))) == {(1, "scaling_law_residual"): 0.1}


def test_a_fit_at_its_bound_has_no_error():
    steps = np.arange(100.0, 10_000.0, 10.0)
    noise = np.random.default_rng(3).normal(0, 0.01, len(steps))
    below = fit_power_law(steps, 30.0 * steps**-0.2 - 2.0 + noise, groups=8)
    assert (below.offset, math.isnan(below.offset_error), math.isnan(below.exponent_error)) == (0.0, True, False)
    steep = fit_power_law(steps, 2.0 + (steps / 100) ** -5.0 + noise, groups=8)
    assert steep.exponent == pytest.approx(3.0, rel=0.01)
    assert math.isnan(steep.offset_error)
    assert math.isnan(steep.exponent_error)


def test_the_error_of_a_floor_at_zero_is_not_recorded():
    steps = np.arange(1, 201)
    falling = Run("r", scalars={"train_loss_raw": series(steps, 9.0 - np.log(steps))})
    floor = entropy_floor(falling)
    assert cells(floor)[200, "floor"] == 0.0
    assert (200, "error") not in cells(floor)
