"""Records of names and values in a box, as Stable-Baselines3 prints them."""

from collections.abc import Callable

from ckaudit.importers import Imported

Import = Callable[..., Imported]


def record(step: int, reward: float) -> str:
    rows = [
        ("rollout/", ""),
        ("   ep_rew_mean", f"{reward}"),
        ("time/", ""),
        ("   fps", "900"),
        ("   total_timesteps", f"{step}"),
    ]
    rows += [("train/", ""), ("   learning_rate", "0.0003"), ("   loss", "12.5")]
    lines = [f"| {name:<24} | {value:<11} |" for name, value in rows]
    return "\n".join(["-" * 42, *lines, "-" * 42, ""])


def test_each_record_is_a_row_by_its_timesteps(imported: Import) -> None:
    run = imported("Using cpu device\n" + "".join(record(2048 * n, 20.5 + n) for n in range(1, 6)), "ppo.log")
    assert run.source == "printed records"
    assert [row["step"] for row in run.rows] == [2048 * n for n in range(1, 6)]
    assert [row["microbench_score/rollout_ep_rew_mean"] for row in run.rows] == [20.5 + n for n in range(1, 6)]
    assert run.rows[0]["learning_rate"] == 0.0003
    assert "train_loss_raw" not in run.rows[0]
    assert any("train/loss was left out" in note and "of a policy" in note for note in run.notes)


def test_a_record_that_is_cut_off_gives_what_it_has(imported: Import) -> None:
    whole = "".join(record(2048 * n, float(n)) for n in range(1, 5))
    run = imported(whole + record(10240, 5.0).partition("| train/")[0], "ppo.log")
    assert run.rows[-1] == {"step": 10240, "microbench_score/rollout_ep_rew_mean": 5.0}
