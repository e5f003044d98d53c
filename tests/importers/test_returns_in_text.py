"""Returns of episodes as programs print them, in tables without names, and in files that are named after them."""

import json

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import import_runs

RETURNS = [-20.5 + 1.5 * place for place in range(12)]
SCORE = "microbench_score/"


def known(run):
    """Return the values of each score by its name, and all other names."""
    scores: dict[str, list] = {}
    for row in run.rows:
        for name, value in row.items():
            scores.setdefault(name.removeprefix(SCORE), []).append(value)
    return scores


CONSOLES = {
    "a mean of the last": ("Episode {n}000 | Avg reward (last 1000): {r:+.1f} | Steps: 14", "avg_reward"),
    "a mean over the last": ("Episode {n}: Average reward over last 100 episodes: {r}", "average_reward"),
    "an upper case": ("EPISODE: {n} REWARD: {r}", "episode_reward"),
    "a sentence": ("Episode {n} finished after 2{n} timesteps with reward {r}", "episode_reward"),
    "a frame and a speed": ("{n}00: done {n} games, mean reward {r:.3f}, eps 0.90, speed 120 f/s", "mean_reward"),
    "Dopamine": (
        "I0101 12:00:00.0 139 run.py:40] Average undiscounted return per training episode: {r}",
        "average_undiscounted_return",
    ),
    "a mean and a median": (
        "Updates {n}0, num timesteps {n}00, FPS 9 \n Last 10 episodes: mean/median reward {r}/{r}",
        "mean_median_reward",
    ),
    "a short name beside its loss": ("Ep: {n}0, Dur: 9, Step: {n}73, Rew: {r}, Loss: 0.3, Eps: 1.0", "mean_reward"),
    "a policy of language": ("Epoch:[1/1]({n}/12), Reward: {r}, KL_ref: -0.001, Actor Loss: 0.0", "mean_reward"),
    "a step and a loss": ("iteration {n} mean reward {r} loss 0.3", "mean_reward"),
}


@pytest.mark.parametrize("console", CONSOLES)
def test_the_return_is_read_and_no_loss_beside_it(imported, console):
    line, name = CONSOLES[console]
    run = imported("".join(f"{line.format(n=n, r=value)}\n" for n, value in enumerate(RETURNS, 1)), "train.log")
    assert known(run)[name] == RETURNS
    assert "train_loss_raw" not in known(run)


def test_a_loss_beside_a_mean_reward_that_is_not_finite_is_kept(imported):
    text = "".join(f"step {n}: mean_reward={value}, loss={'nan' if n > 6 else 0.3}\n" for n, value in enumerate(RETURNS, 1))
    assert "train_loss_raw" in known(imported(text, "train.log"))


def test_a_word_in_a_sample_is_no_second_return(imported):
    lines = [f"Epoch:[1/1]({n}/12), Reward: {value}, Actor Loss: 0.0" for n, value in enumerate(RETURNS, 1)]
    run = imported("\n".join([*lines[:5], "    return 1", *lines[5:], ""]), "grpo.log")
    assert known(run)["mean_reward"] == RETURNS


def test_a_configuration_that_was_printed_first_makes_no_document_of_a_log(imported):
    lines = "".join(f"Episode {n} reward {value}\n" for n, value in enumerate(RETURNS, 1))
    assert known(imported('{\n  "floatx": "float32"\n}Built the network\n' + lines, "out.txt"))["episode_reward"] == RETURNS


@pytest.mark.parametrize(
    ("name", "text", "steps"),
    [
        ("rewards.csv", "".join(f"{value:.18e}\n" for value in RETURNS), range(1, 13)),
        ("rewards.csv", "".join(f"{1028 * n},{value}\n" for n, value in enumerate(RETURNS, 1)), range(1028, 13000, 1028)),
        ("rewards.txt", "".join(f"{n:3d} {100 * n} {value}\n" for n, value in enumerate(RETURNS, 1)), range(1, 13)),
        ("episode_rewards.txt", ",".join(map(str, RETURNS)), range(1, 13)),
        ("training_log.csv", "reward\n" + "".join(f"{value}\n" for value in RETURNS), range(1, 13)),
        ("rewards3.csv", "Total Reward\n" + "".join(f"{value}\n" for value in RETURNS), range(1, 13)),
        (
            "reward.csv",
            "Wall time,Step,Value\n" + "".join(f"{1e9 + n},{65536 * n},{value}\n" for n, value in enumerate(RETURNS, 1)),
            range(65536, 800000, 65536),
        ),
        ("log.json", json.dumps({"config": {"lr": 0.3}, "episode_rewards": RETURNS, "episode_lengths": [9] * 12}), range(1, 13)),
    ],
)
def test_numbers_are_returns_where_the_file_or_the_column_says_so(imported, name, text, steps):
    run = imported(text, name)
    values = {key: value for key, value in known(run).items() if key.startswith("episode_re")}
    assert [*values.values()] == [RETURNS]
    assert [row["step"] for row in run.rows] == list(steps)


def test_whole_numbers_are_returns_too(imported):
    returns = [-20, -21, -21, -19, -18, -20, -15]
    run = imported("".join(f"{n},{value}\n" for n, value in enumerate(returns, 1)), "rewards.csv")
    assert known(run)["episode_return"] == returns


@pytest.mark.parametrize("name", ["numbers.csv", "reward_weights.csv", "reward_model_loss.txt.csv"])
def test_numbers_of_anything_else_are_not(imported, name):
    with pytest.raises(UnreadableError):
        imported("".join(f"{value:.18e}\n" for value in RETURNS), name)


def test_a_reward_alone_is_a_mean_reward_and_one_beside_a_loss_is_not(imported):
    rows = "".join(f"{n},{value},0.5\n" for n, value in enumerate(RETURNS, 1))
    assert known(imported(f"iteration,reward,novelty\n{rows}", "log.csv"))["mean_reward"] == RETURNS
    assert "mean_reward" not in known(imported(f"iteration,reward,loss\n{rows}", "log.csv"))


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Epoch: [{n}/12],Val_PSNR: {r}, Val_SSIM: 0.94", "val_psnr"),
        ("epoch {n} PSNR: {r} SSIM: 0.71", "psnr"),
        ("[Epoch {n}] [DIV2K x2] PSNR: {r} (Best: 9.0 @epoch 1)", "psnr"),
    ],
)
def test_the_quality_of_pictures_is_a_score(imported, line, name):
    run = imported("".join(f"{line.format(n=n, r=value)}\n" for n, value in enumerate(RETURNS, 1)), "train.log")
    assert known(run)[name] == RETURNS
    assert known(run)["step"] == list(range(1, 13))


def test_a_rate_of_exploration_is_no_reward(tmp_path):
    path = tmp_path / "reward_log.csv"
    rewards = [3.0, 5.0, 4.0, 9.0, 7.0, 12.0, 15.0, 11.0]
    path.write_text("".join(f"{place},{reward},{0.99**place}\n" for place, reward in enumerate(rewards, 1)))
    (run,) = import_runs(path)
    assert [row["microbench_score/episode_return"] for row in run.rows] == rewards
