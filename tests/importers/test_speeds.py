"""What lines of text say of speed: seconds of a step, steps and samples per second, each in the unit that stands there."""

from collections.abc import Callable

import pytest

from ckaudit.importers import Imported
from ckaudit.importers.names import catalogue_name
from tests.loops import for_each

Import = Callable[..., Imported]


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def noted(run: Imported, words: str) -> bool:
    return any(words in note for note in run.notes)


def paddle(step: int) -> str:
    return (
        f"[2025/03/11 09:14:{step // 10:02}] ppocr INFO: epoch: [{(step + 29) // 30}/3], global_step: {step}, lr: 0.000010, "
        f"acc: 0.{step:03}, norm_edit_dis: 0.5, CTCLoss: 9.4, loss: {20 - step / 10:.6f}, avg_reader_cost: 0.06627 s, "
        f"avg_batch_cost: 0.51739 s, avg_samples: 64.0, ips: {120 + step / 100:.5f} samples/s, eta: 0:39:29, "
        "max_mem_reserved: 12193 MB\n"
    )


def test_paddles_lines_are_read_by_their_counter_and_units(imported: Import) -> None:
    judged = "[2025/03/11 09:20:02] ppocr INFO: {} metric, acc: 0.9{}, norm_edit_dis: 0.8, fps: 1201.3\n"
    text = "".join(paddle(step) + (judged.format("cur", step) * (step % 30 == 0)) for step in range(10, 100, 10))
    run = imported(text + judged.format("best", 1), "train.log")
    assert curve(run, "train_loss_raw") == {step: 20 - step / 10 for step in range(10, 100, 10)}
    assert curve(run, "step_time") == dict.fromkeys(range(10, 100, 10), 0.51739)
    assert curve(run, "samples_per_sec") == {step: 120 + step / 100 for step in range(10, 100, 10)}
    assert curve(run, "microbench_score/acc")[90] == 0.090
    assert curve(run, "microbench_score/val_acc") == {30: 0.930, 60: 0.960, 90: 0.990}
    assert noted(run, "updates are those of global_step")
    assert noted(run, "reader_cost") or noted(run, "and ")
    assert not noted(run, "--map")


def test_a_writer_with_its_step_in_brackets_is_read(imported: Import) -> None:
    start = "I0311 09:00:01.123456 140211 logging_writer.py:48]"
    lines = [
        f"{start} [{step}] learning_rate=5e-05, loss={6 - step / 1000}, steps_per_second=12.5" for step in range(50, 500, 50)
    ]
    run = imported("\n".join([*lines, f"{start} [450] eval_accuracy=0.7, eval_loss=2.1", ""]), "out.log")
    assert curve(run, "train_loss_raw") == {step: 6 - step / 1000 for step in range(50, 500, 50)}
    assert set(curve(run, "step_time").values()) == {0.08}
    assert curve(run, "val_loss") == {450: 2.1}
    assert noted(run, "step_time is one over steps_per_second")


def test_timms_time_of_a_batch_and_its_rate_are_read(imported: Import) -> None:
    lines = [
        f"Train: {epoch} [{batch:>4}/1251 ({batch // 13:>3}%)]  Loss: {7 - epoch:.2f} (6.9)  Time: 0.31{epoch}s,  826.50/s  "
        f"(0.312s,  820.51/s)  LR: 1.333e-01  Data: 0.007 (0.012)"
        for epoch in range(2)
        for batch in range(0, 1250, 50)
    ]
    run = imported("\n".join([*lines, ""]), "train.out")
    assert curve(run, "step_time")[1] == 0.310
    assert curve(run, "step_time")[1252] == 0.311
    assert set(curve(run, "samples_per_sec").values()) == {826.5}


def mmengine(epoch: int, batch: int) -> str:
    return (
        f"2025/03/11 09:14:52 - mmengine - INFO - Epoch(train)  [{epoch}][{batch:>3}/500]  lr: 1.0000e-02  eta: 29:45  "
        f"time: 0.{2900 + batch}  data_time: 0.0290  memory: 3312  grad_norm: 2.7980  loss: {5 - epoch - batch / 1000:.4f}\n"
    )


def test_mmengines_text_has_the_times_of_its_json_and_evaluations_are_no_steps(imported: Import) -> None:
    text = ""
    for epoch in (1, 2, 3):
        text += "".join(mmengine(epoch, batch) for batch in (100, 200, 50, 400, 500) if batch != 50)
        for batch in (50, 125):
            text += (
                f"2025/03/11 09:22:22 - mmengine - INFO - Epoch(val) [{epoch}][{batch:>3}/125]    eta: 0:00:02  time: 0.0391\n"
            )
        judged = f"Epoch(val) [{epoch}][125/125]    val/acc: 0.{epoch}  data_time: 0.003  time: 0.04"
        text += f"2025/03/11 09:22:22 - mmengine - INFO - {judged}\n"
    run = imported(text, "20250311_091402.log")
    steps = [500 * epoch + batch for epoch in range(3) for batch in (100, 200, 400, 500)]
    assert list(curve(run, "train_loss_raw")) == steps
    assert curve(run, "step_time")[100] == 0.3
    assert curve(run, "dataloader_stall_frac")[100] == pytest.approx(0.029 / 0.3)
    assert curve(run, "microbench_score/val_acc") == {500: 0.1, 1000: 0.2, 1500: 0.3}
    assert not noted(run, "lines were left out")


@for_each(
    "line, name, value",
    [
        ("Step {} | loss:1.5 lr:2e-07 tokens_per_second_per_gpu:2028.0 peak_memory_active:1.2", "tokens_per_sec", 2028.0),
        ("[titan] step: {}  loss: 1.5  memory: 1.2GiB(1%)  tps: 5,432  mfu: 41.20%", "tokens_per_sec", 5432.0),
        ("global step {}, epoch: 0, loss: 1.5, avg_batch_cost: 0.5 sec, speed: 2.00 step/s, ips: 99 tokens/s", "step_time", 0.5),
        ("global step {}, epoch: 0, loss: 1.5, speed: 2.50 step/s, ips: 99 tokens/s", "step_time", 0.4),
        ("global step {}, epoch: 0, loss: 1.5, speed: 2.50 step/s, ips: 99 tokens/s", "tokens_per_sec", 99.0),
        ("step {} loss: 1.5 avg_samples: 64 samples: 9", "samples_per_sec", None),
    ],
)
def test_a_unit_tells_what_a_number_is(imported: Import, line: str, name: str, value: float | None) -> None:
    run = imported("".join(line.format(step) + "\n" for step in range(1, 9)), "out.log")
    assert set(curve(run, name).values()) == ({value} if value is not None else set())


def test_a_count_of_samples_is_no_rate() -> None:
    assert [catalogue_name(name) for name in ("samples", "avg_samples", "images")] == [None, None, None]
    names = ("samples/sec", "samples_per_second", "CurrSamplesPerSec", "samplespersec", "imgs/s", "perf/samples_s")
    assert {catalogue_name(name) for name in names} == {"samples_per_sec"}
