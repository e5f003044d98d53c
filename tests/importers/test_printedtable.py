"""Tables that programs print, with blanks or bars between their cells."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported, import_runs

Import = Callable[..., Imported]
FASTAI = "epoch     train_loss  valid_loss  accuracy  time    \n"


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def test_a_table_of_fastai_between_other_lines(imported: Import) -> None:
    rows = "".join(f"{n:<10}{2 / (n + 1):.6f}    {3 / (n + 1):.6f}    0.95      00:12     \n" for n in range(4))
    run = imported(
        f"SuggestedLRs(valley=0.001)\n{FASTAI}{rows}Better model found at epoch 3 with valid_loss value: 0.75.\n", "out.txt"
    )
    assert run.source == "printed table"
    assert curve(run, "train_loss_raw") == {1: 2.0, 2: 1.0, 3: 0.666667, 4: 0.5}
    assert curve(run, "val_loss") == {1: 3.0, 2: 1.5, 3: 1.0, 4: 0.75}


def test_a_second_table_is_a_second_run(tmp_path: Path) -> None:
    path = tmp_path / "two.txt"
    rows = [f"{n:<10}{level - n / 10:.6f}    {level:.6f}    0.95      00:12     \n" for level in (2.0, 1.0) for n in range(12)]
    path.write_text(FASTAI + "".join(rows[:12]) + FASTAI + "".join(rows[12:]))
    first, second = import_runs(path)
    assert [curve(run, "val_loss")[12] for run in (first, second)] == [2.0, 1.0]


def test_bars_as_in_markdown(imported: Import) -> None:
    rows = "".join(f"| {n} | {2 / n:.4f} | nan | - |\n" for n in range(1, 6))
    run = imported(f"| epoch | train loss | val loss | note |\n|---|---|---|---|\n{rows}", "log.md")
    assert curve(run, "train_loss_raw") == {n: pytest.approx(2 / n, abs=1e-4) for n in range(1, 6)}


@pytest.mark.parametrize(
    "text",
    [
        "the loss  of words\n" + "some  words  only\n" * 50,
        "train loss  val loss\n0.5  0.6\n",  # a result, and no course
        "a loss  " * 20_000,
    ],
)
def test_prose_is_no_table(imported: Import, text: str) -> None:
    with pytest.raises(UnreadableError):
        imported(text, "notes.txt")


def test_a_table_of_markdown_among_other_text(tmp_path):
    file = tmp_path / "notes.md"
    rows = [
        "| epoch | NLL (train) | NLL (valid) |",
        "|---:|---:|---:|",
        "| 1 | 0.25 | 0.5 |",
        "| 2 | -0.125 | 0.0 |",
        "| 3 | -0.5 | -0.25 |",
    ]
    file.write_text("# Notes\n\nSame data.\n\n" + "\n".join(rows) + "\n\nBetter than last week.\n")
    (run,) = import_runs(file)
    assert [(row["step"], row["train_loss_raw"], row["val_loss"]) for row in run.rows] == [
        (1, 0.25, 0.5),
        (2, -0.125, 0.0),
        (3, -0.5, -0.25),
    ]
