"""What Unity ML-Agents prints of a behavior's episodes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported, import_runs

Import = Callable[..., Imported]
LINE = "[INFO] {name}. Step: {step}. Time Elapsed: {time:.3f} s. Mean Reward: {reward:.3f}. Std of Reward: 0.267. Training.\n"
NOTHING = "[INFO] {name}. Step: {step}. Time Elapsed: 9.100 s. No episode was completed since last summary. Training.\n"


def line(step: int, reward: float, name: str = "Cart3D") -> str:
    return LINE.format(name=name, step=step, time=step / 700, reward=reward)


def rewards(run: Imported) -> list[tuple[float | str, float | str]]:
    return [(row["step"], row["microbench_score/mean_reward"]) for row in run.rows]


def test_the_mean_reward_is_a_return_at_its_step(imported: Import) -> None:
    text = "Version information:\n  ml-agents: 0.30.0,\n" + line(10240, -0.499) + NOTHING.format(name="Cart3D", step=20480)
    text += line(30720, 1.25).replace("s. Mean", "s. Rank: 0. Mean") + line(40960, 2.5).replace(
        "Std", "Mean Group Reward: 9.000. Std"
    )
    run = imported(text, "train.log")
    assert run.source == "Unity ML-Agents console"
    assert rewards(run) == [(10240, -0.499), (30720, 1.25), (40960, 2.5)]
    assert run.table.names == ("microbench_score/mean_reward",)
    assert "steps are those of the environment" in run.notes


def test_a_reward_that_is_no_number_is_kept_and_a_line_that_is_cut_off_is_left_out(imported: Import) -> None:
    text = line(100, 1.0) + line(200, float("nan")) + line(300, 3.0) + line(400, 4.0)[:-40]
    values = dict(rewards(imported(text, "train.log")))
    assert list(values) == [100, 200, 300]
    assert [step for step, value in values.items() if value != value] == [200]


def test_steps_that_begin_anew_are_another_run_and_each_behavior_is_one(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    once = "".join(line(step, step / 1000) for step in range(1000, 21_000, 1000))
    path.write_text(once + once)
    assert [(run.name, len(run.rows)) for run in import_runs(path)] == [("run 1", 20), ("run 2", 20)]
    both = "".join(line(step, 0.5, "Goalie. A") + line(step + 7, 1.5, "Striker") for step in range(1000, 6000, 1000))
    path.write_text(both)
    goalie, striker = import_runs(path)
    assert (goalie.name, striker.name) == ("Goalie. A", "Striker")
    assert rewards(goalie) == [(step, 0.5) for step in range(1000, 6000, 1000)]
    assert rewards(striker) == [(step + 7, 1.5) for step in range(1000, 6000, 1000)]


def test_a_return_that_is_lost_is_found(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    values = [0.2 * n for n in range(60)] + [-20.0 - 0.1 * (n % 3) for n in range(40)]
    path.write_text("".join(line(1000 * n, value) for n, value in enumerate(values, 1)))
    assert [finding.code for finding in triage(path).findings] == ["EVAL004"]


@pytest.mark.parametrize(
    "text",
    [
        NOTHING.format(name="Cart3D", step=100) * 9,
        line(100, 1.0).replace("[INFO]", "INFO:") * 9,
        line(100, 1.0).replace("Std of Reward", "Reward") * 9,
        "[INFO] Cart3D. Step: 100. Loss: 1.5.\n" * 9,
    ],
)
def test_what_only_looks_alike_is_left(imported: Import, text: str) -> None:
    with pytest.raises(UnreadableError, match="no log that is known"):
        imported(text, "train.log")
