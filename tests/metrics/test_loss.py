import math
from statistics import median

import numpy as np
import pytest

from ckaudit.metrics.loss import (
    initial_loss_excess,
    slice_val_loss,
    train_loss_at_evals,
    train_loss_ema,
    train_loss_raw,
    train_ppl,
    train_val_gap,
    val_loss,
)
from tests.metrics.samples import NAN, cells, close, run_of


def values(series):
    return {step: value for (step, _), value in cells(series).items()}


@pytest.mark.parametrize(
    ("metric", "name"), [(train_loss_raw, "train_loss_raw"), (val_loss, "val_loss"), (slice_val_loss, "slice_val_loss")]
)
def test_plain_losses_keep_their_columns_gaps_and_nan(metric, name):
    run = run_of(scalars={name: {1: {"a": 2.0, "b": NAN}, 5: {"b": 1.0}}})
    assert close(cells(metric(run)), {(1, "a"): 2.0, (1, "b"): NAN, (5, "b"): 1.0})


def test_average_against_explicit_weights():
    losses = [5.0, 4.0, 4.5, 3.0, 2.0, 2.5]
    expected = {}
    for end in range(1, len(losses) + 1):
        weights = [0.98 ** (end - 1 - i) for i in range(end)]
        expected[end] = sum(w * x for w, x in zip(weights, losses, strict=False)) / sum(weights)
    assert close(values(train_loss_ema(run_of(scalars={"train_loss_raw": losses}))), expected)


def test_average_of_a_constant_is_the_constant():
    found = values(train_loss_ema(run_of(scalars={"train_loss_raw": [3.0] * 500})))
    assert close(found, dict.fromkeys(range(1, 501), 3.0))


def test_average_passes_over_nan_and_gaps_and_goes_on():
    found = values(train_loss_ema(run_of(scalars={"train_loss_raw": [4.0, NAN, None, math.inf, 2.0]})))
    assert close(found, {1: 4.0, 2: NAN, 4: NAN, 5: (4.0 * 0.98 + 2.0) / 1.98})


def test_logged_average_counts():
    run = run_of(scalars={"train_loss_raw": [4.0, 2.0], "train_loss_ema": [9.0, 8.0]})
    assert values(train_loss_ema(run)) == {1: 9.0, 2: 8.0}
    assert close(values(train_ppl(run)), {1: math.exp(9.0), 2: math.exp(8.0)})


def test_perplexity_of_a_runaway_loss_is_infinite_without_a_warning():
    assert values(train_ppl(run_of(scalars={"train_loss_ema": [1e4]}))) == {1: math.inf}


def test_training_loss_at_evaluations_against_a_slow_loop():
    losses = [10.0 / step + (step * 7 % 5) / 10 for step in range(1, 101)]
    losses[59] = NAN
    evals = {step: {"val_loss": 1.0} for step in (1, 2, 7, 30, 65, 100, 250)}
    expected = {}
    for step in evals:
        past = [(at, loss) for at, loss in enumerate(losses, 1) if at <= step and not math.isnan(loss)]
        recent = [loss for at, loss in past if at > 0.9 * step][-20:]
        expected[step] = median(recent if len(recent) >= 3 else [loss for _, loss in past[-3:]])
    run = run_of(scalars={"train_loss_raw": losses, "val_loss": evals})
    assert close(values(train_loss_at_evals(run)), expected)


def test_one_spike_just_before_an_evaluation_does_not_move_the_gap():
    losses = [2.0] * 40
    losses[-1] = 900.0
    run = run_of(scalars={"train_loss_raw": losses, "val_loss": {40: {"val_loss": 2.5}}})
    assert values(train_val_gap(run)) == {40: 0.5}


def test_gap_uses_the_logged_average_at_or_before_the_evaluation():
    run = run_of(
        scalars={
            "train_loss_ema": {1: {"train_loss_ema": 5.0}, 10: {"train_loss_ema": 3.0}},
            "val_loss": {0: {"a": 9.0, "b": 9.0}, 9: {"a": 6.0}, 10: {"a": NAN, "b": 4.0}},
        }
    )
    assert close(cells(train_val_gap(run)), {(9, "a"): 1.0, (10, "a"): NAN, (10, "b"): 1.0})


def test_gap_needs_a_training_loss():
    assert not train_val_gap(run_of(scalars={"val_loss": [2.0, 1.0]}))


def test_the_first_loss_is_compared_with_a_uniform_guess() -> None:
    excess = initial_loss_excess(run_of(scalars={"train_loss_raw": {0: {"x": 5.0}, 1: {"x": 4.0}, 2: {"x": 3.0}}}, vocabulary=17))
    assert cells(excess) == {(1, "x"): 4.0 - math.log(17)}
    assert not initial_loss_excess(run_of(scalars={"train_loss_raw": {1: {"x": 4.0}}}, seed=1))
    assert not initial_loss_excess(run_of(scalars={"train_loss_raw": {100: {"x": 4.0}}}, vocabulary=17))


def test_the_level_at_many_evaluations_against_a_slow_loop():
    rng = np.random.default_rng(3)
    losses = rng.normal(3, 0.5, 900).tolist()
    losses[100], losses[500] = NAN, math.inf
    evals = {step: {"val_loss": 3.0} for step in [1, 2, 5, 19, 20, 21, 39, 40, 41, 99, 100, 101, *range(400, 900, 7)]}
    found = train_loss_at_evals(run_of(scalars={"train_loss_raw": losses, "val_loss": evals}))
    for step in evals:
        past = [(at, loss) for at, loss in enumerate(losses, 1) if at <= step and math.isfinite(loss)]
        recent = [loss for at, loss in past if at > 0.9 * step][-20:]
        expected = median(recent if len(recent) >= 3 else [loss for _, loss in past[-3:]])
        assert found.values[found.steps.tolist().index(step), 0] == expected


def test_in_a_log_of_epochs_the_level_is_not_that_of_ten_epochs_before():
    losses = [2.0 * 0.9**epoch for epoch in range(1, 31)]
    evals = {epoch: {"val_loss": 1.2 * loss} for epoch, loss in enumerate(losses, 1)}
    gap = train_val_gap(run_of(scalars={"train_loss_raw": losses, "val_loss": evals}))
    assert np.all(np.diff(gap.values[4:, 0]) < 0), "the gap narrows as the losses do"


def test_a_held_out_loss_that_is_logged_again_until_the_next_evaluation_counts_once():
    levels = [11.410719, 1.588975, 0.412345, 0.051234]
    logged = [level for level in levels for _ in range(5)]
    assert values(val_loss(run_of(scalars={"val_loss": logged}))) == {1: levels[0], 6: levels[1], 11: levels[2], 16: levels[3]}


@pytest.mark.parametrize(
    "logged",
    [
        [2.5, 2.31, 2.2, 2.1, 2.0, 1.9134, 1.9134, 1.9134, 1.9134, 1.9134],  # the weights stand still from the sixth on
        [2.3456] * 10,  # they never moved
        [0.69, 0.69, 0.7, 0.7, 0.69, 0.69, 0.68, 0.68, 0.69, 0.69],  # equal because they are rounded
        [2.5123, 2.3456, 2.2345, 2.1234, 2.0123, 1.9876, 1.8765, 1.7654, 1.6543, 1.5432],
    ],
)
def test_evaluations_of_their_own_are_all_kept(logged):
    assert list(values(val_loss(run_of(scalars={"val_loss": logged}))).values()) == logged
