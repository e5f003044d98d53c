"""verl's console: a line for each step, its values by names of families."""

from collections.abc import Callable
from pathlib import Path

from ckaudit.audit import triage
from ckaudit.importers import Imported
from ckaudit.importers.names import catalogue_name
from tests.loops import for_each

Import = Callable[..., Imported]
WORKER = "(TaskRunner pid=247607) "


def line(step: int, reward: float, **others: float) -> str:
    """Return a line as verl's logger of the console joins it."""
    values = {
        "global_seqlen/mean": 169906.5,
        "actor/entropy": 0.32,
        "actor/kl_loss": 0.001,
        "actor/pg_loss": -0.0036,
        "actor/grad_norm": 0.2 + step / 1000,
        "perf/mfu/actor": 0.31,
        "actor/lr": 1e-06,
        "critic/score/mean": reward,
        "critic/rewards/mean": reward,
        "response_length/mean": 420.5,
        "perf/time_per_step": 30.0,
        "perf/throughput": 1500.0,
    }
    return " - ".join([f"step:{step}", *(f"{key}:{value}" for key, value in {**values, **others}.items())])


def log(rewards: list[float]) -> str:
    first = "step:0 - val-aux/openai/gsm8k/score/mean@1:0.565 - val-core/openai/gsm8k/acc/mean@1:0.508"
    lines = [first, *(line(step, reward) for step, reward in enumerate(rewards, 1))]
    return "".join(f"{WORKER}{text}\n" for text in lines)


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def test_each_line_is_a_step_and_its_reward_a_return(imported: Import) -> None:
    run = imported(log([0.1, 0.2, 0.4]), "verl.log")
    assert curve(run, "microbench_score/critic_rewards_mean") == {1: 0.1, 2: 0.2, 3: 0.4}
    assert curve(run, "grad_global_norm") == {1: 0.201, 2: 0.202, 3: 0.203}
    assert curve(run, "microbench_score/val_core_openai_gsm8k_acc_mean@1") == {0: 0.508}
    assert run.rows[1]["mfu"] == 0.31
    assert run.rows[1]["learning_rate"] == 1e-06
    assert run.rows[1]["step_time"] == 30.0
    assert run.rows[1]["tokens_per_sec"] == 1500.0
    assert run.manifest.loss_kind == "other"


def test_losses_of_the_policy_are_left_out_and_none_is_offered(imported: Import) -> None:
    run = imported(log([0.1, 0.2, 0.4]), "verl.log")
    assert "train_loss_raw" not in run.table.names
    assert any("actor/pg_loss was left out" in note for note in run.notes)
    assert any("actor/kl_loss" in note or "and " in note for note in run.notes if note.startswith("left out"))
    assert not any("--map" in note for note in run.notes)


def test_numbers_as_numpy_shows_them_are_read(imported: Import) -> None:
    run = imported(log([0.1, 0.2, 0.4]).replace("critic/rewards/mean:0.4", "critic/rewards/mean:np.float64(0.4)"), "verl.log")
    assert curve(run, "microbench_score/critic_rewards_mean") == {1: 0.1, 2: 0.2, 3: 0.4}


def test_a_reward_that_is_lost_is_an_illness(tmp_path: Path) -> None:
    path = tmp_path / "verl.log"
    risen = [0.1 + 0.01 * step + 0.01 * (step % 2) for step in range(40)]
    path.write_text(log([*risen, *(0.1 + 0.01 * (step % 2) for step in range(20))]))
    assert [finding.code for finding in triage(path).findings] == ["EVAL004"]
    path.write_text(log([*risen, *risen[-20:]]))
    assert not triage(path).findings


@for_each(
    "name, known",
    [
        ("actor/grad_norm", "grad_global_norm"),
        ("critic/grad_norm", None),
        ("perf/throughput", "tokens_per_sec"),
        ("critic/rewards/mean", "microbench_score/critic_rewards_mean"),
        ("critic/rewards/max", None),
        ("actor/pg_loss", None),
    ],
)
def test_the_same_names_are_known_wherever_they_are_logged(name: str, known: str | None) -> None:
    assert catalogue_name(name) == known
