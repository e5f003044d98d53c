"""Where runs part, on recordings with a difference put in by hand."""

import numpy as np
import pytest
from msgspec.structs import replace

from ckaudit.contract.schema.diff import Unlike
from ckaudit.diff.comparability import settings
from ckaudit.diff.divergence import first_divergence
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.run.run import Labels
from tests.diff.made import both, losses, places, run


def test_runs_of_one_training_part_at_the_first_bit():
    loss, other = losses(0), losses(0)
    other[249] = np.nextafter(other[249], 9)
    found = first_divergence(both(run(train_loss_raw=loss), run(train_loss_raw=other)))
    assert found.shared_until == 249
    assert found.departures[0].statistic == "train_loss_raw"
    assert found.departures[0].step == 250
    assert found.departures[0].band == 0.0
    assert not found.is_same


def test_equal_runs_are_the_same_though_their_clocks_differ():
    one, two = (run(train_loss_raw=losses(0), step_time=losses(seed)) for seed in (1, 2))
    found = first_divergence(both(one, two))
    assert found.is_same
    assert found.departures == ()


def test_within_one_step_the_cause_comes_before_what_follows_and_the_first_layer_before_the_last():
    steps, labels = [100, 200, 300], ("a.0", "a.1", "a.2")
    before = [[1.0, 1.0, 1.0]] * 2
    paths = ("weights.*.frobenius_norm", "gradients.*.norm", "activations.*.rms")
    one = {path: places(path, [*before, [1, 1, 1]], labels, steps) for path in paths}
    two = {path: places(path, [*before, [1, 2, 2]], labels, steps) for path in paths}
    left, right = (run(train_loss_raw=losses(0), sections=each) for each in (one, two))
    found = first_divergence(both(left, right)).departures
    told = [(each.statistic, each.where) for each in found]
    names = ("activation_rms", "gradient_norm", "weight_norm")
    assert told == [(name, label) for name in names for label in ("a.1", "a.2")]
    assert {each.step for each in found} == {300}


def test_a_tensor_that_only_one_recorded_is_a_difference():
    path = "gradients.*.norm"
    one = {path: places(path, [[1, 2], [1, 2]], "ab", [100, 200])}
    two = {path: places(path, [[1, 2], [1, np.nan]], "ab", [100, 200])}
    found = first_divergence(both(*(run(train_loss_raw=losses(0), sections=each) for each in (one, two))))
    assert (found.departures[0].step, found.departures[0].where, found.departures[0].right) == (200, "b", None)
    assert "not recorded in the second" in found.departures[0].message


def test_a_nan_on_one_side_is_a_difference():
    other = losses(0)
    other[99] = np.nan
    found = first_divergence(both(run(train_loss_raw=losses(0)), run(train_loss_raw=other)))
    assert (found.departures[0].step, found.departures[0].right) == (100, "NaN")


def test_replicas_do_not_part():
    told = [
        bool(first_divergence(both(*(run(train_loss_raw=losses(s)) for s in (seed, seed + 50)))).departures) for seed in range(40)
    ]
    assert sum(told) <= 1


@pytest.mark.parametrize("jump", [0.4, 0.8])
def test_a_level_that_moves_is_found_near_its_step(jump):
    moved = losses(1)
    moved[200:] += jump
    found = first_divergence(both(run(train_loss_raw=losses(0)), run(train_loss_raw=moved)))
    assert abs(found.departures[0].step - 201) <= 20
    assert found.shared_until is None


def test_a_spike_that_is_gone_is_no_parting():
    moved = losses(1)
    moved[200:215] += 1.0
    assert not first_divergence(both(run(train_loss_raw=losses(0)), run(train_loss_raw=moved))).departures


def test_the_learning_rate_has_no_noise():
    rates = np.full(400, 1e-3), np.full(400, 1e-3)
    rates[1][300:] = 1.01e-3
    left, right = (run(train_loss_raw=losses(seed), learning_rate=rate) for seed, rate in zip((0, 1), rates, strict=True))
    found = first_divergence(both(left, right)).departures[0]
    assert (found.statistic, found.step, found.band) == ("learning_rate", 301, 0.0)


def test_a_rate_that_follows_the_loss_is_no_change_unless_the_loss_parts_as_well():
    held, early, late = np.full(400, 1e-3), np.full(400, 1e-3), np.full(400, 1e-3)
    early[250:] /= 10
    late[330:] /= 10
    sides = [run(train_loss_raw=losses(seed), learning_rate=rate) for seed, rate in ((0, early), (1, late))]
    found = first_divergence(both(*sides), one_plan=True)
    assert (found.departures, "from step 251 on" in found.aside) == ((), True)
    assert first_divergence(both(*sides)).departures[0].statistic == "learning_rate"
    ramp = np.minimum(np.arange(400) / 50, 1) * 1e-3
    warm = [run(train_loss_raw=losses(seed), learning_rate=rate) for seed, rate in ((0, ramp), (1, ramp**1.1))]
    assert first_divergence(both(*warm), one_plan=True).departures[0].statistic == "learning_rate"
    first = [run(train_loss_raw=losses(seed), learning_rate=rate) for seed, rate in ((0, held), (1, held * 2))]
    assert first_divergence(both(*first), one_plan=True).departures[0].step == 1
    apart = losses(1)
    apart[255:] += 0.5
    parted = first_divergence(both(sides[0], run(train_loss_raw=apart, learning_rate=late)), one_plan=True)
    assert [each.statistic for each in parted.departures[:2]] == ["learning_rate", "train_loss_raw"]
    assert parted.departures[0].message.endswith("it follows the loss")


def test_seeds_whose_rounded_losses_begin_alike_are_not_one_training():
    left, right = (np.round(losses(seed, scale=0.02), 1) for seed in (0, 1))
    right[:6] = left[:6]
    assert first_divergence(both(run(train_loss_raw=left), run(train_loss_raw=right))).shared_until is None
    assert first_divergence(both(run(train_loss_raw=left), run(train_loss_raw=left))).is_same


def test_tokens_of_padded_batches_are_chance_and_another_batch_size_is_not():
    draw = np.random.default_rng(0)
    padded = [run(train_loss_raw=losses(seed), tokens_per_update=draw.integers(900, 1000, 400)) for seed in (0, 1)]
    assert not first_divergence(both(*padded)).departures
    fixed = [run(train_loss_raw=losses(seed), tokens_per_update=np.full(400, 1000 * (seed + 1))) for seed in (0, 1)]
    assert first_divergence(both(*fixed)).departures[0].statistic == "tokens_per_update"


def test_what_is_another_quantity_in_each_is_left_out():
    left, right = run(train_loss_raw=losses(0)), run(train_loss_raw=losses(1, level=3.0))
    assert first_divergence(both(left, right)).departures
    assert not first_divergence(both(left, right), without=[train_loss_raw]).departures


def test_places_follow_where_the_run_has_parted():
    draw, path = np.random.default_rng(0), "gradients.*.norm"
    steps, labels = range(10, 410, 10), [f"a.{number}" for number in range(30)]
    one, two = (np.exp(draw.normal(0, 0.05, (40, 30))) for _ in range(2))
    two[20:, 7] *= 3
    sections = ({path: places(path, each, labels, list(steps))} for each in (one, two))
    left, right = (run(train_loss_raw=losses(seed, level=seed), sections=each) for seed, each in enumerate(sections))
    found = [each for each in first_divergence(both(left, right)).departures if each.where]
    assert [(each.where, each.step) for each in found] == [("a.7", 210)]


def weights(norms):
    """Make the norms of two tensors at step 0."""
    return {"weights.*.frobenius_norm": places("weights.*.frobenius_norm", [norms], "ab", [0])}


def of_one_seed(loss, *, norms=(1.234567, 2.345678), batch="x", seed=1, **scalars):
    """Make a run with a seed, a first batch, and weights at step 0."""
    made = run(train_loss_raw=loss, sections=weights(norms), **scalars)
    words = {"batch_hash": {"batch_hash": Labels("batch_hash", (1,), (batch,))}}
    return replace(made, texts=words["batch_hash"], manifest=replace(made.manifest, seed=seed))


def test_a_change_from_the_first_step_on_is_found_there():
    loss, other = losses(0), losses(0)
    other[1:] += np.linspace(0.001, 0.3, 399)
    found = first_divergence(both(of_one_seed(loss), of_one_seed(other)))
    assert (found.departures[0].step, found.shared_until) == (2, 1)
    other[0] += 0.01
    assert first_divergence(both(of_one_seed(loss), of_one_seed(other))).departures[0].step == 1
    drawn_larger = of_one_seed(losses(3), norms=(5.0, 9.0))
    assert first_divergence(both(of_one_seed(loss), drawn_larger)).departures[0].statistic == "weight_norm"


@pytest.mark.parametrize("told", [{"batch": "y"}, {"seed": 2, "norms": (1.3, 2.2)}])
def test_another_order_or_another_seed_begins_no_training_anew(told):
    found = first_divergence(both(of_one_seed(losses(0)), of_one_seed(losses(1), **told)))
    assert (found.departures, found.shared_until) == ((), None)


def test_the_last_bit_of_a_rate_hides_no_change():
    rate, rounded = np.full(400, 3e-4), np.full(400, np.nextafter(3e-4, 1))
    loss, changed = losses(0), losses(0)
    changed[249:] += 0.2
    found = first_divergence(
        both(run(train_loss_raw=loss, learning_rate=rate), run(train_loss_raw=changed, learning_rate=rounded))
    )
    assert (found.departures[0].statistic, found.departures[0].step) == ("train_loss_raw", 250)
    found = first_divergence(both(run(train_loss_raw=loss, learning_rate=rate), run(train_loss_raw=loss, learning_rate=rounded)))
    assert (found.departures, found.is_same, found.is_rounding) == ((), False, True)
    assert "last digits" in found.aside
    rounded[299:] *= 1.001
    found = first_divergence(both(run(train_loss_raw=loss, learning_rate=rate), run(train_loss_raw=loss, learning_rate=rounded)))
    assert (found.departures[0].statistic, found.departures[0].step) == ("learning_rate", 300)


def test_rounding_that_grows_is_no_change_and_a_leap_out_of_it_is():
    loss = losses(0)
    rounded = loss * (1 + np.minimum(1e-8 * 1.05 ** np.arange(400), 5e-6))
    found = first_divergence(both(of_one_seed(loss), of_one_seed(rounded)))
    assert (found.is_rounding, found.is_same) == (True, False)
    rounded[249:] += 0.1
    found = first_divergence(both(of_one_seed(loss), of_one_seed(rounded)))
    assert (found.departures[0].step, found.is_rounding, found.is_rounded) == (250, False, True)
    assert "equal but for rounding" in found.departures[0].message


def test_a_setting_that_differs_acts_from_the_first_step_on_where_the_runs_leave_the_noise():
    setting = Unlike(name="config.weight_decay", kind="config", left="0.0", right="5.0", message="weight_decay is 5 and 0")
    interval = Unlike(name="config.eval_every", kind="config", left="10", right="20", message="...")
    left, far, near = (run(train_loss_raw=losses(seed, level=level)) for seed, level in ((0, 0.0), (1, 2.0), (2, 0.0)))
    found = first_divergence(both(left, far), settings=settings([setting, interval])).departures
    assert (found[0].statistic, found[0].step, found[0].right) == ("config.weight_decay", 1, 5.0)
    assert all(each.statistic != "config.eval_every" for each in found)
    assert not first_divergence(both(left, near), settings=settings([setting])).departures


def test_a_loss_that_becomes_no_number_parts_from_the_seed_of_another_run():
    broken = losses(1)
    broken[200:] = np.nan
    found = first_divergence(both(run(train_loss_raw=losses(0)), run(train_loss_raw=broken))).departures[0]
    assert (found.step, found.right) == (201, "NaN")
