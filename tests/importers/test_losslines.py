"""Lines of losses without a step or an epoch."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported, import_runs

Import = Callable[..., Imported]


def curve(run: Imported, name: str) -> dict[int, float]:
    """Return what a run holds under a name, by step."""
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def test_losses_are_numbered_and_a_validation_holds_at_the_one_before(imported: Import) -> None:
    text = "".join(
        f"+----+\n| Train |\nTraining Loss: {2 - place / 10:.4f}\n"
        + (f"Validation loss = {1.9 - place / 10:.3f}\n" if place % 3 == 0 else "")
        for place in range(1, 10)
    )
    run = imported(text, "train.log")
    assert run.source == "lines of losses"
    assert curve(run, "train_loss_raw") == {place: round(2 - place / 10, 4) for place in range(1, 10)}
    assert curve(run, "val_loss") == {place: round(1.9 - place / 10, 3) for place in (3, 6, 9)}
    assert any("no line names a step" in note for note in run.notes)


def test_a_loss_that_is_no_number_stays_one(imported: Import) -> None:
    values = curve(
        imported("".join(f"batch loss:{2.0 if place < 4 else 'nan'}\n" for place in range(8)), "out.log"), "train_loss_raw"
    )
    assert [place for place, value in values.items() if value != value] == [5, 6, 7, 8]


@pytest.mark.parametrize("text", ["loss: 0.5\n" * 4, "no loss at all\n" * 50, "x" * 100_000 + " loss: 1.0 " * 20_000])
def test_a_report_is_no_log(imported: Import, text: str) -> None:
    with pytest.raises(UnreadableError):
        imported(text, "report.txt")


def test_a_count_beside_each_loss_is_its_step(imported: Import) -> None:
    lines = [
        f"2024/06/11 09:12:57 - mmengine - INFO - Iter(train) [{step:5d}/40000]  lr: 1.0e-02  loss: {9 - step / 100:.4f}\n"
        + (f"2024/06/11 09:13:00 - mmengine - INFO - Iter(val) [100/100]    loss: {step / 50:.4f}\n" if step == 200 else "")
        for step in range(50, 350, 50)
    ]
    run = imported("".join(lines), "seg.log")
    assert curve(run, "train_loss_raw") == {step: 9 - step / 100 for step in range(50, 350, 50)}
    assert curve(run, "val_loss") == {200: 4.0}
    assert curve(run, "learning_rate") == dict.fromkeys(range(50, 350, 50), 0.01)


def test_a_count_between_a_loss_and_its_value_is_its_step(imported: Import) -> None:
    text = "".join(
        f"Train loss {step} {4 - step / 100:.6f} Grad Norm {1 + step / 10:.6f} 1.12s/it\n"
        + (f"Validation loss {step}: {3.5:9f}  \n" if step == 20 else "")
        for step in range(0, 40, 5)
    )
    run = imported(text, "taco.log")
    assert curve(run, "train_loss_raw") == {step + 1: 4 - step / 100 for step in range(0, 40, 5)}
    assert curve(run, "grad_global_norm") == {step + 1: 1 + step / 10 for step in range(0, 40, 5)}
    assert curve(run, "val_loss") == {21: 3.5}


def test_counts_that_do_not_only_rise_are_no_steps(imported: Import) -> None:
    run = imported("".join(f"[{place % 4 + 1}/4] loss: {2 - place / 10:.2f}\n" for place in range(8)), "out.log")
    assert list(curve(run, "train_loss_raw")) == list(range(1, 9))


@pytest.mark.parametrize(
    "line",
    [
        "{{'step': {}, 'loss': {}}}",
        "INFO: {{'loss': {1}, 'global_step': {0}}}",
        "batch {} loss {}",
        "batch {:,} loss {}",
        "it: {} loss: {}",
        "n_updates={} loss={}",
        "[  {}] loss: {}",
        "{}: loss {}",
        "#{} loss {}",
    ],
)
def test_a_rising_count_beside_each_loss_is_its_step(imported: Import, line: str) -> None:
    run = imported("".join(line.format(step, 5 - step / 100) + "\n" for step in range(10, 80, 10)), "train.log")
    assert curve(run, "train_loss_raw") == {step: 5 - step / 100 for step in range(10, 80, 10)}


def test_counts_that_do_not_rise_are_no_steps(imported: Import) -> None:
    text = "".join(f"batch {batch} loss {5 - epoch - batch / 100}\n" for epoch in range(2) for batch in (10, 20, 30))
    assert list(curve(imported(text, "train.log"), "train_loss_raw")) == [1, 2, 3, 4, 5, 6]


OPENING = "2026-01-02 10:00:00.123 | INFO     | __main__:main:12 - building the model\n"


def test_a_program_that_is_started_again_prints_its_first_lines_again(tmp_path: Path) -> None:
    def trained(losses: list[float]) -> str:
        return OPENING + "".join(f"loss: {loss}\n" for loss in losses)

    path = tmp_path / "train.log"
    path.write_text(trained([3.0, 2.0, 1.5, 1.2, 1.0]) + trained([2.9, 2.1, 1.4, 1.1, 0.9, 0.8]))
    first, second = import_runs(path)
    assert curve(first, "train_loss_raw") == {1: 3.0, 2: 2.0, 3: 1.5, 4: 1.2, 5: 1.0}
    assert curve(second, "train_loss_raw") == {1: 2.9, 2: 2.1, 3: 1.4, 4: 1.1, 5: 0.9, 6: 0.8}


def test_a_line_that_is_printed_in_each_epoch_starts_nothing(imported: Import) -> None:
    losses = [3.0, 2.5, 2.0, 1.5, 1.3, 1.2, 1.1, 1.0, 1.05, 0.9]
    text = "".join(
        f"{'- starting the next epoch' if place % 2 == 0 else ''}\nloss: {loss}\n" for place, loss in enumerate(losses)
    )
    assert curve(imported(text, "train.log"), "train_loss_raw") == dict(enumerate(losses, 1))


def test_a_loss_that_jumps_without_a_start_stays_one_training(imported: Import) -> None:
    losses = [3.0, 2.0, 1.5, 1.2, 1.0, 3.1, 3.0, 3.2, 3.1]
    assert curve(imported(OPENING + "".join(f"loss: {loss}\n" for loss in losses), "train.log"), "train_loss_raw") == dict(
        enumerate(losses, 1)
    )
