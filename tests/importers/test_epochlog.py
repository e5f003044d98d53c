"""Lines of epochs: every way in which scripts print them, held against the numbers that stand there."""

import math
from itertools import pairwise

import pytest

from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.errors import UnreadableError
from ckaudit.importers import import_runs
from ckaudit.importers.importer import Imported


def read(tmp_path, text: str) -> list[Imported]:
    file = tmp_path / "train.log"
    file.write_text(text, encoding="utf-8")
    return import_runs(file)


def curve(run: Imported, name: str) -> list[tuple[int, float]]:
    return [(row["step"], row[name]) for row in run.rows if name in row]


def test_one_line_an_epoch(tmp_path):
    lines = [f"Epoch {n}/4 - Train Loss: {2 / n:.4f}, Val Loss: {3 / n:.4f}" for n in range(1, 5)]
    (run,) = read(tmp_path, "some words\n" + "\n  saved\n".join(lines) + "\n")
    assert run.source == "epoch text log"
    assert curve(run, "train_loss_raw") == [(1, 2.0), (2, 1.0), (3, 0.6667), (4, 0.5)]
    assert curve(run, "val_loss") == [(1, 3.0), (2, 1.5), (3, 1.0), (4, 0.75)]


def test_an_epoch_and_its_number_in_one_word(tmp_path):
    lines = [f"Epoch{n} Time:179.{n}s Loss:{3 / n:.4f} Acc:9{n}.99%\n" for n in (1, 2, 3, 1, 2, 3, 4)]
    first, second = read(tmp_path, "".join(lines))
    assert curve(first, "train_loss_raw") == [(1, 3.0), (2, 1.5), (3, 1.0)]
    assert [step for step, _ in curve(second, "train_loss_raw")] == [1, 2, 3, 4]


def test_values_in_the_lines_after_their_epoch(tmp_path):
    text = "".join(
        f"2018-03-11 07:0{n}:00,000:INFO: Epoch {n}/3\n"
        f"2018-03-11 07:0{n}:20,000:INFO: - Train metrics: accuracy: 0.5 ; loss: {1 / n:.3f}\n"
        f"2018-03-11 07:0{n}:30,000:INFO: - Eval metrics : accuracy: 0.6 ; loss: {2 / n:.3f}\n"
        for n in range(1, 4)
    )
    (run,) = read(tmp_path, text)
    assert curve(run, "train_loss_raw") == [(1, 1.0), (2, 0.5), (3, 0.333)]
    assert curve(run, "val_loss") == [(1, 2.0), (2, 1.0), (3, 0.667)]


def test_a_validation_loss_of_zero_throughout_was_not_computed(tmp_path):
    text = "".join(f"Epoch {n}/3\n- Train: loss: {1 / n:.3f}\n- Eval: loss: 0.000\n" for n in range(1, 4))
    (run,) = read(tmp_path, text)
    assert curve(run, "val_loss") == []
    assert any("exactly 0 throughout" in note for note in run.notes)


def test_batches_that_count_anew_become_updates(tmp_path):
    text = "".join(
        f"Epoch: [{epoch}][{batch}/391]\tTime 0.1 (0.2)\tLoss {5 - epoch - batch / 1000:.4f} (9.9999)\n"
        for epoch in range(3)
        for batch in (0, 100, 200)
    )
    (run,) = read(tmp_path, text)
    assert [step for step, _ in curve(run, "train_loss_raw")] == [1, 101, 201, 392, 492, 592, 783, 883, 983]
    assert curve(run, "train_loss_raw")[4] == (492, 3.9)


def test_data_beside_time_is_the_part_of_a_step_that_waits(tmp_path):
    text = "".join(
        f"Epoch: [{epoch}][{batch:3d}/100]\tTime  {0.5 - epoch / 10:.3f} ( 0.354)\tData  {wait:.3f} ( 0.049)\t"
        f"Loss {3 - epoch:.4e} (9.9e-01)\n"
        for epoch in range(2)
        for batch, wait in ((0, 0.05), (50, 0.4))
    )
    (run,) = read(tmp_path, text)
    assert curve(run, "dataloader_stall_frac") == [(1, 0.1), (51, 0.8), (101, 0.125), (151, 1.0)]
    assert [value for _, value in curve(run, "step_time")] == [0.5, 0.5, 0.4, 0.4]


def test_max_mem_is_in_mebibytes(tmp_path):
    text = "".join(
        f"Epoch: [{epoch}]  [{n}/100]  lr: 0.1  loss: {3 - epoch}  max mem: {1000 + n}\n" for epoch in range(2) for n in (0, 50)
    )
    (run,) = read(tmp_path, text)
    assert [value for _, value in curve(run, "gpu_mem_used")] == [1000 * 2**20, 1050 * 2**20, 1000 * 2**20, 1050 * 2**20]


def test_a_loss_of_validation_and_one_of_a_test_are_no_training_loss(tmp_path):
    text = "".join(
        f"epoch:[ {n}/3 ] train step:0 loss: {4 - n} lr: 0.01\nepoch:[ {n}/3 ] val step:0 loss: 9.0\n"
        f"END epoch:{n} val loss_avg: {5 - n}\nTest: Loss 7.0\n"
        for n in range(1, 4)
    )
    (run,) = read(tmp_path, text)
    assert [value for _, value in curve(run, "train_loss_raw")] == [3.0, 2.0, 1.0]
    assert [value for _, value in curve(run, "val_loss")] == [4.0, 3.0, 2.0]


def test_epoch_and_batch_in_brackets(tmp_path):
    lines = [f"[{epoch}, {batch:5d}] loss: {9 - 3 * epoch - batch / 10000:.3f}\n" for epoch in (1, 2) for batch in (2000, 4000)]
    (run,) = read(tmp_path, "Files already downloaded and verified\n" + "".join(lines) + "Finished Training\n")
    assert run.source == "epoch text log"
    assert curve(run, "train_loss_raw") == [(2000, 5.8), (4000, 5.6), (6000, 2.8), (8000, 2.6)]


QUICKSTART = "Epoch {}\n-----------\n{}Test Error: \n Accuracy: 44.7%, Avg loss: {:.6f} \n\n"


@pytest.mark.parametrize(("first", "expected"), [(64, [1, 3, 5, 6, 8, 10]), (0, [1, 2, 3, 4, 5, 6])])
def test_samples_and_a_test_after_each_epoch(tmp_path, first, expected):
    told = [[f"loss: {3 - epoch - at / 10:.6f}  [{first + 128 * at:>5d}/{320:>5d}]\n" for at in range(3)] for epoch in range(2)]
    text = "".join(QUICKSTART.format(epoch, "".join(told[epoch - 1]), 2.5 / epoch) for epoch in (1, 2))
    (run,) = read(tmp_path, f"Using cuda device\n{text}Done!\n")
    assert curve(run, "train_loss_raw") == list(zip(expected, [3.0, 2.9, 2.8, 2.0, 1.9, 1.8], strict=True))
    assert curve(run, "val_loss") == [(expected[2], 2.5), (expected[5], 1.25)]
    assert any("count samples, in multiples of" in note for note in run.notes)


def test_samples_between_the_epoch_and_the_loss(tmp_path):
    text = "".join(
        "".join(f"Train Epoch: {epoch} [{at}/30 ({at // 0.3:.0f}%)]\tLoss: {4 - epoch - at / 100:.6f}\n" for at in (0, 10, 20))
        + f"\nTest set: Average loss: {1 / epoch:.4f}, Accuracy: 9100/10000 (91%)\n\n"
        for epoch in (1, 2)
    )
    (run,) = read(tmp_path, text)
    assert curve(run, "train_loss_raw") == [(1, 3.0), (2, 2.9), (3, 2.8), (4, 2.0), (5, 1.9), (6, 1.8)]
    assert curve(run, "val_loss") == [(3, 1.0), (6, 0.5)]


def test_a_test_at_the_end_is_no_validation(tmp_path):
    (run,) = read(tmp_path, "".join(f"Epoch {n}/3 loss: {4 - n}\n" for n in range(1, 4)) + "Test: loss: 7.0\n")
    assert curve(run, "train_loss_raw") == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert curve(run, "val_loss") == []


def test_an_evaluation_that_a_line_begins_is_none_of_the_training(tmp_path):
    evaluation = "Eval begin...\nstep 5/9 - loss: 9.0\nstep 9/9 - loss: 8.0\n"
    training = [f"Epoch {n}/3\nstep 10/20 - loss: {4 - n}.5\nstep 20/20 - loss: {4 - n}\n" for n in range(1, 4)]
    text = evaluation.join(training) + evaluation
    (run,) = read(tmp_path, text)
    assert curve(run, "train_loss_raw") == [(10, 3.5), (20, 3.0), (30, 2.5), (40, 2.0), (50, 1.5), (60, 1.0)]


def test_a_mean_that_is_no_number_is_kept(tmp_path):
    (run,) = read(tmp_path, "".join(f"Training epoch: {n}\n\tmean_loss: nan\n" for n in range(3)))
    assert [step for step, value in curve(run, "train_loss_raw") if value != value] == [1, 2, 3]


def test_what_keras_prints(tmp_path):
    bar, done = "  1/100 [>.....] - ETA: 9s - loss: 9.9\n", "100/100 [=====] - 5s 2ms/step"
    text = "".join(f"Epoch {n}/3\n{bar}{done} - loss: {1 / n:.4f} - val_loss: {2 / n:.4f}\n" for n in range(1, 4))
    (run,) = read(tmp_path, text)
    assert curve(run, "train_loss_raw") == [(1, 1.0), (2, 0.5), (3, 0.3333)]
    assert curve(run, "val_loss") == [(1, 2.0), (2, 1.0), (3, 0.6667)]


def test_batches_that_no_line_numbers_stand_in_their_order(tmp_path):
    text = "".join(
        f"##### Epoch {epoch} #####\n"
        + "".join(f"Epoch {epoch} - Batch loss: {loss}\n" for loss in losses)
        + f"Epoch {epoch} - Average Train Loss: {sum(losses) / len(losses)}\nEpoch {epoch} - Val loss: {2 / epoch}\n"
        for epoch, losses in ((1, [9.0, 8.0, 7.0, 6.0]), (2, [5.0, 4.5, 4.0]), (3, [3.5, 3.0, 2.5, 2.25]))
    )
    (run,) = read(tmp_path, text)
    values = {1: 9.0, 2: 8.0, 3: 7.0, 4: 6.0, 5: 5.0, 6: 4.5, 7: 4.0, 9: 3.5, 10: 3.0, 11: 2.5, 12: 2.25}
    assert dict(curve(run, "train_loss_raw")) == values  # the second epoch has a batch less
    assert curve(run, "val_loss") == [(4, 2.0), (8, 1.0), (12, pytest.approx(0.6667, abs=1e-4))]
    assert any("numbered from 1" in note for note in run.notes)


def test_the_dcgan_tutorial_counts_epochs_and_batches_in_brackets(tmp_path):
    text = "Starting Training Loop...\n" + "".join(
        f"[{epoch}/3][{batch}/1583]\tLoss_D: 0.{epoch}5\tLoss_G: 3.{batch:04d}\tD(x): 0.8\tD(G(z)): 0.3 / 0.1\n"
        for epoch in range(3)
        for batch in range(0, 1583, 500)
    )
    (run,) = read(tmp_path, text)
    sums = dict(curve(run, "train_loss_raw")[:5])
    assert sums == pytest.approx({1: 3.05, 501: 3.1, 1001: 3.15, 1501: 3.2, 1584: 3.15})
    assert any("play against each other" in note for note in run.notes)


def test_timm_and_openmmlab_count_batches(tmp_path):
    (run,) = read(
        tmp_path,
        "".join(
            f"Train: {epoch} [{batch:4d}/1251 ({batch // 13:3d}%)]  Loss: {3 - epoch - batch / 1000:.3f} (2.50)  LR: 1.0e-05\n"
            + (f"Test: [  48/48]  Time: 1.2 (1.2)  Loss:  3.9 ({3.5 - epoch:.3f})  Acc@1:  50.0 ( 4{epoch}.0)\n" if batch else "")
            for epoch in range(2)
            for batch in (0, 500)
        ),
    )
    assert curve(run, "train_loss_raw") == [(1, 3.0), (501, 2.5), (1252, 2.0), (1752, 1.5)]
    assert curve(run, "val_loss") == [(1251, 3.5), (2502, 2.5)], "the means over all batches"
    assert curve(run, "microbench_score/test_acc1") == [(1251, 40.0), (2502, 41.0)]
    (run,) = read(
        tmp_path,
        "".join(
            f"2023/01/01 00:00:0{n} - mmengine - INFO - Epoch(train)  [{1 + n // 2}][{50 + n % 2 * 50:3d}/100]  loss: 0.{9 - n}\n"
            for n in range(4)
        ),
    )
    assert curve(run, "train_loss_raw") == [(50, 0.9), (100, 0.8), (150, 0.7), (200, 0.6)]


def test_printed_dictionaries_of_epochs(tmp_path):
    (run,) = read(tmp_path, "".join(str({"epoch": n, "train_loss": 2 / n, "val_loss": 3 / n}) + "\n" for n in (1, 2, 4, 5, 6)))
    assert curve(run, "train_loss_raw")[:3] == [(1, 2.0), (2, 1.0), (4, 0.5)]
    assert curve(run, "val_loss")[:3] == [(1, 3.0), (2, 1.5), (4, 0.75)]


def test_the_name_may_stand_before_the_epoch(tmp_path):
    (run,) = read(tmp_path, "".join(f"Training loss after epoch {n}: {1 / n:.4f}\n" for n in range(1, 9)))
    assert curve(run, "train_loss_raw") == [(n, pytest.approx(1 / n, abs=1e-4)) for n in range(1, 9)]


def test_where_no_line_names_a_loss_the_one_measure_of_error_is(tmp_path):
    (run,) = read(tmp_path, "".join(f"epoch {n} train mse {1 / n:.5f} test mse {2 / n:.5f} r2 0.5\n" for n in range(1, 9)))
    assert curve(run, "val_loss")[0] == (1, 2.0)
    assert curve(run, "train_loss_raw")[1] == (2, 0.5)
    assert any("no line names a loss: train mse and test mse" in note for note in run.notes)


def test_starts_in_one_file_are_runs(tmp_path):
    start = "".join(f"Epoch {n:03d} | loss: {1 / n:.4f}\n" for n in range(1, 15))
    first, second = read(tmp_path, start + start.replace("loss: 1.0", "loss: 1.1"))
    assert len(curve(first, "train_loss_raw")) == len(curve(second, "train_loss_raw")) == 14
    assert curve(second, "train_loss_raw")[0] == (1, 1.1)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"epoch 1 step {n}: loss {9 - n}\n" for n in range(1, 6)),  # one epoch: its steps are those of the run
        "".join(f"epoch {n} step {n * 10}: loss {9 - n}\n" for n in range(1, 6)),  # steps go on over epochs
    ],
)
def test_steps_that_go_on_over_epochs_are_left_to_the_reader_of_steps(tmp_path, text):
    (run,) = read(tmp_path, text)
    assert run.source == "key:value text log"


def test_the_bare_lines_of_build_nanogpt(tmp_path):
    (run,) = read(
        tmp_path, "0 val 10.95\n0 hella 0.25\n" + "".join(f"{n} train {11 - n:.6f}\n" for n in range(3)) + "2 val 9.00\n"
    )
    assert curve(run, "train_loss_raw") == [(1, 11.0), (2, 10.0), (3, 9.0)]
    assert curve(run, "val_loss") == [(0, 10.95), (2, 9.0)]
    assert curve(run, "microbench_score/hellaswag") == [(0, 0.25)]


def test_a_start_that_came_to_no_epoch_lends_its_time_to_none(tmp_path):
    begun = "".join(
        f"2022-07-28 {hour}:50:53,000:INFO: Starting training for 3 epoch(s)\n2022-07-28 {hour}:50:53,000:INFO: Epoch 1/3\n"
        for hour in (11, 13)
    )
    trained = "".join(
        f"2022-07-28 13:5{n}:04,000:INFO: Epoch {n}/3\n2022-07-28 13:5{n}:06,000:INFO: - Train metrics: loss: {1 / n:.3f}\n"
        for n in range(1, 4)
    )
    (run,) = read(tmp_path, begun + trained)
    times = [time for _, time in curve(run, "time")]
    assert [after - before for before, after in pairwise(times)] == [60.0, 60.0]


def test_how_far_a_progress_bar_is_is_no_loss(tmp_path):
    bar = "Epoch {0}/9 train:  34%|###       | 10/29 [03:29<06:36, 20.18s/it]\n"
    lines = [bar.format(epoch) + f"Epoch {epoch}/9 Train Loss: {3 / epoch:.4f}\n" for epoch in range(1, 6)]
    (run,) = read(tmp_path, "".join(lines) + bar.format(6))
    assert curve(run, "train_loss_raw") == [(1, 3.0), (2, 1.5), (3, 1.0), (4, 0.75), (5, 0.6)]


def test_the_losses_of_a_generator_and_its_judge_are_added_as_in_a_table(tmp_path):
    lines = [f"[GAN] Epoch {n}/4 D Loss: {1.4 - 0.1 * n:.3f} G Loss: {0.7 + 0.2 * n:.3f} | Val G Loss: 0.67" for n in range(1, 5)]
    (run,) = read(tmp_path, "\n".join(["Using device: cpu", *lines]))
    assert curve(run, "train_loss_raw") == [(1, pytest.approx(2.2)), (2, pytest.approx(2.3)), (3, pytest.approx(2.4)), (4, 2.5)]
    assert run.manifest.takes_turns is True
    assert any("d loss" in note and "need not fall" in note for note in run.notes)
    assert any(note.startswith("left out") and note.endswith("val g loss") for note in run.notes)


PARTS = "learning rate 0.0002000 -> 0.0001000\n" + "".join(
    f"(epoch: {epoch}, iters: {batch}, time: 1.294, data: 0.907) , D_A: 0.5, G_A: 0.4, cycle_A: {cycle}\n"
    for epoch, batch, cycle in ((1, 60, 1.25), (1, 120, 1.0), (2, 60, 0.8), (2, 120, 0.7), (3, 60, 0.6), (3, 120, 0.5))
)


def test_losses_of_parts_alone_are_named_in_the_hint(tmp_path):
    with pytest.raises(UnreadableError, match="whose name is known") as told:
        read(tmp_path, PARTS)
    assert "--map loss=KEY; the keys are cycle_a, d_a, data, g_a, time" in str(told.value.hint)


def test_a_part_that_is_named_is_read_by_batches(tmp_path):
    file = tmp_path / "train.log"
    file.write_text(PARTS, encoding="utf-8")
    (run,) = import_runs(file, import_options=ImportOptions(columns={"loss": "cycle_a"}))
    assert curve(run, "train_loss_raw") == [(60, 1.25), (120, 1.0), (180, 0.8), (240, 0.7), (300, 0.6), (360, 0.5)]


def test_a_report_of_whole_numbers_by_epoch_is_no_log(tmp_path):
    with pytest.raises(UnreadableError, match="no log that is known"):
        read(tmp_path, "epoch 1 blocks: 12 votes: 5\nepoch 2 blocks: 13 votes: 7\n")


def test_episodes_with_a_return_and_no_loss(tmp_path):
    lines = [f"Episode {n}\tAverage Reward: {10 * n:.2f}\tMax: {20 * n}" for n in (16, 32, 48)]
    (run,) = read(tmp_path, "\n".join(lines) + "\n")
    assert curve(run, "microbench_score/average_reward") == [(16, 160.0), (32, 320.0), (48, 480.0)]
    lines = [f"Episode: {n}, total reward: {10 * n:.2f}, epsilon: 0.10" for n in (1, 2, 3)]
    (run,) = read(tmp_path, "\n".join(lines) + "\n")
    assert curve(run, "microbench_score/total_reward") == [(1, 10.0), (2, 20.0), (3, 30.0)]


def test_scores_of_data_beside_a_loss_are_no_losses(imported):
    text = "".join(f"Epoch: {n:03d}, Loss: {2 - n / 10:.4f}, Train: 0.{n}0, Val: 0.{n}1, Test: 0.{n}2\n" for n in range(1, 10))
    run = imported(text, "gcn.txt")
    assert [row["train_loss_raw"] for row in run.rows] == [round(2 - n / 10, 4) for n in range(1, 10)]
    assert not any("val_loss" in row for row in run.rows)


def test_a_pass_over_the_data_is_an_epoch(imported):
    text = "".join(f"pass {n} / 4 -- training loss {loss} (12.1 s)\n" for n, loss in enumerate((0.6, 2.9, 47.3, "inf"), 1))
    run = imported(text, "out.log")
    assert [(row["step"], row["train_loss_raw"]) for row in run.rows] == [(1, 0.6), (2, 2.9), (3, 47.3), (4, math.inf)]


def test_a_bare_loss_beside_one_of_training_is_left_out_for_a_test_prints_it_too(tmp_path):
    text = "".join(
        f"Epoch {epoch}: lr 0.001 loss {2 - epoch / 4}\n * Train Loss {2 - epoch / 4}\n * Val Loss {2 - epoch / 5}\n"
        for epoch in range(5)
    )
    (run,) = read(tmp_path, text + "Start testing\nTest: loss 9.5 (9.5)\nloss 9.5\n")
    assert [value for _, value in curve(run, "train_loss_raw")] == [2.0, 1.75, 1.5, 1.25, 1.0]


def test_a_batch_may_be_called_batch_id(tmp_path):
    (run,) = read(tmp_path, "".join(f"epoch: {n}, batch_id: {b}, loss:0.{9 - n}{b // 100}\n" for n in (0, 1) for b in (0, 500)))
    assert [step for step, _ in curve(run, "train_loss_raw")] == [1, 501, 502, 1002]


def test_lines_of_several_processes_are_no_batches(tmp_path):
    text = "".join(
        f"END TRAIN LOOP EPOCH {n}, Loss: {8 / n:.4f}\n" * 4 + f"END VALIDATION EPOCH {n}, Validation Loss: {9 / n:.4f}\n" * 4
        for n in range(1, 7)
    )
    (run,) = read(tmp_path, text)
    assert curve(run, "train_loss_raw")[:2] == [(1, 8.0), (2, 4.0)]
    assert any("as of 4 processes" in note for note in run.notes), run.notes


def test_steps_of_the_run_beside_epochs_begin_anew_only_where_it_is_taken_up(imported):
    epochs = [*range(1, 9), *range(5, 20)]
    run = imported("".join(f"Train: STEP {41 * n} - EPOCH {n}/40 | loss: {3 / n:.4f}\n" for n in epochs), "train.log")
    assert run.source != "epoch text log"
    assert max(row["step"] for row in run.rows) in (41 * 19, 41 * 19 + 1)


def test_a_fit_that_is_called_again_goes_on_and_another_training_begins_high(tmp_path):
    def rounds(*losses: list[float]) -> str:
        return "".join(f"Epoch {place}/4 - loss: {loss}\n" for part in losses for place, loss in enumerate(part, 1))

    (one,) = read(tmp_path, rounds([2.4, 2.0, 1.8, 1.6], [1.5, 1.4, 1.3, 1.2], [1.15, 1.1, 1.1, 1.0]))
    assert curve(one, "train_loss_raw") == [*enumerate([2.4, 2.0, 1.8, 1.6, 1.5, 1.4, 1.3, 1.2, 1.15, 1.1, 1.1, 1.0], 1)]
    assert "steps begin anew 2 times while the loss goes on from where it was: they were counted through" in one.notes
    first, second = read(tmp_path, rounds([2.4, 2.0, 1.8, 1.6], [1.5, 1.4, 1.3, 1.2], [2.3, 2.0, 1.9, 1.7]))
    assert [step for step, _ in curve(first, "train_loss_raw")] == [*range(1, 9)]
    assert curve(second, "train_loss_raw") == [(1, 2.3), (2, 2.0), (3, 1.9), (4, 1.7)]
