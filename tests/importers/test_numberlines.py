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
