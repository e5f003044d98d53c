"""A count and a loss to a line, without a word."""

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import import_runs


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


@pytest.mark.parametrize("form", ["{} {}", "{}\t{}", "{}: {}", "  {}, {}", "{} tensor({})", "{} | {}"])
def test_two_numbers_are_a_step_and_a_loss(imported, form):
    text = "loading data\n" + "".join(form.format(n, 5.0 - n / 100) + "\n" for n in range(99, 500, 100))
    run = imported(text, "out.txt")
    assert curve(run, "train_loss_raw") == {n: 5.0 - n / 100 for n in range(99, 500, 100)}
    assert any("no line names what it holds" in note for note in run.notes)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{n} {n + 1}\n" for n in range(9)),  # pairs of counts
        "".join(f"{5 - n} {n}.5\n" for n in range(5)),  # what falls counts nothing
        "".join(f"{n} {n}.5 {n}.5\n" for n in range(9)),  # three numbers
        "1 2.5\n2 2.4\n",
    ],
)
def test_what_is_no_count_and_loss_is_left(imported, text):
    with pytest.raises(UnreadableError, match="no log that is known"):
        imported(text, "out.txt")


def test_a_search_passes_pairs_of_numbers_over(tmp_path):
    (tmp_path / "spectrum.txt").write_text("".join(f"{n} {n % 5}.25\n" for n in range(1, 50)))
    (tmp_path / "train.log").write_text("".join(f"step={n} loss={3 - n / 100}\n" for n in range(1, 50)))
    (run,) = import_runs(tmp_path)
    assert curve(run, "train_loss_raw")[49] == 2.51
    assert curve(import_runs(tmp_path / "spectrum.txt")[0], "train_loss_raw")[4] == 4.25


def test_an_underscore_between_epoch_and_loss_joins_no_number(imported):
    text = "".join(f"{n}_{2 - n / 100}\n" for n in range(1, 30))
    assert curve(imported(text, "train_loss.txt"), "train_loss_raw") == {n: 2 - n / 100 for n in range(1, 30)}


PAIRS = "loading\n" + "".join(f"{n} {5.0 - n / 100}\n" for n in range(1, 30))


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("val_loss.txt", "val_loss"),
        ("lr.txt", "learning_rate"),
        ("grad_norm.txt", "grad_global_norm"),
        ("x.txt", "train_loss_raw"),
    ],
)
def test_the_name_of_the_file_says_what_the_second_number_is(imported, name, series):
    run = imported(PAIRS, name)
    assert run.table.names == (series,)
    assert curve(run, series)[29] == 4.71


def test_a_file_of_scores_holds_no_loss(imported):
    with pytest.raises(UnreadableError, match="no log that is known"):
        imported(PAIRS, "val_accuracy.txt")
