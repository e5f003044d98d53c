"""Blocks that rsl_rl prints for each iteration, in the forms of its earlier and later versions."""

from collections.abc import Callable
from pathlib import Path

from ckaudit.audit import triage
from ckaudit.importers import Imported, import_runs
from tests.loops import for_each

Import = Callable[..., Imported]
EARLIER = """{line}
                       \x1b[1m Learning iteration {n}/1500 \x1b[0m

                       Computation: 96968 steps/s (collection: 0.512s, learning 0.141s)
               Value function loss: 0.3378
                    Surrogate loss: -0.0028
             Mean action noise std: 1.00
                       Mean reward: {reward:.2f}
               Mean episode length: 300.00
--------------------------------------------------------------------------------
                   Total timesteps: 98304
                    Iteration time: 0.65s
                        Total time: 12.50s
                               ETA: 650.3s

"""
LATER = """{line}
                          Learning iteration {n}/1500

                            Total steps: 1608
                       Steps per second: 101
                        Collection time: 0.183s
                        Mean value loss: 0.4399
                    Mean surrogate loss: -0.1204
                            Mean reward: {reward:.2f}
--------------------------------------------------------------------------------
                         Iteration time: 0.65s
                           Time elapsed: 00:00:01
                                    ETA: 00:00:09

"""


def log(form: str, rewards: list[float]) -> str:
    return "".join(form.format(line="#" * 80, n=n, reward=reward) for n, reward in enumerate(rewards))


@for_each("form", [EARLIER, LATER])
def test_each_block_is_a_row(imported: Import, form: str) -> None:
    run = imported(log(form, [-2.0, 1.5, 4.25]), "rsl.log")
    assert run.source == "rsl_rl console"
    assert [row["step"] for row in run.rows] == [1, 2, 3]
    assert [row["microbench_score/mean_reward"] for row in run.rows] == [-2.0, 1.5, 4.25]
    assert [row["step_time"] for row in run.rows] == [0.65] * 3
    assert "train_loss_raw" not in run.table.names
    assert any("left out: they are losses of a policy" in note for note in run.notes)
    assert any("N was taken as step N + 1" in note for note in run.notes)
    assert not any("--map" in note for note in run.notes)


def test_a_block_without_a_reward_has_none(imported: Import) -> None:
    text = log(LATER, [1.0, 2.0, 3.0]).replace("Mean reward: 2.00", "Mean cost: 2.00")
    values = [row.get("microbench_score/mean_reward") for row in imported(text, "rsl.log").rows]
    assert values == [1.0, None, 3.0]


def test_a_reward_that_is_lost_is_found(tmp_path: Path) -> None:
    path = tmp_path / "rsl.log"
    path.write_text(log(EARLIER, [0.2 * n for n in range(60)] + [-20.0 - 0.1 * (n % 3) for n in range(40)]))
    assert [finding.code for finding in triage(path).findings] == ["EVAL004"]


def test_iterations_that_begin_anew_are_another_run_and_a_resume_is_none(tmp_path: Path) -> None:
    path = tmp_path / "rsl.log"
    path.write_text(log(LATER, [1.0, 2.0, 3.0]) * 2)
    assert [len(run.rows) for run in import_runs(path)] == [3, 3]
    resumed = LATER.format(line="#" * 80, n=1, reward=9.0) + LATER.format(line="#" * 80, n=2, reward=9.5)
    path.write_text(log(LATER, [1.0, 2.0, 3.0]) + resumed)
    (run,) = import_runs(path)
    assert [row.get("session") for row in run.rows] == [0, 0, 0, 1, 1]
    assert [row["microbench_score/mean_reward"] for row in run.rows] == [1.0, 2.0, 3.0, 9.0, 9.5]
