"""Two series on a common axis, against hand-made clocks."""

import numpy as np
import pytest

from ckaudit.diff.align import common_axis, pair_series
from tests.diff.made import places, run, scalar


def test_by_step_the_common_steps_count():
    left, right = scalar("x", [1, 2, 3, 4], [1, 2, 3, 4]), scalar("x", [20, 30, 50], [2, 3, 5])
    found = pair_series(left, right, common_axis(run(), run(), "step"))
    assert found.steps.tolist() == [2, 3]
    assert found.left[:, 0].tolist() == [2, 3]
    assert found.right[:, 0].tolist() == [20, 30]
    assert found.apart == 0


def test_logs_at_other_steps_give_the_last_value_before_and_say_how_old_it_is():
    left, right = scalar("x", [10, 20, 30], [10, 20, 30]), scalar("x", [1, 2, 3], [13, 24, 35])
    found = pair_series(left, right, common_axis(run(), run(), "step"))
    assert found.left[:, 0].tolist() == [10, 20, 30]
    assert found.steps.tolist() == [13, 24, 35]
    assert found.apart == 5


def test_a_run_that_ended_long_ago_stands_beside_nothing():
    left, right = scalar("x", [1, 2], [10, 20]), scalar("x", [1, 2, 3], [15, 25, 90])
    assert pair_series(left, right, common_axis(run(), run(), "step")).steps.tolist() == [15, 25]


def test_by_tokens_half_a_batch_takes_two_steps():
    left = run(tokens_seen=[100, 200, 300], train_loss_raw=[3, 2, 1])
    right = run(tokens_seen=[50, 100, 150, 200, 250, 300, 350], train_loss_raw=[7, 6, 5, 4, 3, 2, 1])
    how = common_axis(left, right, "tokens")
    found = pair_series(left.scalar("train_loss_raw"), right.scalar("train_loss_raw"), how)
    assert found.steps.tolist() == [2, 3, 4, 5, 6]
    assert found.left[:, 0].tolist() == [3, 3, 2, 2, 1]


def test_equal_tokens_at_equal_steps_are_the_axis_of_steps():
    seen, other = [100, 200, 300], [100, 200, 350]
    left, right = run(tokens_seen=seen, x=[1, 2, 3]), run(tokens_seen=seen, x=[1, 2, 4])
    assert common_axis(left, right, "tokens").axis == "step"
    assert common_axis(left, run(tokens_seen=other), "tokens").axis == "tokens"
    assert common_axis(left, run(tokens_seen=scalar("tokens_seen", seen, [10, 20, 30])), "tokens").axis == "tokens"


def test_by_time_a_pause_between_sessions_does_not_count():
    from ckaudit.contract.schema.manifest import Manifest, Session
    from ckaudit.run.run import Run

    sessions = [Session(start=0.0), Session(start=1000.0)]
    paused = Run(
        name="r",
        manifest=Manifest(schema_version="ck.run.v1", sessions=sessions),
        scalars={"time": scalar("time", [1, 2, 1001, 1002]), "x": scalar("x", [1, 2, 3, 4])},
    )
    whole = run(time=[1, 2, 3, 4])
    how = common_axis(paused, whole, "time")
    assert how.matching_steps(np.array([1, 2, 3])).tolist() == [1, 3, 4]


@pytest.mark.parametrize(("axis", "missing"), [("tokens", "tokens_seen"), ("loss", "train_loss_raw"), ("time", "time")])
def test_an_axis_that_is_not_recorded_says_what_is_missing(axis, missing):
    assert common_axis(run(), run(), axis).missing == missing


def test_by_loss_a_run_twice_as_fast_is_met_at_half_the_step():
    slow, fast = 4 * np.exp(-np.arange(400) / 100), 4 * np.exp(-np.arange(400) / 50)
    how = common_axis(run(train_loss_raw=fast), run(train_loss_raw=slow), "loss")
    met = how.matching_steps(np.array([200, 300]))
    # the average of the last fifty steps lags the curve by about as much in both
    assert np.all(np.abs(met / np.array([200, 300]) - 0.6) < 0.15)


def test_cells_of_one_side_are_told_only_where_others_were_recorded():
    one = places("x", [[1, 2], [1, 2], [1, 2]], "ab")
    two = places("x", [[1, 2], [1, np.nan], [np.nan, np.nan]], "ab")
    found = pair_series(one, two, common_axis(run(), run(), "step"))
    assert found.one_sided.tolist() == [[False, False], [False, True], [False, False]]
    assert found.cell(1, 1) == (2.0, None)


def test_nan_equals_nan_and_nothing_else():
    found = pair_series(scalar("x", [np.nan, np.nan, 1]), scalar("x", [np.nan, 1, 1]), common_axis(run(), run(), "step"))
    assert found.unequal[:, 0].tolist() == [False, True, False]
