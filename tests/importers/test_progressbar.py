"""Logs of tqdm's progress bars, made by tqdm itself."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckaudit.audit import triage
from ckaudit.errors import CkauditError
from ckaudit.importers import Imported, import_runs, import_source

tqdm = pytest.importorskip("tqdm")
Import = Callable[..., Imported]


def bar(stream: io.StringIO, total: int, **options: object) -> Any:
    """Return a bar that writes every version of itself."""
    return tqdm.tqdm(total=total, file=stream, mininterval=0, miniters=1, ascii=False, ncols=240, **options)


def loss(step: int) -> float:
    """Return the loss of an update, as a bar shows it."""
    return round(3.0 - step / 100, 4)


def curve(run: Imported, name: str) -> dict[int, float]:
    """Return what a run holds under a name, by step."""
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def test_the_last_version_of_each_step_counts(imported: Import) -> None:
    stream = io.StringIO()
    with bar(stream, 40, desc="Steps") as progress:
        for step in range(1, 41):
            progress.update(1)  # shows the loss of the step before
            progress.set_postfix(lr=1e-4, step_loss=loss(step))
    run = imported(f"11/20/2026 10:00:01 - INFO - __main__ - ***** Running training *****\n{stream.getvalue()}\n", "train.log")
    assert run.source == "progress bars (tqdm)"
    assert curve(run, "train_loss_raw") == {step: loss(step) for step in range(1, 41)}
    assert set(curve(run, "learning_rate").values()) == {1e-4}


def test_a_bar_that_begins_again_is_the_next_epoch_and_evaluations_hold_at_its_end(imported: Import) -> None:
    stream = io.StringIO()
    for epoch in range(3):
        with bar(stream, 10, desc=f"Epoch {epoch + 1}/3") as progress:
            for batch in range(1, 11):
                progress.set_postfix(loss=loss(10 * epoch + batch), refresh=False)
                progress.update(1)
        with bar(stream, 4, desc="Validating") as progress:
            for _ in range(4):
                progress.set_postfix(loss=5.0 - epoch, refresh=False)
                progress.update(1)
        stream.write(f"\nval_ppl: {20.0 - epoch}\n")
    run = imported(stream.getvalue(), "train.log")
    assert curve(run, "train_loss_raw") == {step: loss(step) for step in range(1, 31)}
    assert curve(run, "val_loss") == {10: 5.0, 20: 4.0, 30: 3.0}
    assert curve(run, "val_ppl") == {10: 20.0, 20: 19.0, 30: 18.0}


def test_a_loss_before_the_percentage_is_read(imported: Import) -> None:
    stream = io.StringIO()
    with bar(stream, 20) as progress:
        for step in range(1, 21):
            progress.set_description(f"loss {loss(step)}", refresh=False)
            progress.update(1)
    assert curve(imported(stream.getvalue(), "train.log"), "train_loss_raw") == {step: loss(step) for step in range(1, 21)}


def test_a_training_that_is_started_again_goes_on_from_its_step(imported: Import) -> None:
    stream = io.StringIO()
    for first, last in ((1, 25), (20, 40)):
        with bar(stream, 40, initial=first - 1) as progress:
            for step in range(first, last + 1):
                progress.set_postfix(loss=loss(step) + (first > 1), refresh=False)
                progress.update(1)
        stream.write("\n")
    run = imported(stream.getvalue(), "train.log")
    assert curve(run, "train_loss_raw")[40] == loss(40) + 1
    assert max(row["step"] for row in run.rows) == 40


def test_a_loss_that_is_no_number_stays_one(imported: Import) -> None:
    stream = io.StringIO()
    with bar(stream, 20) as progress:
        for step in range(1, 21):
            progress.set_postfix(loss="nan" if step > 10 else loss(step), refresh=False)
            progress.update(1)
    values = curve(imported(stream.getvalue(), "train.log"), "train_loss_raw")
    assert values[10] == loss(10)
    assert all(values[step] != values[step] for step in range(11, 21))


@pytest.mark.parametrize("text", ["x 3%|" * 9_000, "99%|" + "█" * 50_000, "loss " * 20_000 + "\r", "5%| | 1/2 [" * 5_000])
def test_odd_bars_are_no_log(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train.log"
    path.write_text(text * 20)
    with pytest.raises(CkauditError):
        import_source(path)


def nemo(steps: int, *, broken_from: int = 10**9) -> str:
    """Return Lightning's bar as NeMo fills it; its own counter has three digits, so that the bar counts."""
    stream = io.StringIO()
    with bar(stream, steps, desc="Epoch 0: ") as progress:
        for step in range(1, steps + 1):
            values = {"v_num": "8-06", "loss": 9.9, "reduced_train_loss": "nan" if step >= broken_from else loss(step)}
            values |= {"global_step": step - 1.0, "consumed_samples": 128.0 * step, "train_step_timing in s": 6.82}
            progress.set_postfix(values, refresh=False)
            progress.update(1)
    return f"[NeMo I 2024-06-17 08:36:41 nemo_logging:381] Experiments will be logged\n{stream.getvalue()}\n"


def test_nemos_own_loss_goes_before_the_smoothed_one(imported: Import) -> None:
    run = imported(nemo(40), "nemo_log_globalrank-0_localrank-0.txt")
    assert curve(run, "train_loss_raw") == {step: loss(step) for step in range(1, 41)}
    assert curve(run, "step_time") == dict.fromkeys(range(1, 41), 6.82)
    assert any("left out" in note and "smoothed loss" in note and "consumed_samples" in note for note in run.notes)
    assert not any("global_step" in note or "v_num" in note for note in run.notes)


def test_nemos_loss_that_breaks_is_found(tmp_path: Path) -> None:
    path = tmp_path / "nemo.txt"
    path.write_text(nemo(60, broken_from=41))
    (finding,) = [each for each in triage(path).findings if each.severity == "sev0"]
    assert (finding.code, finding.first_step) == ("NUM001", 41)


def openrlhf(returns: list[float], *, names: tuple[str, str, str] = ("pg", "rm", "ret")) -> str:
    """Return the bars of OpenRLHF: one over the episodes, and one in each of them over the updates, both full at its end."""
    stream = io.StringIO()
    episodes = bar(stream, len(returns), desc="Episode [1/1]")
    for value in returns:
        with bar(stream, 16, desc="Train epoch [1/1]") as progress:
            progress.set_postfix(dict(zip(names, (-0.03, value, value), strict=True)), kl=0.01, act_lr=5e-7, refresh=False)
            progress.update(16)
        episodes.update(1)
    episodes.close()
    return stream.getvalue()


@pytest.mark.parametrize("names", [("pg", "rm", "ret"), ("act_loss", "reward", "return")])
def test_returns_in_full_bars_between_others_are_read(imported: Import, names: tuple[str, str, str]) -> None:
    run = imported(openrlhf([0.1 * step for step in range(1, 11)], names=names), "openrlhf.log")
    values = curve(run, f"microbench_score/{names[2]}")
    assert values == {16 * step: pytest.approx(0.1 * step) for step in range(1, 11)}
    assert "train_loss_raw" not in run.table.names
    assert run.rows[0]["learning_rate"] == 5e-7
    assert any(names[0] in note and names[1] in note for note in run.notes if note.startswith("left out"))
    assert not any("--map" in note for note in run.notes)


def test_a_return_that_is_lost_is_found(tmp_path: Path) -> None:
    path = tmp_path / "openrlhf.log"
    path.write_text(openrlhf([0.05 * step for step in range(40)] + [-3.0 - 0.01 * step for step in range(20)]))
    assert [finding.code for finding in triage(path).findings] == ["EVAL004"]


def epochs(numbers: list[int], form: str = "epoch {}", *, shown: range = range(1, 10, 2), total: int = 10) -> str:
    """Return a bar for each epoch, none of which is shown when it is full, with the loss of its update."""
    stream = io.StringIO()
    for place, number in enumerate(numbers):
        for batch in shown:
            step = total * place + batch
            values = f"[00:01<00:04, 24.1it/s, loss={loss(step)}]"
            stream.write(f"\r{form.format(number)}:  {100 * batch // total}%|█  | {batch}/{total} {values}")
        stream.write("\n")
    return stream.getvalue()


@pytest.mark.parametrize("form", ["epoch {}", "Epoch {}/6", "Epoch [{}/6]", "Training epoch: {}", "[Epoch {}] train"])
@pytest.mark.parametrize("first", [0, 1])
def test_bars_that_count_epochs_follow_each_other_though_none_is_full(imported: Import, form: str, first: int) -> None:
    run = imported(epochs([*range(first, first + 6)], form), "train.log")
    assert curve(run, "train_loss_raw") == {step: loss(step) for step in range(1, 60, 2)}


def test_bars_that_count_epochs_from_the_first_again_are_another_run(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(epochs([0, 1, 2]) + epochs([0, 1, 2]))
    assert [curve(run, "train_loss_raw") for run in import_runs(path)] == [{step: loss(step) for step in range(1, 30, 2)}] * 2


def test_a_training_that_goes_on_at_an_epoch_stands_where_that_one_began(imported: Import) -> None:
    run = imported(epochs([1, 2, 3]) + epochs([2, 3, 4]), "train.log")
    assert [row["step"] for row in run.rows if row["session"] == 0] == [*range(1, 30, 2)]
    assert [row["step"] for row in run.rows if row["session"] == 1] == [*range(11, 40, 2)]


def test_a_bar_over_all_epochs_that_names_the_one_it_is_in_counts_by_itself(imported: Import) -> None:
    versions = [
        f"\rEpoch {step // 10}:  {step}%|█ | {step}/100 [00:01<00:04, 24.1it/s, loss={loss(step)}]" for step in range(1, 101)
    ]
    assert curve(imported("".join(versions), "train.log"), "train_loss_raw") == {step: loss(step) for step in range(1, 101)}


def test_a_bar_of_an_epoch_that_is_cut_off_or_holds_no_number_breaks_nothing(imported: Import) -> None:
    text = epochs([1, 2, 3]).replace(f"loss={loss(15)}", "loss=nan")
    values = curve(imported(f"{text}\repoch 4:  10%|█  | 1/10 [00:0", "train.log"), "train_loss_raw")
    assert values.keys() == set(range(1, 30, 2))
    assert [step for step, value in values.items() if value != value] == [15]


def test_epochs_of_a_policy_in_each_episode_follow_each_other(imported: Import) -> None:
    text = ""
    for episode in range(5):
        text += "".join(
            f"Train epoch [{epoch}/2]: 100%|██| 8/8 [00:01<00:00, 24.1it/s, ret={episode + epoch / 10}]\n" for epoch in (1, 2)
        )
        text += f"Episode [1/1]:  {20 * episode}%|█ | {episode + 1}/5 [00:01<00:04, 24.1it/s]\n"
    values = curve(imported(text, "openrlhf.log"), "microbench_score/ret")
    assert values == {8 * (2 * episode + epoch): episode + epoch / 10 for episode in range(5) for epoch in (1, 2)}


def test_a_bar_that_has_not_begun_shows_nothing_of_the_training(imported: Import) -> None:
    text = "".join(
        f" 0%|   | 0/4 [00:00<?, ?it/s, total_loss=inf]\r100%|███| 4/4 [00:04<00:00, 1.00it/s, total_loss={loss(epoch)}]\n"
        for epoch in range(1, 13)
    )
    run = imported(text, "train.log")
    assert list(curve(run, "train_loss_raw").values()) == [loss(epoch) for epoch in range(1, 13)]
