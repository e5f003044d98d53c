"""Fewer points: a spike of one step, in either direction or not a number at all, is always among them."""

import numpy as np
import pytest
from numpy.random import default_rng

from ckaudit.panels.downsample import evenly, kept_columns, kept_points


@pytest.mark.parametrize("seed", range(8))
def test_no_value_lies_outside_of_what_is_drawn(seed: int) -> None:
    values = default_rng(seed).normal(size=5_003).cumsum()
    kept = kept_points(values, 400)
    assert len(kept) <= 400
    assert sorted(set(kept.tolist())) == kept.tolist()
    assert {0, 5_002} <= set(kept.tolist())
    assert (values[kept].min(), values[kept].max()) == (values.min(), values.max())


@pytest.mark.parametrize("seed", range(8))
def test_every_spike_of_one_step_survives(seed: int) -> None:
    rng = default_rng(seed)
    values = rng.normal(scale=0.01, size=20_000)
    spikes = np.sort(rng.choice(np.arange(0, 20_000, 200), 30, replace=False))  # one in each stretch at most
    values[spikes] = rng.choice([-5.0, 5.0], 30)
    kept = set(kept_points(values, 800).tolist())
    assert set(spikes.tolist()) <= kept


def test_two_spikes_of_opposite_directions_beside_each_other_survive() -> None:
    values = np.zeros(10_000)
    values[5_000], values[5_001] = 9.0, -9.0
    assert {5_000, 5_001} <= set(kept_points(values, 100).tolist())


def test_what_is_not_a_number_survives_beside_both_extremes() -> None:
    values = np.sin(np.arange(9_000.0))
    values[[17, 4_444]] = np.nan, np.inf
    kept = kept_points(values, 300)
    assert len(kept) <= 300
    assert {17, 4_444} <= set(kept.tolist())


def test_nothing_but_nan_is_drawn_as_it_is() -> None:
    assert np.isnan(np.full(900, np.nan)[kept_points(np.full(900, np.nan), 100)]).all()


def test_a_map_keeps_the_step_at_which_one_of_many_rows_jumps() -> None:
    rng = default_rng(3)
    values = 10 ** rng.normal(scale=0.05, size=(1_000, 40))
    recorded = np.ones(values.shape, bool)
    values[613, 17] = 50.0
    values[207, 3] = np.nan
    recorded[400:450, 5] = False
    kept = kept_columns(values, recorded, 100)
    assert len(kept) <= 100
    assert {0, 207, 613, 999} <= set(kept.tolist())


def test_places_are_spread_evenly() -> None:
    for count in (1, 2, 7, 50):
        for most in (1, 2, 5, 60):
            found = evenly(count, most)
            assert len(found) <= min(count, most)
            assert found[0] == 0
            assert most == 1 or found[-1] == count - 1
            assert max(np.diff(found), default=0) <= -(-(count - 1) // max(1, most - 1))
