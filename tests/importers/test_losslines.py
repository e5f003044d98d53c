"""Lines of losses without a step or an epoch."""

from collections.abc import Callable

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported

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
