from statistics import median

import numpy as np
import pytest

from ckaudit.metrics.ranks import behind_others, rank_step_time, straggler_ratio
from tests.metrics.samples import NAN, cells, close, random_run, rows_of, run_of

TIME = "rank_facts.step_time"


def test_step_time_is_what_each_rank_recorded():
    run = random_run()
    assert close(cells(rank_step_time(run)), rows_of(run, TIME))


def test_straggler_ratio_is_the_slowest_over_the_median_of_what_finite_times_there_are():
    rows = {1: {"a": 1.0, "b": 2.0, "c": 6.0}, 2: {"a": 3.0}, 3: {"a": NAN, "b": 1.0, "c": 2.0}, 4: {"a": 5.0, "b": 5.0}}
    expected = {(1, "straggler_ratio"): 3.0, (3, "straggler_ratio"): 2.0 / median([1.0, 2.0]), (4, "straggler_ratio"): 1.0}
    assert close(cells(straggler_ratio(run_of({TIME: rows}))), expected)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_a_rank_is_measured_by_the_median_of_the_others_alone(ranks):
    rng = np.random.default_rng(ranks)
    labels = tuple(f"rank.{each}" for each in range(ranks))
    rows = {step: {each: float(rng.choice([1.0, 1.1, 1.3, 2.0, NAN])) for each in labels} for step in range(40)}
    expected = {}
    for step, row in rows.items():
        for label, own in row.items():
            others = [each for name, each in row.items() if name != label and np.isfinite(each)]
            if others and np.isfinite(own):
                expected[step, label] = own / median(others)
    found = behind_others(rank_step_time(run_of({TIME: rows})))
    finite = {place: value for place, value in cells(found).items() if np.isfinite(value)}
    assert close(finite, expected)
