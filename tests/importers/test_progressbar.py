"""Logs of tqdm's progress bars, made by tqdm itself."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckaudit.errors import CkauditError
from ckaudit.importers import Imported, import_source

tqdm = pytest.importorskip("tqdm")
Import = Callable[..., Imported]


def bar(stream: io.StringIO, total: int, **options: object) -> Any:
    """Return a bar that writes every version of itself."""
    return tqdm.tqdm(total=total, file=stream, mininterval=0, miniters=1, ascii=False, ncols=100, **options)


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
