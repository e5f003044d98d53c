import numpy as np

from ckaudit.metrics.overhead import recording_seconds, recording_share
from ckaudit.run.run import Run
from ckaudit.run.series import single


def run_of(**columns):
    sections = {
        path.replace("_", ".", 1): single(path, "1", steps, np.array(values)) for path, (steps, values) in columns.items()
    }
    return Run("r", sections=sections)


def test_a_checkpoint_that_costs_three_steps_every_ten_takes_three_thirteenths():
    found = recording_share(run_of(cost_step_share=([10, 20, 40], [1.0, 3.0, 5.0]))).recorded_rows()
    assert found.steps.tolist() == [20, 40]
    np.testing.assert_allclose(found.values[:, 0], [3 / 13, 5 / 25])


def test_what_the_recorder_says_itself_counts_first():
    found = recording_share(run_of(cost_share=([20], [0.02]), cost_step_share=([10, 20, 30], [1.0, 1.0, 1.0])))
    found = found.recorded_rows()
    assert found.steps.tolist() == [20, 30]
    np.testing.assert_allclose(found.values[:, 0], [0.02, 1 / 11])


def test_the_time_taken_adds_up_from_share_and_steps():
    given = {"cost_share": [0.5, 0.1, 0.2], "cost_ms": [40.0, 40.0, 80.0], "cost_step_share": [2.0, 2.0, 2.0]}
    found = recording_seconds(run_of(**{name: ([10, 20, 40], values) for name, values in given.items()}))
    assert found.steps.tolist() == [10, 20, 40]
    # Ten steps of 20 ms and a ninth of that for recording; twenty of 40 ms and a quarter.
    np.testing.assert_allclose(found.values[:, 0], [0.0, 0.2 / 9, 0.2 / 9 + 0.8 / 4])


def test_where_the_log_has_a_clock_a_share_is_one_of_its_time():
    """A share of all of the time is no more than that: without the clock it would stand for any number of steps."""
    given = {"cost.share": [0.5, 1.0, 0.2], "cost.ms": [40.0, 40.0, 80.0], "cost.step_share": [2.0, 2.0, 2.0]}
    steps = [10, 20, 40]
    sections = {path: single(path, "1", steps, np.array(values)) for path, values in given.items()}
    time = single("time", "s", np.arange(1, 41), 1e9 + np.arange(1, 41) * 0.5)
    found = recording_seconds(Run("r", sections=sections, scalars={"time": time}))
    np.testing.assert_allclose(found.values[:, 0], [0.0, 5.0, 5.0 + 0.2 * 10])
    bounded = recording_seconds(Run("r", sections=sections))
    np.testing.assert_allclose(bounded.values[:, 0], [0.0, 0.02 * 10 * 9, 0.02 * 10 * 9 + 0.04 * 20 / 4])
