"""The dashboards' own series and drills get the verdict that their captions give."""

import math

import numpy as np
import pytest

from ckaudit.metrics.slice_gap import tau
from ckaudit.metrics.trend import course
from tests.metrics.samples import cells, run_of

SERIES = {
    "FX-1 train loss, healthy": ([5.1, 3.9, 3.1, 2.7, 2.5, 2.4], "falling"),
    "FX-1 train loss, spiky": ([5.1, 3.9, 3.2, 3.8, 2.9, 3.6], "oscillating"),
    "FX-2 overflow, healthy": ([12, 3, 1, 0, 0, 0], "collapse"),
    "FX-2 overflow, bad": ([12, 10, 12, 15, 14, 13], "oscillating"),
    "FX-3 largest logit, bounded": ([100, 100, 95, 90, 85, 80], "falling"),
    "FX-3 largest logit, runaway": ([120, 250, 500, 850, 1100, 1150], "runaway"),
    "FX-4 entropy, healthy": ([2.2, 2.0, 2.1, 2.0, 1.9, 2.0], "steady"),
    "FX-4 entropy, collapse": ([2.2, 1.6, 0.8, 0.2, 0.1, 0.1], "collapse"),
    "FX-5 dropped tokens, healthy": ([0.2, 0.1, 0, 0, 0, 0], "collapse"),
    "FX-5 dropped tokens, bad": ([0.2, 0.6, 1.2, 1.4, 1.1, 1.3], "rising"),
    "FX-6 utilisation, stable": ([55, 56, 55, 55, 56, 55], "steady"),
    "FX-6 utilisation, drop": ([55, 54, 48, 46, 45, 46], "falling"),
    "FX-8 tax comes and goes": ([0.0, 0.4, 0.75, 1.0, 0.6, 0.35], "recovery"),
    "DR-1 activation after 100 steps": ([12.0, 18.0], "rising"),
    "DR-2 spectral norm after 500 steps": ([1.2, 14.0], "runaway"),
}


@pytest.mark.parametrize("name", SERIES)
def test_a_dashboards_series_gets_the_word_of_its_caption(name):
    values, word = SERIES[name]
    assert course(values).word == word


def test_levels_are_medians_of_the_ends():
    found = course([1.0, math.nan, 3.0, 8.0, 9.0, math.inf, 10.0, 12.0, 2.0])
    assert (found.start, found.end) == (2.0, 7.0)
    assert course([55, 54, 48, 46, 45, 46]).ratio == pytest.approx(45.5 / 54.5)


@pytest.mark.parametrize("values", [[], [1.0], [math.nan, math.nan, 2.0]])
def test_fewer_than_two_points_have_no_course(values):
    assert course(values).word == "too_few"


def test_a_constant_is_steady_and_noise_alone_mostly_is():
    assert course([0.0] * 10).word == course([3.0] * 10).word == "steady"
    rng = np.random.default_rng(0)
    words = [course((10 + rng.normal(0, 0.3, 60)).tolist()).word for _ in range(200)]
    assert words.count("steady") == 200


def test_a_spike_in_the_middle_of_a_flat_series_changes_nothing():
    values = [2.0] * 30
    values[15] = 50.0
    assert course(values).word in ("steady", "recovery")


def test_the_tax_of_the_drill():
    """DR-3 and FX-7: 1.8 nats on regular forms and 3.4 on irregular ones at step 500."""
    run = run_of(scalars={"slice_val_loss": {500: {"regular": 1.8, "irregular": 3.4}}})
    assert cells(tau(run))[500, "tau"] == pytest.approx(1.6)
