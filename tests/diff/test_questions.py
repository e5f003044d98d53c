"""Questions to two runs, on recordings whose answer is known."""

import numpy as np
import pytest

from ckaudit.contract.schema.diff import Unlike
from ckaudit.diff.questions import loss_and_cost, questions
from tests.diff.made import both, losses, places, run


def ask(name, pair, unlike=()):
    return questions()[name](pair, list(unlike))[0]


def test_the_catalogue_is_in_its_order():
    assert [each.place for each in questions().values()] == list(range(1, len(questions()) + 1))
    assert all(each.title.endswith("?") for each in questions().values())


@pytest.mark.parametrize("name", questions())
def test_nothing_recorded_is_said_and_never_called_the_same(name):
    answer = ask(name, both(run(), run()))
    assert answer.word == ("same" if name == "health" else "not_recorded")
    assert name == "health" or "either run" in answer.message


@pytest.mark.parametrize(("level", "word"), [(0.0, "within_noise"), (0.3, "worse"), (-0.3, "better")])
def test_the_smoothed_loss(level, word):
    answer = ask("smoothed_loss", both(run(train_loss_raw=losses(0)), run(train_loss_raw=losses(1, level=level))))
    assert answer.word == word
    assert answer.left == pytest.approx(np.median(losses(0)[-20:]))
    assert (abs(answer.right - answer.left) <= answer.band) == (word == "within_noise")


def test_a_loss_may_fall_from_the_smallest_number_that_there_is_to_zero():
    tiny = np.array([5e-324] * 30 + [0.0] * 30)
    answer = ask("steps_to_loss", both(run(train_loss_raw=tiny), run(train_loss_raw=tiny)))
    assert answer.left == answer.right


def test_a_last_batch_may_be_a_hard_one():
    hard = losses(1)
    hard[-1] += 0.12
    pair = both(run(train_loss_raw=losses(0)), run(train_loss_raw=hard))
    assert ask("final_loss", pair).word == "within_noise"
    hard[-1] += 5
    assert ask("final_loss", both(run(train_loss_raw=losses(0)), run(train_loss_raw=hard))).word == "worse"


def test_half_a_batch_is_judged_at_equal_tokens():
    curve = lambda steps, seed: 2 + 2 * np.exp(-steps / 60) + np.random.default_rng(seed).normal(0, 0.05, len(steps))  # noqa: E731
    full, half = np.arange(1, 401), np.arange(1, 401)
    left = run(train_loss_raw=curve(full, 0), tokens_seen=full * 100)
    right = run(train_loss_raw=curve(half / 2, 1), tokens_seen=half * 50)
    answer = ask("loss_at_equal_tokens", both(left, right))
    assert answer.word == "within_noise"
    assert "2e+04 tokens" in answer.message


def test_twice_the_steps_to_a_loss_is_worse():
    steps = np.arange(400)
    slow, fast = (2 + 2 * np.exp(-steps / pace) + np.random.default_rng(pace).normal(0, 0.01, 400) for pace in (200, 100))
    answer = ask("steps_to_loss", both(run(train_loss_raw=fast), run(train_loss_raw=slow)))
    assert answer.word == "worse"
    assert answer.left == pytest.approx(200, abs=15)
    assert answer.right == pytest.approx(395, abs=15)


def test_evaluations_and_their_slices():
    steps = list(range(50, 401, 50))
    held = np.linspace(3, 2, 8)
    one = run(train_loss_raw=losses(0), val_loss=run(steps=steps, val_loss=held).scalar("val_loss"))
    two = run(train_loss_raw=losses(1), val_loss=run(steps=steps, val_loss=held + 0.3).scalar("val_loss"))
    assert ask("validation_loss", both(one, two)).word == "worse"
    slices = [places("slice_val_loss", np.stack([held, held + extra], axis=1), ("easy", "hard"), steps) for extra in (0, 0.6)]
    one, two = (run(train_loss_raw=losses(seed), slice_val_loss=each) for seed, each in enumerate(slices))
    answer = ask("validation_slices", both(one, two))
    assert answer.word == "worse"
    assert "hard" in answer.message


def test_five_spikes_against_none_are_more_than_chance_and_one_is_not():
    spiky = losses(1, count=1000)
    for start in range(150, 950, 160):
        spiky[start : start + 5] += 3.0
    calm, once = losses(0, count=1000), losses(2, count=1000)
    once[500:505] += 3.0
    answer = ask("stability", both(run(train_loss_raw=calm), run(train_loss_raw=spiky)))
    assert (answer.left, answer.right, answer.word) == (0, 5, "within_noise")
    for start in range(230, 950, 160):
        spiky[start : start + 5] += 3.0
    assert ask("stability", both(run(train_loss_raw=calm), run(train_loss_raw=spiky))).word == "worse"
    assert ask("stability", both(run(train_loss_raw=calm), run(train_loss_raw=once))).word == "within_noise"


def test_losses_that_are_no_number_are_worse_than_any_spike():
    broken = losses(1)
    broken[300:] = np.nan
    answer = ask("stability", both(run(train_loss_raw=losses(0)), run(train_loss_raw=broken)))
    assert (answer.word, answer.left, answer.right) == ("worse", 0, 100)


def test_a_level_behind_a_median_that_overflows_is_reached_at_its_point():
    steps, down = np.array([10.0, 20.0, 30.0]), np.array([np.inf, 1e308, 1e308])
    assert loss_and_cost._reached(steps, down, 1e308) == 20.0
    assert loss_and_cost._reached(steps, np.array([3.0, 1.0, 1.0]), 2.0) == 15.0


@pytest.mark.parametrize("name", ["final_loss", "smoothed_loss", "loss_at_equal_tokens", "steps_to_loss"])
def test_a_loss_that_ended_as_no_number_is_at_no_level(name):
    good, broken, seen = losses(0), losses(1) - 1, np.arange(1, 401) * 512.0
    broken[300:] = np.nan
    sides = run(train_loss_raw=good, tokens_seen=seen), run(train_loss_raw=broken, tokens_seen=seen)
    assert ask(name, both(*sides)).word == "worse"
    assert ask(name, both(*reversed(sides))).word == "better"
    assert "at step 400 is no number in the second" in ask(name, both(*sides)).message


@pytest.mark.parametrize("name", ["final_loss", "smoothed_loss", "steps_to_loss"])
def test_a_loss_that_drops_to_exactly_zero_was_not_computed(name):
    good, dropped = losses(0), losses(1)
    dropped[300:] = 0.0
    assert ask(name, both(run(train_loss_raw=good), run(train_loss_raw=dropped))).word == "worse"


def test_a_loss_that_is_rounded_to_zero_at_its_end_is_the_lower_one():
    solved = np.round(losses(1, count=600, end=0.0, scale=0.0), 2)
    assert solved[-1] == 0 < solved[200]
    assert ask("final_loss", both(run(train_loss_raw=losses(0, count=600, end=0.5)), run(train_loss_raw=solved))).word == "better"


def test_speed_is_judged_by_its_own_noise_decides_nothing_and_a_shared_machine_explains_itself():
    steady = np.random.default_rng(0).normal(1.0, 0.01, 400)
    for factor, word in ((1.1, "worse"), (5.0, "worse"), (0.7, "better"), (1.01, "within_noise")):
        answer, decides = questions()["speed"](both(run(step_time=steady), run(step_time=steady * factor)), [])
        assert (answer.word, decides) == (word, False)
    others = [run(step_time=steady * factor) for factor in (0.8, 1.3)]
    assert ask("speed", both(run(step_time=steady), run(step_time=steady * 1.1), replicas=others)).word == "within_noise"
    shared = steady * np.repeat([1.0, 1.6, 1.1, 1.9, 1.3], 80)
    assert ask("speed", both(run(step_time=steady), run(step_time=shared))).word == "within_noise"


def test_a_run_that_ends_where_one_of_the_good_ones_did_is_no_worse_than_they_are():
    far, near = losses(1, level=0.8), [losses(seed) for seed in (2, 3, 4, 5)]
    goods = [run(train_loss_raw=each) for each in (*near, far)]
    again = both(goods[0], run(train_loss_raw=far + 1e-6), replicas=goods[1:])
    assert ask("smoothed_loss", again).word == "within_noise"
    beyond = both(goods[0], run(train_loss_raw=far + 3.0), replicas=goods[1:])
    answer = ask("smoothed_loss", beyond)
    assert answer.word == "worse"
    assert answer.left == pytest.approx(np.mean([np.median(each[-20:]) for each in (*near, far)]))
    assert "(mean of 5 runs)" in answer.message


def test_memory_is_the_most_that_was_used():
    answer = ask("memory", both(run(gpu_mem_used=[2**30, 2**31]), run(gpu_mem_used=[2**30, 3 * 2**30])))
    assert (answer.word, answer.left, answer.right) == ("worse", 2**31, 3 * 2**30)


def test_clip_rate():
    draw = np.random.default_rng(0)
    clipped = [np.where(draw.random(400) < share, 0.5, 1.0) for share in (0.1, 0.1, 0.9)]
    runs = [run(clip_coefficient=each) for each in clipped]
    assert ask("clip_rate", both(runs[0], runs[1])).word in ("within_noise", "same")
    answer, grave = questions()["clip_rate"](both(runs[0], runs[2]), [])
    assert (answer.word, grave) == ("worse", False)


def test_what_is_not_alike_leaves_a_question_without_an_answer():
    alike = Unlike(name="vocabulary", kind="tokenizer", invalidates=["validation_loss"], message="another vocabulary")
    pair = both(run(train_loss_raw=losses(0)), run(train_loss_raw=losses(1)))
    for name in ("validation_loss", "validation_slices"):
        answer = ask(name, pair, [alike])
        assert answer.word == "incomparable"
        assert "another vocabulary" in answer.message
    assert ask("smoothed_loss", pair, [alike]).word == "within_noise"


def test_a_replica_that_ended_early_does_not_tell_the_noise_of_the_end():
    left, right = run(train_loss_raw=losses(0)), run(train_loss_raw=losses(1, level=0.3))
    far, short = run(train_loss_raw=losses(2, level=3.0)), run(train_loss_raw=losses(2, level=3.0)[:200])
    assert ask("smoothed_loss", both(left, right, replicas=[far])).word == "within_noise"
    assert ask("smoothed_loss", both(left, right, replicas=[short])).word == "worse"
