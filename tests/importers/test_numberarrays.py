"""Numbers alone, in a text or in arrays of NumPy."""

import io
import zipfile
from contextlib import suppress
from pathlib import Path
from time import process_time

import numpy as np
import pytest

from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers import Imported, ImportOptions, import_runs
from ckaudit.importers.tables import headerless_numbers

LOSSES = [2.5, 2.25, np.nan, 1.75, 1.5, 1.25]


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def same(found: dict[int, float], values: list[float]) -> bool:
    return list(found) == list(range(1, len(values) + 1)) and np.array_equal([*found.values()], values, equal_nan=True)


@pytest.mark.parametrize("name", ["train_losses.npy", "run7-train-loss.npy"])
@pytest.mark.parametrize("kind", [np.float64, np.float16, ">f4"])
def test_an_array_in_a_file_of_the_name_of_a_loss(tmp_path: Path, name: str, kind: str) -> None:
    np.save(tmp_path / name, np.array(LOSSES, kind))
    (run,) = import_runs(tmp_path / name)
    assert same(curve(run, "train_loss_raw"), LOSSES)
    assert any("counted from 1" in note for note in run.notes)


def test_a_text_of_one_number_to_a_line(tmp_path: Path) -> None:
    path = tmp_path / "val_loss.txt"
    np.savetxt(path, LOSSES)
    (run,) = import_runs(path)
    assert same(curve(run, "val_loss"), LOSSES)


def test_arrays_of_an_archive_go_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "history.npz"
    np.savez_compressed(
        path, train_loss=LOSSES, val_loss=[3.0, 2.5, 2.25, 2.0, 1.75, 1.7], weights=np.ones((3, 3)), epoch=range(6)
    )
    (run,) = import_runs(path)
    assert same(curve(run, "train_loss_raw"), LOSSES)
    assert list(curve(run, "val_loss").values()) == [3.0, 2.5, 2.25, 2.0, 1.75, 1.7]


def test_a_longer_array_takes_no_loss_away_and_a_shorter_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "history.npz"
    np.savez(path, train_loss=LOSSES, weights=np.ones(400), val_loss=[2.0] * 5)
    (run,) = import_runs(path)
    assert same(curve(run, "train_loss_raw"), LOSSES)
    assert any("left out: weights, val_loss" in note for note in run.notes)


def test_what_is_no_loss_by_its_name_is_left_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "weights.npy", np.ones(10))
    (tmp_path / "primes.txt").write_text("2\n3\n5\n7\n11\n13\n17\n")
    for name in ("weights.npy", "primes.txt"):
        with pytest.raises(UnreadableError):
            import_runs(tmp_path / name)


def header_of(count: int) -> bytes:
    """Return an array whose header says so many numbers, and holds two."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (count,)})
    return stream.getvalue() + bytes(16)


@pytest.mark.parametrize("data", [header_of(2**60), header_of(8), b"\x93NUMPY\x01\x00", b"\x93NUMPY\x09\x00garbage"])
def test_what_is_cut_off_or_lies_is_said(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "loss.npy"
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match=r"loss\.npy"):
        import_runs(path)


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "loss.npy"
    np.save(path, np.array([print, {}], dtype=object), allow_pickle=True)
    with pytest.raises(UnreadableError, match="no numbers"):
        import_runs(path)


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("loss.npy", "w") as member:
        for _ in range(300):
            member.write(bytes(2**20))
    with pytest.raises(UnreadableError, match="more than"):
        import_runs(path)


LISTS = {
    "json": "[2.5, 2.25, NaN, 1.75, 1.5, 1.25]",
    "lines": "[\n  2.5,\n  2.25,\n  nan,\n  1.75,\n  1.5,\n  1.25\n]\n",
    "numpy": "[2.5  2.25  nan 1.75\n 1.5  1.25]",
    "repr": "array([2.5 , 2.25,  nan, 1.75, 1.5 , 1.25], dtype=float32)",
    "tensor": "tensor([2.5000, 2.2500, nan, 1.7500, 1.5000, 1.2500], device='cuda:0')\n",
    "tensors": "[tensor(2.5, device='cuda:0'), tensor(2.25), tensor(nan), np.float64(1.75), np.float32(1.5), array(1.25)]",
    "column": "[[2.5 ]\n [2.25]\n [nan]\n [1.75]\n [1.5 ]\n [1.25]]",
    "words": '["2.5", "2.25", "NaN", "1.75", "1.5", "1.25"]',
    "blanks": "2.5 2.25 nan 1.75 1.5 1.25\n",
}


@pytest.mark.parametrize("form", LISTS)
@pytest.mark.parametrize("name", ["train_loss.txt", "losses.json", "train_losses.npy.txt", "loss.log"])
def test_a_list_alone_is_a_series_of_the_loss_that_its_file_is_named_after(tmp_path: Path, form: str, name: str) -> None:
    path = tmp_path / name
    path.write_text(LISTS[form])
    (run,) = import_runs(path)
    assert same(curve(run, "train_loss_raw"), LOSSES)
    assert run.manifest.step_unit == "entry"
    assert any("counted from 1" in note for note in run.notes)


@pytest.mark.parametrize("name", ["val_loss.txt", "ValidationLosses.json", "loss_val_fold2.txt", "test_loss.txt"])
def test_a_list_in_a_file_named_after_held_out_data_is_of_these(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(LISTS["json"])
    (run,) = import_runs(path)
    assert run.table.names == ("val_loss",)
    assert same(curve(run, "val_loss"), LOSSES)


def test_infinity_is_recorded_and_none_is_not(tmp_path: Path) -> None:
    path = tmp_path / "loss.json"
    path.write_text("[2.5, Infinity, null, -Infinity, 1.5, None, 1.0]")
    (run,) = import_runs(path)
    assert curve(run, "train_loss_raw") == {1: 2.5, 2: np.inf, 4: -np.inf, 5: 1.5, 7: 1.0}


def test_the_last_number_of_a_list_without_an_end_may_be_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "loss.json"
    path.write_text("[2.5, 2.25, 2.0, 1.75, 1.5, 1.2")
    (run,) = import_runs(path)
    assert curve(run, "train_loss_raw") == dict(enumerate([2.5, 2.25, 2.0, 1.75, 1.5], 1))
    assert any("the list has no end" in note for note in run.notes)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[[1, 2.5, 2.4], [2, 2.25, 2.3]]", "several lists"),
        ("[2.5, 2.25, 2.0, 1.75, 1.5]\n[1.4, 1.3, 1.2, 1.1, 1.0]\n", "several lists"),
        ("[2.5 2.25 2.0 ... 1.75 1.5 1.25]", "NumPy shortened"),
    ],
)
def test_lists_that_cannot_be_told_apart_or_lack_numbers_are_refused(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "losses.txt"
    path.write_text(text)
    with pytest.raises(UnreadableError, match=word) as refused:
        import_runs(path)
    assert refused.value.hint


@pytest.mark.parametrize("name", ["primes.txt", "loss_weights.json", "kl_loss.txt", "policy_losses.json", "train_loss_acc.txt"])
@pytest.mark.parametrize("text", [LISTS["json"], "2.5\n2.25\n2.0\n1.75\n1.5\n", "2.5,1\n2.2,1.1\n2.3,1.2\n2.0,1.0\n1.9,0.9\n"])
def test_numbers_in_a_file_named_after_no_whole_loss_are_left_alone(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UnreadableError, match="no log that is known"):
        import_runs(tmp_path / name)


def test_a_name_may_go_on_behind_the_loss(tmp_path: Path) -> None:
    path = tmp_path / "train_loss_Ns20_Nq20_ep50_cosine.pth.txt"
    np.savetxt(path, LOSSES)
    (run,) = import_runs(path)
    assert same(curve(run, "train_loss_raw"), LOSSES)


@pytest.mark.parametrize(
    ("header", "name", "series"),
    [
        ("losses", "losses.csv", "train_loss_raw"),
        ("# train_loss", "out.txt", "train_loss_raw"),
        ("val_loss", "log.csv", "val_loss"),
        ("loss", "val_loss.csv", "val_loss"),
        ("0", "losses.csv", "train_loss_raw"),  # as pandas calls a column without a name
        ("value", "valid_loss.csv", "val_loss"),
    ],
)
def test_a_single_column_below_its_name(tmp_path: Path, header: str, name: str, series: str) -> None:
    path = tmp_path / name
    path.write_text("\n".join([header, *map(str, LOSSES), ""]))
    (run,) = import_runs(path)
    assert run.table.names == (series,)
    assert same(curve(run, series), LOSSES)


@pytest.mark.parametrize(("header", "name"), [("accuracy", "train_loss.txt"), ("time", "losses.csv"), ("value", "out.txt")])
def test_a_single_column_of_something_else_is_left_alone(tmp_path: Path, header: str, name: str) -> None:
    (tmp_path / name).write_text("\n".join([header, *map(str, LOSSES), ""]))
    with pytest.raises(UnreadableError, match="no log that is known"):
        import_runs(tmp_path / name)


def test_a_line_that_is_no_number_is_not_recorded_and_told(tmp_path: Path) -> None:
    path = tmp_path / "loss.txt"
    path.write_text("2.5\n\n2.25\n" + "2.0\n" * 60 + "oops\n1.5\n")
    (run,) = import_runs(path)
    losses = curve(run, "train_loss_raw")
    assert (losses[1], losses[2], 63 in losses, losses[64]) == (2.5, 2.25, False, 1.5)
    assert "1 cell is no number and counts as not recorded, first line 64" in run.notes


TWO = "".join(f"{2.5 - n / 100} ,{2.6 - n / 90}\n" for n in range(8))


def test_the_first_of_two_columns_is_the_loss_and_the_second_is_offered(tmp_path: Path) -> None:
    path = tmp_path / "losses.csv"
    path.write_text(TWO.rstrip())
    (run,) = import_runs(path)
    assert run.table.names == ("train_loss_raw",)
    assert curve(run, "train_loss_raw") == {n + 1: 2.5 - n / 100 for n in range(8)}
    assert any("where column 2 is that of validation, --map 'val_loss=column 2' takes it" in note for note in run.notes)
    (run,) = import_runs(path, import_options=ImportOptions(columns={"val_loss": "column 2"}))
    assert curve(run, "val_loss") == {n + 1: 2.6 - n / 90 for n in range(8)}
    assert curve(run, "train_loss_raw")[1] == 2.5
    assert not any("takes it" in note for note in run.notes)


def test_two_columns_are_those_that_the_name_lists(tmp_path: Path) -> None:
    path = tmp_path / "train_val_loss.txt"
    path.write_text(TWO)
    (run,) = import_runs(path)
    assert (run.rows[0]["train_loss_raw"], run.rows[0]["val_loss"]) == (2.5, 2.6)


@pytest.mark.parametrize(
    ("row", "first"),
    [("{n} {loss}\n", 4), ("{n},3,{loss},0.5\n", 4), ("{n}.0\t{loss}\t\n", 4), ("{n};{loss}\n", 4), ("3 {loss}\n", 1)],
)
def test_columns_that_count_are_no_loss(tmp_path: Path, row: str, first: int) -> None:
    path = tmp_path / "losses.txt"
    path.write_text("".join(row.format(n=n, loss=2.5 - n / 7) for n in range(4, 12)))
    (run,) = import_runs(path)
    assert curve(run, "train_loss_raw") == {n - 4 + first: 2.5 - n / 7 for n in range(4, 12)}


@pytest.mark.parametrize("header", [",0\n", "0,1\n"])
def test_places_that_pandas_writes_for_names_are_no_row(tmp_path: Path, header: str) -> None:
    path = tmp_path / "losses.csv"
    rows = "".join(f"{n},{2.5 - n / 7}\n" if header.startswith(",") else f"{2.5 - n / 7},1.5\n" for n in range(8))
    path.write_text(header + rows)
    (run,) = import_runs(path)
    assert list(curve(run, "train_loss_raw").values()) == [2.5 - n / 7 for n in range(8)]


def test_rows_of_another_width_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "losses.txt"
    path.write_text("".join(f"{n} {2.5 - n / 100}\n" for n in range(1, 60)) + "done\n60 1")
    (run,) = import_runs(path)
    assert len(run.rows) == 60
    assert "1 line does not hold 2 numbers: left out, first line 60" in run.notes


def test_counts_alone_hold_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "losses.csv"
    path.write_text("".join(f"{n},{100 - n}\n" for n in range(9)))  # or losses with a decimal comma
    with pytest.raises(UnreadableError, match="nothing names them; column 1, column 2 count") as refused:
        import_runs(path)
    assert refused.value.hint == "--map 'loss=column 2' would take column 2 for the training loss."


LEARNT = [(0.9 * 0.95**n + 0.02 * (n % 3), 1 - 0.5 * 0.9**n) for n in range(40)]


def test_a_loss_and_an_accuracy_are_told_in_the_log_of_a_training(tmp_path: Path) -> None:
    path = tmp_path / "train_log.txt"
    path.write_text("".join(f"{n} {loss} {accuracy}\n" for n, (loss, accuracy) in enumerate(LEARNT)))
    (run,) = import_runs(path)
    assert run.table.names == ("train_loss_raw",)
    assert curve(run, "train_loss_raw") == {n: loss for n, (loss, _) in enumerate(LEARNT)}
    assert any("column 2 falls while column 3 rises between 0 and 1" in note for note in run.notes)


@pytest.mark.parametrize(
    "row",
    [
        "{n} {accuracy} {loss}\n",  # or a loss that climbs
        "{n} {rate} {accuracy}\n",  # a schedule falls smoothly
        "{n} {loss} {loss}\n",
        "{loss} {accuracy}\n",
        "{n} {loss} {accuracy} {loss}\n",
    ],
)
def test_columns_of_a_training_that_tell_nothing_are_refused_with_the_option(tmp_path: Path, row: str) -> None:
    path = tmp_path / "train_log.txt"
    rows = enumerate(LEARNT)
    path.write_text("".join(row.format(n=n, loss=loss, accuracy=acc, rate=0.99**n) for n, (loss, acc) in rows))
    with pytest.raises(UnreadableError, match="nothing names them") as refused:
        import_runs(path)
    assert "--map 'loss=column " in str(refused.value.hint)
    (run,) = import_runs(path, import_options=ImportOptions(columns={"loss": "column 2"}))
    assert run.table.names == ("train_loss_raw",)
    with pytest.raises(UsageError, match="which is not there"):
        import_runs(path, import_options=ImportOptions(columns={"loss": "column 9"}))


def test_a_data_set_in_rows_is_no_log(tmp_path: Path) -> None:
    for name in ("train.csv", "out.txt", "X_train.txt"):
        (tmp_path / name).write_text("".join(f"{n} {loss} {acc}\n" for n, (loss, acc) in enumerate(LEARNT)))
        with pytest.raises(UnreadableError, match="no log that is known"):
            import_runs(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "[2.5, 2.25, 2.0, 1.75, 1.5, " + "[" * 200_000,
        "[2.5, 2.25, 2.0, 1.75, 1.5, " + "1" * 2_000_000 + "]",
        "tensor(" * 200_000,
        "[2.5, 2.25, 2.0, 1.75, 1.5, " + "tensor(0.5, " * 100_000,
        "2.5\n" * 6 + "9" * 2_000_000 + "\n",
        "2.5,1\n" * 6 + "9," * 1_000_000,
    ],
)
def test_what_has_no_end_costs_no_more_than_its_length(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train_loss.txt"
    path.write_text(text)
    begun = process_time()
    with suppress(UnreadableError):
        import_runs(path)
    assert process_time() - begun < 5


def test_more_numbers_than_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headerless_numbers, "MAX_CELLS", 100)
    for text in ("0.5\n" * 101, "0.5 0.4\n" * 51, f"[{'0.5,' * 101}]"):
        (tmp_path / "train_loss.txt").write_text(text)
        with pytest.raises(UnreadableError, match="more than 100 numbers"):
            import_runs(tmp_path / "train_loss.txt")


def test_a_comma_for_the_point_of_long_numbers_is_no_second_column(tmp_path: Path) -> None:
    losses = [0.3510846238292013, 0.18887543419156128, 0.1874266461099444, 0.18, 0.18709085908925144, 0.186961382841956]
    path = tmp_path / "train_loss.txt"
    path.write_text("".join(f"{loss}\n".replace(".", ",") for loss in losses))
    (run,) = import_runs(path)
    assert [row["train_loss_raw"] for row in run.rows] == losses
    assert any("decimal comma" in note for note in run.notes)
