"""Tau against subtraction by hand, its trend against all pairs, and the ways to name its two slices."""

from statistics import median

import numpy as np
import pytest
from msgspec.structs import replace

from ckaudit.metrics.slice_gap import tau, tau_trend, tau_trend_p
from ckaudit.metrics.trend import theil_sen
from tests.metrics.samples import NAN, cells, close, run_of


def values(series):
    return {step: value for (step, _), value in cells(series).items()}


def of_slices(rows, **facts):
    return run_of(scalars={"slice_val_loss": rows}, **facts)


def test_tau_is_irregular_minus_regular():
    rows = {500: {"regular": 1.8, "irregular": 3.4}, 600: {"regular": 1.0}, 700: {"regular": NAN, "irregular": 1.0}}
    assert close(values(tau(of_slices(rows))), {500: 3.4 - 1.8, 700: NAN})


def test_other_slices_have_no_tau():
    assert not tau(of_slices({1: {"code": 1.0, "regular": 2.0}}))


def test_losses_of_the_batch_will_do_at_the_steps_that_have_both():
    run = run_of(
        scalars={
            "loss_regular": {1: {"loss_regular": 2.0}, 3: {"loss_regular": 1.5}},
            "loss_irregular": {1: {"loss_irregular": 2.1}, 2: {"loss_irregular": 9.0}, 3: {"loss_irregular": 2.5}},
        }
    )
    assert close(values(tau(run)), {1: 0.1, 3: 1.0}, 1e-9)


def test_held_out_slices_count_before_those_of_the_batch():
    run = run_of(
        scalars={
            "loss_regular": {1: {"loss_regular": 0.0}},
            "loss_irregular": {1: {"loss_irregular": 9.0}},
            "slice_val_loss": {1: {"regular": 1.0, "irregular": 1.25}},
        }
    )
    assert close(values(tau(run)), {1: 0.25})


@pytest.mark.parametrize("named", ["run.json", "user", "both"])
def test_any_two_slices_can_be_named(named):
    rows = {1: {"prose": 2.0, "code": 1.0, "verse": 3.5}}
    facts = {"run.json": {"tau_slices": ("code", "verse")}, "user": {}, "both": {"tau_slices": ("code", "prose")}}[named]
    run = of_slices(rows, **facts)
    run = run if named == "run.json" else replace(run, tau_slices=("code", "verse"))
    assert close(values(tau(run)), {1: 2.5})


def test_a_scalar_of_any_name_is_a_slice():
    run = run_of(
        scalars={"easy_loss": {1: {"easy_loss": 1.0}}, "hard": {1: {"loss": 1.5}}}, tau_slices=("easy_loss", "hard/loss")
    )
    assert close(values(tau(run)), {1: 0.5})


def test_a_logged_tau_counts_where_its_losses_were_not_logged():
    assert close(values(tau(run_of(scalars={"tau": {1: {"tau": 0.7}}}))), {1: 0.7})
    assert not tau(run_of(scalars={"tau": {1: {"tau": 0.7}}}, tau_slices=("code", "prose")))


def test_tau_trend_against_all_pairs():
    taxes = {0: 0.0, 100: 0.4, 200: 0.9, 300: 0.7, 400: 0.5, 500: 0.45}
    rows = {step: {"regular": 1.0, "irregular": 1.0 + tax} for step, tax in taxes.items()}
    rows[350] = {"regular": NAN, "irregular": 1.0}
    found = values(tau_trend(of_slices(dict(sorted(rows.items())))))
    expected = {}
    for end in (200, 300, 400, 500):
        past = [(step, tax) for step, tax in taxes.items() if step <= end]
        expected[end] = 1_000 * median((b - a) / (t - s) for i, (s, a) in enumerate(past) for t, b in past[i + 1 :])
    assert close(found, expected, 1e-9)


def test_two_evaluations_make_no_trend():
    assert not tau_trend(of_slices({1: {"regular": 1, "irregular": 2}, 2: {"regular": 1, "irregular": 3}}))


def test_chance_of_the_trend_is_that_of_its_points():
    rows = {step: {"regular": 1.0, "irregular": 1.0 + 0.1 * index**0.5} for index, step in enumerate(range(0, 900, 100))}
    run = of_slices(rows)
    found = values(tau_trend_p(run))
    assert found.keys() == values(tau_trend(run)).keys()
    taxes = [row["irregular"] - 1.0 for row in rows.values()]
    assert found[800] == theil_sen(np.arange(9.0), np.array(taxes)).p < 0.001


def test_the_tax_of_the_drill():
    """DR-3 and FX-7: 1.8 nats on regular forms and 3.4 on irregular ones at step 500."""
    run = run_of(scalars={"slice_val_loss": {500: {"regular": 1.8, "irregular": 3.4}}})
    assert cells(tau(run))[500, "tau"] == pytest.approx(1.6)
