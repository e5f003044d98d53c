"""Numbers alone, in a text or in arrays of NumPy."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported, import_runs

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
