import numpy as np
import pytest

from ckaudit.metrics.divergence import divergence_step, val_rise
from tests.metrics.samples import NAN, cells, close, run_of

# trainer_state.json of two public fine-tunings of Whisper (Apache-2.0): Merlinmy/Whisper_small_hi and
# anthonyrathe/fixed-whisperv2-flemish; the training loss is the median of the last 20 logged.
HINDI = ([0.1584, 0.0269, 0.0041, 0.0006, 0.0002], [0.3075, 0.3558, 0.4214, 0.4519, 0.4679])
FLEMISH = (
    [0.2238, 0.1848, 0.1611, 0.1407, 0.106, 0.0589, 0.059, 0.0615, 0.0467, 0.0467, 0.0359, 0.0259, 0.0333, 0.0159, 0.0144],
    [0.2718, 0.26, 0.2386, 0.2415, 0.2389, 0.253, 0.2273, 0.2433, 0.2225, 0.2621, 0.2194, 0.2088, 0.2155, 0.2494, 0.2393],
)


def diverges(train, val, **limits):
    steps = np.arange(1, len(val) + 1) * 1_000
    return divergence_step(steps, np.broadcast_to(np.array(train, float), len(val)), np.array(val, float), **limits)


def first_of_the_last_widening(train, val):
    """Return F12 by its definition: the first evaluation after which every gap is wider than all since."""
    gap = [v - t for t, v in zip(train, val, strict=True)]
    best = val.index(min(val))
    for start in range(best, len(gap)):
        if all(gap[j] > gap[i] for i in range(start, len(gap)) for j in range(i + 1, len(gap))):
            return (start + 1) * 1_000
    return None


@pytest.mark.parametrize(("run", "step"), [(HINDI, 1_000), (FLEMISH, 13_000)])
def test_public_overfitted_runs_diverge(run, step):
    assert diverges(*run) == step


@pytest.mark.parametrize("shape", [(4, 4), (2, 9), (7, 3)])
def test_a_smooth_valley_diverges_where_the_definition_says(shape):
    down, up = shape
    val = [3.0 - 0.1 * i for i in range(down)] + [3.0 - 0.1 * down + 0.1 * i for i in range(up + 1)]
    train = [2.9 - 0.1 * i for i in range(len(val))]
    assert diverges(train, val) == first_of_the_last_widening(train, val) == (down + 1) * 1_000


def test_a_pause_at_the_bottom_delays_the_step():
    val = [3.0, 2.5, 2.0, 2.0, 2.0, 2.2, 2.4, 2.6]
    assert diverges(1.0, val) == 5_000 == first_of_the_last_widening([1.0] * 8, val)


def test_a_rise_that_was_taken_back_is_not_where_it_began():
    val = [3.0, 2.0, 2.8, 2.1, 2.0, 2.4, 2.8, 3.2]
    assert diverges(1.0, val) == 5_000


def test_only_the_last_of_several_falls_counts():
    val = [3.0, 2.0, 2.9, 2.1, 2.9, 2.1, 2.0, 2.3, 2.6, 2.9, 3.2, 3.5]
    assert diverges(1.0, val) == 7_000
    assert diverges(1.0, [3.0, 2.0, 2.9, 2.1, 3.9, 2.5, 2.6, 2.7, 2.8, 2.9], mads=0.0) == 6_000


def test_a_scattered_bottom_ends_where_the_rise_leaves_its_scatter():
    bottom = np.random.default_rng(4).normal(2.0, 0.01, 20)
    val = [3.0, 2.5, 2.2, 1.97, *bottom, *np.linspace(2.1, 3.0, 10)]
    assert 18_000 <= diverges(1.0, val) <= 25_000


def test_a_small_dip_on_the_way_up_does_not_start_it_anew():
    val = [3.0, 2.0, 2.3, 2.6, 2.55, 2.9, 3.2, 3.5]
    assert diverges(1.0, val) == 2_000


@pytest.mark.parametrize(
    ("why", "train", "val"),
    [
        ("still falling", 1.0, [5, 4, 3, 2, 1.5]),
        ("constant", 1.0, [2.0] * 9),
        ("two evaluations", 1.0, [1.0, 9.0]),
        ("two after the best", 1.0, [3, 2, 1, 9, 9]),
        ("0.33 % over its best, as healthy runs end", 1.0, [3.0, 2.5, 2.0256, 2.0271, 2.029, 2.0322, 2.0322]),
        ("training rises along", [1, 1, 1, 2, 3, 4], [2, 2, 2, 3, 4, 5]),
        ("no training loss", NAN, [3, 2, 3, 4, 5, 6]),
        ("no finite evaluation", 1.0, [NAN] * 6),
        ("a rise within the scatter", 1.0, [3.0, 2.2, 2.9, 2.0, 2.9, 2.1, 3.0, 2.2, 2.8, 2.1, 2.6]),
        ("one high evaluation at the end", 1.0, [3, 2.5, 2.0, 2.0, 2.0, 2.0, 9.0]),
        ("the luckiest of 40, fifth to last", 1.0, [*np.linspace(3, 2, 35), 1.7, 2.0, 2.0, 2.1, 2.1]),
        ("nothing", 1.0, []),
    ],
)
def test_healthy_runs_do_not_diverge(why, train, val):
    assert diverges(train, val) is None, why


def test_nan_evaluations_are_left_out():
    val = [3.0, NAN, 2.0, 2.2, NAN, 2.4, 2.6, 2.8]
    assert diverges(1.0, val) == 3_000


def test_among_many_evaluations_an_eighth_must_follow_the_best():
    val = [*np.linspace(3, 2, 34), 1.7, 2.0, 2.0, 2.1, 2.1, 2.1]
    assert diverges(1.0, val) == 35_000
    assert diverges(1.0, val, share=0.2) is None


def test_limits_can_be_set():
    val = [3.0, 2.0, 2.1, 2.2]
    assert diverges(1.0, val) is None
    assert diverges(1.0, val, min_evals=2) == 2_000
    assert diverges(1.0, val, min_evals=2, rise=0.2) is None


def test_flat_noise_is_rarely_taken_for_a_rise():
    rng = np.random.default_rng(1)
    for count in (8, 15, 60):
        called = [divergence_step(np.arange(count), np.ones(count), rng.normal(1.0, 0.03, count)) is not None for _ in range(300)]
        assert np.mean(called) < 0.2


def test_a_rise_beyond_its_noise_is_nearly_always_found():
    rng = np.random.default_rng(2)
    steps, val = np.arange(40), np.concatenate((np.linspace(3, 2, 20), np.linspace(2, 2.6, 20)))
    found = [divergence_step(steps, np.linspace(3, 1, 40), val + rng.normal(0, 0.03, 40)) for _ in range(200)]
    assert sum(step is not None for step in found) >= 198
    assert 15 <= np.median([step for step in found if step is not None]) <= 27


def test_rise_is_measured_from_the_best_so_far():
    run = run_of(scalars={"val_loss": {1: {"a": 4.0}, 2: {"a": 2.0, "b": -2.0}, 3: {"a": NAN, "b": -1.0}, 4: {"a": 3.0}}})
    expected = {(1, "a"): 0.0, (2, "a"): 0.0, (3, "a"): NAN, (4, "a"): 0.5, (2, "b"): 0.0, (3, "b"): 0.5}
    assert close(cells(val_rise(run)), expected)


def test_rise_over_a_loss_of_zero_is_not_recorded():
    assert cells(val_rise(run_of(scalars={"val_loss": [1.0, 0.0, 1.0]}))) == {(1, "val_loss"): 0.0}


def test_rise_before_the_first_number_is_nan():
    assert close(cells(val_rise(run_of(scalars={"val_loss": [NAN, 2.0]}))), {(1, "val_loss"): NAN, (2, "val_loss"): 0.0})
