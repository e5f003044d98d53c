"""Returns of episodes under the names of many programs, and the axis of a table that counts episodes."""

import pytest

from ckaudit.audit import triage
from ckaudit.contract.schema.score_names import EPISODE_RETURN
from ckaudit.importers import ImportOptions, import_source
from ckaudit.importers.names import catalogue_name, recognise_columns

SCORE = "microbench_score/"


def values(run, name):
    return {row["step"]: row[SCORE + name] for row in run.rows if SCORE + name in row}


@pytest.mark.parametrize(
    ("logged", "known"),
    [
        ("mean 100 episode reward", "mean_100_episode_reward"),  # OpenAI's baselines: deepq, a2c, trpo_mpi, ddpg
        ("mean 100ep reward", "mean_100ep_reward"),
        ("eprewmean", "eprewmean"),
        ("EpRewMean", "ep_rew_mean"),
        ("rollout/return", "rollout_return"),
        ("eval/return", "eval_return"),
        ("RawAverageReturn", "raw_average_return"),  # rllab
        ("TrueAverageReturn", "true_average_return"),
        ("AverageReturn", "average_return"),
        ("Evaluation/AverageReturn", "evaluation_average_return"),  # garage
        ("exploration/Returns Mean", "exploration_returns_mean"),  # rlkit
        ("AverageEpRet", "average_ep_ret"),  # Spinning Up
        ("ep_reward_mean", "ep_reward_mean"),
        ("Episode Reward", "episode_reward"),
        ("evaluation/episode_reward_mean", "evaluation_episode_reward_mean"),  # RLlib
        ("Environment/Cumulative Reward", "environment_cumulative_reward"),  # ML-Agents
        ("Train/mean_reward", "train_mean_reward"),  # rsl_rl
        ("Reward / Total reward (mean)", "reward_total_reward_mean"),  # skrl
        ("episode/score", "episode_score"),  # Dreamer
        ("avg_reward_100", "avg_reward_100"),
        ("mean_reward_last_100_episodes", "mean_reward_last_100_episodes"),
        ("portfolio_return", None),
        ("RawMaxReturn", None),
        ("eval_return_std", None),
        ("reward", None),
        ("rewards/chosen", None),
        ("average_score", None),
    ],
)
def test_the_mean_return_is_known_by_many_names(logged, known):
    assert catalogue_name(logged) == (known and SCORE + known)
    assert known is None or EPISODE_RETURN.search(known)


def test_the_table_of_baselines_goes_by_its_steps(imported):
    text = "% time spent exploring,episodes,mean 100 episode reward,steps\n" + "".join(
        f"{97 - n},{100 * n},{-989.4 + n},{1147 * n}\n" for n in range(1, 20)
    )
    run = imported(text, "progress.csv")
    assert values(run, "mean_100_episode_reward") == {1147 * n: -989.4 + n for n in range(1, 20)}
    assert run.manifest.loss_kind == "other"


@pytest.mark.parametrize("counter", ["TimestepsSoFar", "TotalEnvInteracts", "time/total_timesteps", "TotalEnvSteps"])
def test_steps_of_an_environment_go_before_epochs(imported, counter):
    text = f"Epoch,EpRewMean,{counter},loss\n" + "".join(f"{n},{n * 2.5},{1024 * n},0.5\n" for n in range(1, 5))
    run = imported(text, "progress.csv")
    assert values(run, "ep_rew_mean") == {1024 * n: n * 2.5 for n in range(1, 5)}
    assert "train_loss_raw" not in run.table.names


def test_rows_of_another_table_in_between_are_left_out_and_counted(imported):
    header = "vf_loss_before,RawAverageReturn,TrueAverageReturn,SurrogateLoss"
    rows = [f"0.3,{6.5 + n},{11.5 + n},-0.1\n[0.27 0.72],[0.1 0.6],[0.3 0.8]" for n in range(8)]
    run = imported("\n".join([header, rows[0], "MeanGateDist,MinGateDist,MaxGateDist", *rows[1:], ""]), "progress.csv")
    assert [*values(run, "raw_average_return").values()] == [6.5 + n for n in range(8)]
    assert [*values(run, "true_average_return").values()] == [11.5 + n for n in range(8)]
    assert any("9 rows are not as wide as the header" in note for note in run.notes)


def episodes(*columns, count=40, first=1):
    """Return a table with a row for each episode; lengths go up and down."""
    cells = {"episode": lambda n: n + first, "steps": lambda n: 20 + n % 7, "reward": lambda n: 2.0 * n, "loss": lambda n: 0.5}
    cells |= {"Episode": cells["episode"], "i_episode": cells["episode"], "step": lambda n: 100 * (n + 1)}
    cells |= {"total_reward": lambda n: 3.0 * n, "epsilon": lambda n: 1 / (n + 1), "rewards": cells["reward"]}
    rows = (",".join(str(cells[name](n)) for name in columns) for n in range(count))
    return "\n".join([",".join(columns), *rows, ""])


@pytest.mark.parametrize("count", ["episode", "Episode", "i_episode"])
def test_episodes_are_the_axis_where_steps_are_their_lengths(imported, count):
    run = imported(episodes(count, "reward", "steps", "epsilon", "loss", first=2001), "training_log.csv")
    assert values(run, "episode_return") == {2001 + n: 2.0 * n for n in range(40)}
    assert run.manifest.step_unit == "epoch"
    assert any(note.startswith(f"episodes are the axis, step N here is the end of the N-th, by {count}") for note in run.notes)
    assert any("loss was left out: beside rewards of rollouts" in note for note in run.notes)


def test_episodes_that_count_from_zero_are_counted_from_one(imported):
    run = imported(episodes("episode", "rewards", first=0), "training_log.csv")
    assert values(run, "episode_return") == {n + 1: 2.0 * n for n in range(40)}


def test_steps_that_count_stay_the_axis_beside_episodes(imported):
    run = imported(episodes("episode", "step", "reward"), "training_log.csv")
    assert values(run, "episode_return") == {100 * (n + 1): 2.0 * n for n in range(40)}
    assert any("step could also be episode" in note for note in run.notes)


def test_the_column_that_the_user_names_is_the_axis_whatever_it_says(tmp_path):
    path = tmp_path / "training_log.csv"
    path.write_text(episodes("episode", "reward", "steps", count=6))
    run = import_source(path, import_options=ImportOptions(columns={"step": "steps"}))
    assert values(run, "episode_return") == {20 + n: 2.0 * n for n in range(6)}


def test_a_reward_beside_the_return_of_the_episode_is_none(imported):
    run = imported(episodes("episode", "reward", "total_reward"), "training_log.csv")
    assert run.table.names == (f"{SCORE}total_reward",)
    assert recognise_columns(["step", "loss", "reward", "reward_std"]) == {"step": [0], f"{SCORE}mean_reward": [2]}


def test_episodes_in_which_several_rows_were_logged_are_no_axis(imported):
    text = "episode,reward,loss\n" + "".join(f"{n // 5},{n},0.5\n" for n in range(30))
    run = imported(text, "training_log.csv")
    assert values(run, "episode_return") == {n + 1: float(n) for n in range(30)}


def test_a_return_of_episodes_is_judged_alone(tmp_path):
    path = tmp_path / "training_log.csv"
    path.write_text(episodes("episode", "reward", "steps", "loss"))
    report = triage(path)
    assert (report.findings, report.judged) == ([], "limited")
    assert "in its scores, which alone could be judged" in report.verdict


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Episode {n}/500, Reward: {value}, Epsilon: 0.9, Loss: 0.25", "episode_reward"),
        ("Episode {n}\tAverage Score: {value}", "episode_score"),
        ("episode: {n}/1000, score: {value}, e: 0.5", "episode_score"),
        ("Episode {n}, total reward: {value}", "total_reward"),
    ],
)
def test_the_reward_in_a_line_of_an_episode_is_its_return(imported, line, name):
    run = imported("".join(line.format(n=n, value=2.5 * n) + "\n" for n in range(1, 20)), "train.log")
    assert (run.source, values(run, name)) == ("epoch text log", {n: 2.5 * n for n in range(1, 20)})
    assert run.table.names == (SCORE + name,)


def test_the_reward_in_a_line_of_an_epoch_is_none(imported):
    run = imported("".join(f"Epoch {n}, reward: {n}.5, loss: 0.{n}\n" for n in range(1, 9)), "train.log")
    assert run.table.names == ("train_loss_raw",)
