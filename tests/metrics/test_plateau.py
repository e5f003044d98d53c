"""Slopes against all pairs of points, chance against a recount, and the time since the last improvement against a loop."""

import math
from itertools import combinations
from statistics import median

import numpy as np
import pytest

from ckaudit.metrics.plateau import steps_since_improvement, train_loss_slope, val_slope, val_slope_p
from ckaudit.run.run import Run
from tests.metrics.samples import NAN, cells, column, run_of


def values(series):
    return {step: value for (step, _), value in cells(series).items()}


def evals(rows):
    return run_of(scalars={"val_loss": {step: {"val_loss": value} for step, value in rows.items()}})


def pairs_slope(points):
    return 1_000 * median((b - a) / (t - s) for (s, a), (t, b) in combinations(points, 2))


def test_slope_of_evaluations_in_the_last_thousand_steps_and_of_five_where_they_are_rare():
    rng = np.random.default_rng(0)
    steps = [100, 300, 500, 650, 800, 1000, 1200, 1500, 4000, 9000, 9100]
    rows = {step: 3.0 - 2e-4 * step + float(rng.normal(0, 0.01)) for step in steps}
    expected = {}
    for place, step in enumerate(steps):
        recent = [each for each in steps[: place + 1] if each >= step - 1_000]
        chosen = recent if len(recent) >= 5 else steps[max(0, place - 4) : place + 1]
        if len(chosen) >= 5:
            expected[step] = pairs_slope([(each, rows[each]) for each in chosen])
    assert values(val_slope(evals(rows))) == pytest.approx(expected)


def test_a_falling_loss_is_no_chance_and_a_flat_one_is():
    rng = np.random.default_rng(1)
    falling = {step: 3.0 - 1e-3 * step + float(rng.normal(0, 0.02)) for step in range(100, 2001, 100)}
    flat = {step: 2.0 + float(rng.normal(0, 0.02)) for step in range(100, 2001, 100)}
    assert values(val_slope_p(evals(falling)))[2000] < 0.01
    assert values(val_slope_p(evals(flat)))[2000] > 0.05
    assert abs(values(val_slope(evals(flat)))[2000]) < 0.1


def test_evaluations_at_every_step_are_not_fitted_at_every_step():
    rows = {step: 2.0 - 1e-4 * step for step in range(1, 3001)}
    found = values(val_slope(evals(rows)))
    assert len(found) <= 31
    assert all(value == pytest.approx(-0.1) for value in found.values())


def test_two_evaluations_nan_and_constants():
    assert not val_slope(evals({100: 2.0, 200: 1.0}))
    rows = dict.fromkeys(range(100, 1100, 100), 2.0) | {500: NAN}
    found = values(val_slope(evals(rows)))
    assert set(found.values()) == {0.0}
    assert 500 not in found
    assert set(values(val_slope_p(evals(rows))).values()) == {1.0}


def test_time_since_the_best_fell_by_more_than_a_thousandth():
    losses = {10: 3.0, 20: 2.5, 30: 2.4999, 40: 2.6, 50: NAN, 60: 2.49, 70: 2.4895}
    expected, best, since = {}, math.inf, 0
    for step, loss in losses.items():
        if math.isnan(loss):
            continue
        if loss < best - 1e-3 * abs(best) or best == math.inf:
            best, since = loss, step
        expected[step] = step - since
    assert values(steps_since_improvement(evals(losses))) == expected == {10: 0, 20: 0, 30: 10, 40: 20, 60: 0, 70: 10}


def test_slope_of_the_training_loss_in_windows_of_points():
    rng = np.random.default_rng(2)
    steps = np.cumsum(rng.integers(1, 9, 350))
    losses = 5.0 - 1e-3 * steps + rng.normal(0, 1e-4, 350)
    losses[::7] += 50.0 * (rng.random(50) < 0.5)
    losses[13] = NAN
    run = Run("r", scalars={"train_loss_raw": column(losses.tolist(), name="train_loss_raw", steps=steps)})
    found = values(train_loss_slope(run))
    assert len(found) == 3
    assert all(value == pytest.approx(-1.0, abs=0.02) for value in found.values())
    assert found.keys() == {int(steps[100]), int(steps[200]), int(steps[300])}
