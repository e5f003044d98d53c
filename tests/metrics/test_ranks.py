from statistics import median

from ckaudit.metrics.ranks import rank_step_time, straggler_ratio
from tests.metrics.samples import NAN, cells, close, random_run, rows_of, run_of

TIME = "rank_facts.step_time"


def test_step_time_is_what_each_rank_recorded():
    run = random_run()
    assert close(cells(rank_step_time(run)), rows_of(run, TIME))


def test_straggler_ratio_is_the_slowest_over_the_median_of_what_finite_times_there_are():
    rows = {1: {"a": 1.0, "b": 2.0, "c": 6.0}, 2: {"a": 3.0}, 3: {"a": NAN, "b": 1.0, "c": 2.0}, 4: {"a": 5.0, "b": 5.0}}
    expected = {(1, "straggler_ratio"): 3.0, (3, "straggler_ratio"): 2.0 / median([1.0, 2.0]), (4, "straggler_ratio"): 1.0}
    assert close(cells(straggler_ratio(run_of({TIME: rows}))), expected)
