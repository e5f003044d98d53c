import numpy as np

from ckaudit.metrics.movement import movement_rank, moving_share, spectral_growth
from ckaudit.metrics.replay import replay_first_difference, replay_identical, replay_loss_diff
from tests.metrics.samples import NAN, cells, close, run_of


def test_ranks_against_a_count():
    rng = np.random.default_rng(0)
    rows = {step: {name: float(rng.integers(0, 5)) for name in "abcdef"} for step in (10, 20, 30)}
    rows[20]["c"] = NAN
    del rows[30]["a"]
    expected = {}
    for step, row in rows.items():
        finite = [value for value in row.values() if value == value]
        for name, value in row.items():
            expected[step, name] = 1.0 + sum(other > value for other in finite) if value == value else NAN
    assert close(cells(movement_rank(run_of({"weight_deltas.*.moved": rows}))), expected)


def test_a_few_tensors_that_move_alone_are_a_small_share():
    rows = {10: {"a": 1.0, "b": 1.0, "c": 0.05, "d": 1.2}, 20: {"a": 0.0, "b": 0.0}, 30: {"a": 5.0, "b": NAN, "c": 4.0}}
    assert cells(moving_share(run_of({"weight_deltas.*.moved": rows}))) == {(10, "moving_share"): 0.75, (30, "moving_share"): 1.0}


def test_growth_of_the_spectral_norm_is_that_of_the_drill():
    rows = {0: {"qk": 1.2, "v": 0.0}, 250: {"qk": 6.0, "v": 2.0}, 500: {"qk": 14.0, "v": 3.0, "late": 4.0}}
    found = cells(spectral_growth(run_of({"weights.*.spectral_norm": rows})))
    expected = {(0, "qk"): 1.0, (250, "qk"): 5.0, (500, "qk"): 14.0 / 1.2, (250, "v"): 1.0, (500, "v"): 1.5, (500, "late"): 1.0}
    assert close(found, expected)


def test_replays_are_as_recorded():
    rows = {"replay.identical": {10: {"x": 1.0}, 20: {"x": 0.0}}, "replay.loss_diff": {20: {"x": 1e-7}},
            "replay.first_difference": {20: {"x": 13.0}}}  # fmt: skip
    run = run_of(rows)
    assert cells(replay_identical(run)) == {(10, "x"): 1.0, (20, "x"): 0.0}
    assert cells(replay_loss_diff(run)) == {(20, "x"): 1e-7}
    assert cells(replay_first_difference(run)) == {(20, "x"): 13.0}
