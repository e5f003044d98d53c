"""Counts of tokens and updates against slow loops, and the schedule against values made by hand."""

import math

import numpy as np

from ckaudit.contract.schema.manifest import Session
from ckaudit.metrics.progress import learning_rate_over_peak, lr_phase, steps_seen, tokens_per_update, tokens_seen
from ckaudit.run.run import Run
from tests.metrics.samples import NAN, cells, close, column, run_of


def values(series):
    return {step: value for (step, _), value in cells(series).items()}


def logged(name, rows):
    return {name: {step: {name: value} for step, value in rows.items()}}


def test_counted_tokens_are_kept_and_else_added_up_over_gaps():
    assert values(tokens_seen(run_of(scalars={"tokens_seen": [5, 9], "tokens_per_update": [7, 7]}))) == {1: 5, 2: 9}
    sizes = {1: 100.0, 2: 110.0, 5: 90.0, 6: NAN, 8: 80.0}
    total, before, expected = 0.0, 0, {}
    for step, size in sizes.items():
        if not math.isnan(size):
            total += (step - before) * size
            before, expected[step] = step, total
    assert values(tokens_seen(run_of(scalars=logged("tokens_per_update", sizes)))) == expected


def test_applied_updates_are_attempts_less_skips_as_long_as_every_step_is_known():
    skipped = [1, 0, 0, 1, 1, 0, None, 1]
    run = run_of(scalars={"skipped_updates": skipped, "steps_seen": [9.0] * 8})
    expected = {step: step - sum(skipped[:step]) for step in range(1, 7)}
    assert values(steps_seen(run)) == expected | {7: 9.0, 8: 9.0}
    assert values(steps_seen(run_of(scalars={"steps_seen": [1.0, 1.0]}))) == {1: 1.0, 2: 1.0}


def test_a_log_that_begins_late_does_not_know_how_many_were_skipped():
    run = run_of(scalars=logged("skipped_updates", {5: 0.0, 6: 1.0}))
    assert not steps_seen(run)


def test_size_of_an_update_is_that_logged_or_the_mean_between_two_counts():
    seen = {10: 1000.0, 20: 3000.0, 21: 3200.0, 30: 2000.0, 31: NAN, 32: 2600.0}
    run = run_of(scalars=logged("tokens_seen", seen) | logged("tokens_per_update", {21: 199.0}))
    assert values(tokens_per_update(run)) == {20: 200.0, 21: 199.0, 32: 300.0}


def test_warm_up_is_done_by_steps_of_the_plan():
    run = run_of(scalars=logged("learning_rate", {1: 0.1, 5: 0.5, 10: 1.0, 40: 0.2}), warmup_steps=20)
    assert values(lr_phase(run)) == {1: 5.0, 5: 25.0, 10: 50.0, 40: 100.0}
    without = run_of(scalars=logged("learning_rate", {1: 0.1}) | logged("lr_phase", {1: 7.0}))
    assert values(lr_phase(without)) == {1: 7.0}


def test_rate_over_peak_against_a_loop():
    rates = [0.0, 0.1, 0.4, NAN, 0.2, 0.8]
    expected, peak = {}, 0.0
    for step, rate in enumerate(rates, 1):
        peak = max(peak, 0.0 if math.isnan(rate) else rate)
        if peak:
            expected[step] = rate / peak
    assert close(values(learning_rate_over_peak(run_of(scalars={"learning_rate": rates}))), expected)


def test_a_million_steps_take_no_loop():
    steps = np.arange(1, 1_000_001)
    series = column([1.0], name="tokens_seen")
    many = type(series)("tokens_seen", "1", steps, ("tokens_seen",), steps[:, None] * 512.0, np.ones((1_000_000, 1), bool))
    sizes = tokens_per_update(Run("long", scalars={"tokens_seen": many}))
    assert len(sizes.steps) == 999_999
    assert set(sizes.values.ravel().tolist()) == {512.0}


def test_sessions_need_no_time():
    run = run_of(scalars={"tokens_seen": [1.0, 2.0]}, sessions=[Session(), Session(start=5.0)])
    assert values(tokens_per_update(run)) == {2: 1.0}
