"""What Ultralytics prints while it trains a detector, a classifier, or an older YOLO."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported, import_runs

Import = Callable[..., Imported]
PARTS = ("box_loss", "cls_loss", "dfl_loss")
CLASSES = (
    "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|██████████| 7/7 [00:02]\n"
)


def bar(share: int, speed: str = "3.0it/s") -> str:
    return f"{share}%|{'█' * (share // 10):<10}| {40 * share // 100}/40 [00:12<00:00, {speed}]"


def epoch(number: int, *losses: object, parts: tuple[str, ...] = PARTS, end: int = 30, share: int = 100) -> str:
    """Return the header and the line of an epoch, in the two versions of its bar that a log keeps."""
    header = "".join(f"{name:>11}" for name in ("Epoch", "GPU_mem", *parts, "Instances", "Size"))
    cells = "".join(f"{cell:>11}" for cell in (f"{number}/{end}", "2.19G", *losses, 20, 640))
    return f"\n{header}\n{cells}: {bar(0)}\r{cells}: {bar(share)}\n"


def scores(m_ap: float) -> str:
    return f"{CLASSES}                   all        400        400      0.512      0.303      {m_ap}      0.048\n"


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def test_the_loss_of_an_epoch_is_the_sum_of_its_parts(imported: Import) -> None:
    text = "Ultralytics YOLOv8.0.196 🚀\nStarting training for 30 epochs...\n"
    text += "".join(epoch(n, 2.0 / n, 1.0, 0.5) + scores(n / 10) for n in (1, 2, 4))
    run = imported(text + "\n3 epochs completed in 0.2 hours.\n" + scores(0.9), "train.log")
    assert run.source == "YOLO console"
    assert curve(run, "train_loss_raw") == {1: 3.5, 2: 2.5, 4: 2.0}
    assert run.manifest.step_unit == "epoch"
    assert "taken: train_loss_raw as train/box_loss + train/cls_loss + train/dfl_loss" in run.notes
    assert any("metrics/mAP50(B)" in note for note in run.notes if note.startswith("left out"))
    assert not any("twice" in note for note in run.notes)


def test_scores_have_the_names_of_the_csv_and_can_be_taken(imported: Import) -> None:
    text = "".join(epoch(n, 2.0 / n, 1.0, 0.5) + scores(n / 10) for n in (1, 2, 4)) + scores(0.9)
    run = imported(text, "train.log", **{"microbench_score/map50": "metrics/mAP50(B)", "loss": "train/box_loss"})
    assert curve(run, "microbench_score/map50") == {1: 0.1, 2: 0.2, 4: 0.4}
    assert curve(run, "train_loss_raw") == {1: 2.0, 2: 1.0, 4: 0.5}


def test_an_older_yolo_counts_epochs_from_zero_and_a_classifier_has_its_loss_whole(imported: Import) -> None:
    run = imported("".join(epoch(n, 1.0, 0.25, n, parts=("box_loss", "obj_loss", "cls_loss")) for n in range(3)), "train.log")
    assert curve(run, "train_loss_raw") == {1: 1.25, 2: 2.25, 3: 3.25}
    assert any("epochs count from 0" in note for note in run.notes)
    whole = imported("".join(epoch(n, 2.0 / n, parts=("loss",)) for n in (1, 2)), "train.log")
    assert curve(whole, "train_loss_raw") == {1: 2.0, 2: 1.0}
    assert len([note for note in whole.notes if note.startswith("taken")]) == 1


def test_a_part_that_is_no_number_is_found(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(epoch(n, n / 4, "nan" if n > 6 else 1.0, 0.5) + scores(0.1) for n in range(1, 10)))
    (run,) = import_runs(path)
    values = curve(run, "train_loss_raw")
    assert values[6] == 3.0
    assert all(math.isnan(values[n]) for n in (7, 8, 9))
    assert ("NUM001", 7) in {(each.code, each.first_step) for each in triage(path).findings}


def test_an_epoch_that_is_not_done_or_cut_off_is_left_out(imported: Import) -> None:
    whole = epoch(1, 1.0, 1.0, 1.0) + epoch(2, 1.0, 1.0, 1.5)
    assert curve(imported(whole + epoch(3, 9.0, 9.0, 9.0, share=60), "train.log"), "train_loss_raw") == {1: 3.0, 2: 3.5}
    cut = epoch(3, 9.0, 9.0, 9.0).partition("\r")[0]
    for length in (20, 40, 60):
        assert curve(imported(whole + cut[: cut.index("2.19G") + length], "train.log"), "train_loss_raw") == {1: 3.0, 2: 3.5}


def test_epochs_that_begin_anew_are_another_run(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    once = "".join(epoch(n, 2.0, 1.0, 0.5) + scores(0.1) for n in range(1, 13))
    path.write_text(once + once)
    assert [len(curve(run, "train_loss_raw")) for run in import_runs(path)] == [12, 12]


@pytest.mark.parametrize(
    "text",
    [
        epoch(1, 1.0, 1.0, 1.0).replace("GPU_mem", "Memory") * 9,
        epoch(1, 1.0, 1.0, 1.0).replace("1/30", "first") * 9,
        epoch(1, 1.0, 1.0, 1.0).replace("Instances", "") * 9,
        scores(0.5) * 9,
    ],
)
def test_what_only_looks_alike_is_left(imported: Import, text: str) -> None:
    with pytest.raises(UnreadableError, match="no log that is known"):
        imported(text, "train.log")
