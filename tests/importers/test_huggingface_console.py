"""What the Hugging Face Trainer prints: the same series as its own state file holds."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.importers import Imported, import_runs

STATES = sorted((Path(__file__).parents[2] / "fixtures" / "real" / "hf_trainer").rglob("trainer_state*.json"))
Import = Callable[..., Imported]

# As version 5 prints to a terminal: numbers are texts, bars end with carriage returns, evaluations have a bar of their own.
WITH_BARS = (
    "\r  0%|          | 0/120 [00:00<?, ?it/s]/lib/dataloader.py:759: UserWarning: pinned memory won't be used.\n"
    "\r                        \r{'loss': '3.779', 'grad_norm': '0.97', 'learning_rate': '9.7e-04', 'epoch': '0.125'}\n"
    "\r  4%|▍         | 5/120 [00:00<00:00, 121.38it/s]"
    "\r                          {'loss': '3.7', 'grad_norm': 'nan', 'learning_rate': '9e-04', 'epoch': '0.25'}\n"
    "\r  8%|▊         | 10/120 [00:00<00:00, 143.97it/s]\r 12%|█▎        | 15/120 [00:00<00:00, 143.97it/s]"
    "\n  0%|          | 0/5 [00:00<?, ?it/s]\x1b[A"
    "\r{'eval_loss': '3.6', 'eval_runtime': '0.0095', 'eval_samples_per_second': '4204', 'epoch': '0.25'}\n"
    "\r100%|██████████| 5/5 [00:00<00:00, 693.94it/s]\x1b[A"
    "\r  8%|▊         | 10/120 [00:00<00:00, 143.97it/s]"
    "\r{'loss': '3.5', 'grad_norm': '1.1', 'learning_rate': '8e-04', 'epoch': '0.375'}\n"
    "\r 12%|█▎        | 15/120 [00:00<00:00, 143.97it/s]\n"
)


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def test_bars_tell_the_steps(imported: Import) -> None:
    run = imported(WITH_BARS, "train.log")
    assert run.source == "Hugging Face Trainer's console"
    assert curve(run, "train_loss_raw") == {5: 3.779, 10: 3.7, 15: 3.5}
    assert curve(run, "val_loss") == {10: 3.6}
    assert curve(run, "learning_rate") == {5: 9.7e-4, 10: 9e-4, 15: 8e-4}
    assert [step for step, norm in curve(run, "grad_global_norm").items() if norm != norm] == [10]


def test_the_summary_tells_the_steps_where_there_are_no_bars(imported: Import) -> None:
    text = "Some weights were newly initialized\n" + "".join(
        f"{{'loss': {3 - place / 10}, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': {place / 4}}}\n"
        for place in range(1, 13)
    )
    numbered = imported(text, "out.log")
    assert list(curve(numbered, "train_loss_raw")) == list(range(1, 13))
    assert any("no line names a step" in note for note in numbered.notes)
    summary = "{'train_runtime': 10.0, 'train_steps_per_second': 12.0, 'train_loss': 2.4, 'epoch': 3.0}\n"
    assert list(curve(imported(text + summary, "out.log"), "train_loss_raw")) == list(range(10, 121, 10))


def test_two_trainings_of_one_program_are_two_runs_and_a_resume_is_none(tmp_path: Path) -> None:
    def printed(epochs: list[float], level: float) -> str:
        return "".join(f"{{'loss': {level - epoch}, 'learning_rate': 5e-05, 'epoch': {epoch}}}\n" for epoch in epochs)

    path = tmp_path / "sweep.log"
    path.write_text(printed([0.5, 1.0, 1.5, 2.0], 4.0) + printed([0.5, 1.0, 1.5, 2.0], 3.0))
    first, second = import_runs(path)
    assert [list(curve(run, "train_loss_raw").values()) for run in (first, second)] == [
        [3.5, 3.0, 2.5, 2.0],
        [2.5, 2.0, 1.5, 1.0],
    ]


def test_swift_says_its_steps(imported: Import) -> None:
    text = "".join(
        f"{{'loss': {2 / place}, 'token_acc': 0.5, 'epoch': {place / 7:.6f}, 'global_step/max_steps': '{place * 5}/70'}}\n"
        for place in range(1, 15)
    )
    assert list(curve(imported(text, "nohup.out"), "train_loss_raw")) == list(range(5, 71, 5))


def test_a_policy_s_loss_is_none(imported: Import) -> None:
    text = "".join(
        f"{{'loss': 0.0{place}, 'reward': {place}, 'reward_std': 0.5, 'grad_norm': 0.3, 'epoch': {place / 10}}}\n"
        for place in range(1, 9)
    )
    assert "train_loss_raw" not in imported(text, "grpo.log").table.names


@pytest.mark.parametrize("path", STATES, ids=lambda path: path.parent.name)
def test_what_a_trainer_printed_is_what_its_state_holds(path: Path, tmp_path: Path) -> None:
    """The entries of real states, printed as versions 4 do, with the bars that stand behind them."""
    state = json.loads(path.read_text())
    console = tmp_path / "console.log"
    with console.open("w") as printed:
        for entry in state["log_history"]:
            print(repr({key: value for key, value in entry.items() if key != "step"}), file=printed)
            print(f"  1%|▏         | {entry['step']}/{state['max_steps']} [00:05<04:10,  1.96it/s]", end="\r", file=printed)
    (held,), (told,) = import_runs(path), import_runs(console)
    assert told.source != held.source
    assert told.rows == held.rows
    found = [(finding.code, finding.first_step) for finding in triage(console).findings]
    assert found == [(finding.code, finding.first_step) for finding in triage(path).findings]


def test_a_document_in_json_is_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": [{"loss": 1.0, "step": n, "epoch": n} for n in range(1, 9)], "best_metric": None}))
    (run,) = import_runs(path)
    assert run.source == "Hugging Face trainer_state.json"
