import json
from itertools import pairwise

import numpy as np
import pytest

from ckaudit.metrics.optimizer import clip_coefficient, grad_clip_rate, learning_rate, loss_scale, overflow_rate, skipped_updates
from ckaudit.run.read import read_run
from tests.metrics.samples import NAN, cells, close, run_of


def values(series):
    return {step: value for (step, _), value in cells(series).items()}


def test_learning_rate_keeps_a_column_for_each_group():
    run = run_of(scalars={"learning_rate": {1: {"decay": 1e-3, "no_decay": 2e-3}, 2: {"decay": 1e-4}}})
    assert cells(learning_rate(run)) == {(1, "decay"): 1e-3, (1, "no_decay"): 2e-3, (2, "decay"): 1e-4}


def test_learning_rates_of_checkpoints_count_where_none_was_logged(tmp_path):
    for step, rates in ((10, [0.1, 0.2]), (20, [0.05, 0.1])):
        groups = [{"learning_rate": rate} for rate in rates]
        text = json.dumps({"schema_version": "ck.analysis.v1", "step": step, "optimizer": {"name": "SGD", "groups": groups}})
        (tmp_path / f"analysis_checkpoint_step_{step:08d}.json").write_text(text)
    found = cells(learning_rate(read_run(tmp_path, reads=learning_rate.paths)))
    assert found == {(10, "group0"): 0.1, (10, "group1"): 0.2, (20, "group0"): 0.05, (20, "group1"): 0.1}
    (tmp_path / "scalars.jsonl").write_text('{"step": 10, "learning_rate": 0.3}\n')
    assert list(cells(learning_rate(read_run(tmp_path, reads=learning_rate.paths))).values()) == [0.3]


def test_overflow_rate_is_as_logged():
    assert values(overflow_rate(run_of(scalars={"overflow_rate": [12.0, None, 3.0]}))) == {1: 12.0, 3: 3.0}


def test_clipping_without_a_known_limit_is_what_is_left_of_the_norm():
    given = {2: {"optimizer.gradient_norm": 1.0}, 4: {"optimizer.gradient_norm": 3.9999}, 6: {"optimizer.gradient_norm": 1.0}}
    run = run_of({"optimizer.gradient_norm": given}, {"grad_global_norm": [4.0, 4.0, 4.0, 4.0, 4.0]})
    assert close(values(clip_coefficient(run)), {2: 0.25, 4: 1.0})
    limited = run_of({"optimizer.gradient_norm": given}, {"grad_global_norm": [4.0, 4.0]}, clip_norm=2.0)
    assert values(clip_coefficient(limited)) == {1: 0.5, 2: 0.5}


def test_clip_coefficient_is_the_limit_over_the_norm_and_never_more_than_one():
    run = run_of(scalars={"grad_global_norm": [0.5, 1.0, 4.0, NAN, 0.0, None]}, clip_norm=1.0)
    assert close(values(clip_coefficient(run)), {1: 1.0, 2: 1.0, 3: 0.25, 4: NAN, 5: 1.0})


def test_the_checkpoints_limit_counts_before_that_of_the_manifest():
    sections = {"optimizer.clip_norm": {2: {"optimizer.clip_norm": 2.0}}}
    run = run_of(sections, {"grad_global_norm": [4.0, 4.0, 8.0]}, clip_norm=1.0)
    assert values(clip_coefficient(run)) == {2: 0.5, 3: 0.25}


def test_recorded_coefficient_counts_before_a_computed_one():
    sections = {"optimizer.clip_coefficient": {2: {"optimizer.clip_coefficient": 0.9}}}
    run = run_of(sections, {"grad_global_norm": [4.0, 4.0], "clip_coefficient": [None, 0.7, 0.6]}, clip_norm=1.0)
    assert values(clip_coefficient(run)) == {1: 0.25, 2: 0.9, 3: 0.6}


def test_without_a_limit_nothing_is_known_of_clipping():
    assert not clip_coefficient(run_of(scalars={"grad_global_norm": [4.0]}))
    assert not clip_coefficient(run_of(scalars={"grad_global_norm": [4.0]}, seed=1))


def test_clip_rate_against_a_slow_loop():
    factors = [0.5 if step % 3 == 0 or 150 < step < 180 else 1.0 for step in range(250)]
    found = values(grad_clip_rate(run_of(scalars={"clip_coefficient": factors})))
    expected = {}
    for end in range(10, 251):
        last = factors[max(end - 100, 0) : end]
        expected[end] = sum(factor < 1 for factor in last) / len(last)
    assert close(found, expected)


def test_clip_rate_counts_points_not_steps_and_a_nan_norm_clips_nothing():
    factors = [0.5, None, NAN, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, None, 0.5]
    assert close(values(grad_clip_rate(run_of(scalars={"clip_coefficient": factors}))), {12: 0.3})


@pytest.mark.parametrize(
    ("metric", "scalar", "path"),
    [(loss_scale, "loss_scale", "optimizer.loss_scale"), (skipped_updates, "skipped_updates", "optimizer.found_inf")],
)
def test_checkpoints_fill_what_the_log_lacks(metric, scalar, path):
    run = run_of({path: {2: {path: 1.0}, 4: {path: 1.0}}}, {scalar: [0.0, 0.0]})
    assert values(metric(run)) == {1: 0.0, 2: 0.0, 4: 1.0}


def test_overflow_rate_against_a_loop_over_skips_then_scale_drops_then_as_logged():
    rng = np.random.default_rng(3)
    skips = (rng.random(250) < 0.1).astype(float)
    expected = {end: 100 * skips[max(0, end - 100) : end].mean() for end in range(10, 251)}
    found = overflow_rate(run_of(scalars={"skipped_updates": skips.tolist(), "overflow_rate": [9.0] * 5}))
    logged = {(step, "overflow_rate"): 9.0 for step in range(1, 6)}
    assert close(cells(found), logged | {(step, "overflow_rate"): value for step, value in expected.items()}, 1e-9)
    scale = np.where(skips > 0, 0.5, 2.0).cumprod().clip(1e-30, 1e30).tolist()
    drops = [0.0] + [float(after < before) for before, after in pairwise(scale)]
    expected = {(end, "overflow_rate"): 100 * np.mean(drops[max(0, end - 100) : end]) for end in range(10, 251)}
    assert close(cells(overflow_rate(run_of(scalars={"loss_scale": scale}))), expected, 1e-9)


def test_a_logged_clip_rate_counts_where_no_limit_is_known():
    run = run_of(scalars={"grad_clip_rate": [0.5], "grad_global_norm": [2.0]})
    assert values(grad_clip_rate(run)) == {1: 0.5}


def test_a_norm_of_a_part_beside_that_of_all_limits_nothing():
    norms = {step: {"grad_global_norm": 4.0, "actor": 1.0} for step in range(1, 13)}
    run = run_of(scalars={"grad_global_norm": norms}, clip_norm=2.0)
    assert values(clip_coefficient(run)) == dict.fromkeys(range(1, 13), 0.5)
    assert values(grad_clip_rate(run)) == {10: 1.0, 11: 1.0, 12: 1.0}
