"""Steps that count anew in each epoch, in every kind of table."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from ckaudit.importers import Imported
from ckaudit.importers.tables.curves import steps_in_epochs
from ckaudit.importers.tables.numbers import NO_STEP, Numbers, recorded_in_full

Import = Callable[..., Imported]


def curve(run: Imported, name: str) -> list[tuple[int, float]]:
    return [(row["step"], row[name]) for row in run.rows if name in row]


def updates(epochs: list[float], steps: list[int]) -> list[int]:
    return steps_in_epochs(np.array(steps), recorded_in_full(np.array(epochs, float)))[0].tolist()


@pytest.mark.parametrize("first_epoch", [0, 1])
def test_each_epoch_continues_where_the_one_before_ended(imported: Import, first_epoch: int) -> None:
    rows = [(first_epoch + epoch, step, 9 - epoch - step / 100) for epoch in range(3) for step in (10, 20, 30, 40)]
    wanted = [(10 * place, loss) for place, (_, _, loss) in enumerate(rows, 1)]
    table = imported("epoch,step,loss\n" + "".join(f"{epoch},{step},{loss}\n" for epoch, step, loss in rows))
    assert curve(table, "train_loss_raw") == wanted
    assert any("update N is epochs finished times 40, plus the step" in note for note in table.notes)
    lines = "".join(json.dumps({"epoch": epoch, "step": step, "loss": loss}) + "\n" for epoch, step, loss in rows)
    assert curve(imported(lines, "log.jsonl"), "train_loss_raw") == wanted


def test_steps_from_0_are_counted_from_1():
    assert updates([0, 0, 0, 1, 1, 1], [0, 5, 9, 0, 5, 9]) == [1, 6, 10, 11, 16, 20]


@pytest.mark.parametrize(
    ("epochs", "steps"),
    [
        ([0, 0, 1, 1], [1, 2, 3, 4]),  # of the whole training
        ([0, 0, 1, 1], [1, 2, 2, 3]),
        ([0, 0, 0, 1, 1], [5, 10, 5, 6, 11]),  # a resume
        ([0, 1, 2, 1, 2], [10, 20, 30, 20, 30]),
        ([0, 0, 0], [1, 2, 3]),
        ([0, 0.5, 1, 1.5], [1, 2, 1, 2]),
    ],
)
def test_other_steps_are_kept(epochs: list[float], steps: list[int]) -> None:
    assert updates(epochs, steps) == steps


def test_a_row_without_a_step_keeps_none():
    epochs = Numbers(np.array([0, 0, np.nan, 1, 1.0]), np.array([True, True, False, True, True]))
    assert steps_in_epochs(np.array([1, 2, NO_STEP, 1, 2]), epochs)[0].tolist() == [1, 2, NO_STEP, 3, 4]
