"""Megatron and DeepSpeed text: prefixes, units, what a missing loss means, restarts, and runs of a whole job."""

import math
from collections.abc import Callable

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported, import_runs


def line(
    step: int, loss: float | None = 2.0, *, total: int = 100, scale: float = 1.0, skipped: int = 0, norm: float = 0.5
) -> str:
    of_loss = "" if loss is None else f" lm loss: {loss:.6E} |"
    return (
        f" iteration {step:8d}/{total:8d} | consumed samples: {step * 8:12d} | elapsed time per iteration (ms): 500.0 | "
        f"learning rate: 1.000E-04 | global batch size:     8 |{of_loss} loss scale: {scale:.1f} | grad norm: {norm:.3f} | "
        f"number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |\n"
    )


def curve(run: Imported, name: str) -> dict[int, float]:
    return {row["step"]: row[name] for row in run.rows if name in row}


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[default7]:",
        "7: ",
        "[rank7]: ",
        "worker-3: ",
        "[1,7]<stdout>:",
        "\x1b[32m",
        "[2024-05-01 12:00:00]",
        "2024-05-01T12:00:00.123456Z stdout F ",
        "[2024-05-01 12:00:00,123] [INFO] [logging.py:68:log_dist] [Rank 0] ",
    ],
)
def test_a_launcher_may_print_before_every_line(imported: Callable[..., Imported], prefix):
    run = imported("".join(prefix + line(step) for step in (10, 20, 30)), "x.log")
    assert curve(run, "train_loss_raw") == {10: 2.0, 20: 2.0, 30: 2.0}
    assert curve(run, "step_time")[20] == 0.5
    assert run.source.startswith("Megatron")


def test_seconds_and_milliseconds_give_seconds(imported):
    for unit, value in (("ms", "500.0"), ("s", "0.50")):
        text = line(1).replace("(ms): 500.0", f"({unit}): {value}")
        assert curve(imported(text, "x.log"), "step_time") == {1: 0.5}


def test_the_arguments_tell_of_the_run(imported):
    head = (
        "using world size: 16, data-parallel size: 16\n"
        "------------------------ arguments ------------------------\n"
        "  clip_grad ....................................... 1.0\n"
        "  num_layers ...................................... 24\n"
        "  lr_warmup_iters ................................. 200\n"
        "  seed ............................................ 1234\n"
        "  seq_length ...................................... 2048\n"
        " > padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)\n"
    )
    manifest = imported(head + line(1) + line(2), "x.log").manifest
    assert (manifest.world_size, manifest.seed, manifest.clip_norm) == (16, 1234, 1.0)
    assert (manifest.sequence_length, manifest.vocabulary, manifest.warmup_steps) == (2048, 50257, 200)
    assert manifest.model == {"num_layers": 24}
    assert manifest.planned_steps == 100
    assert manifest.config["num_layers"] == "24"


def test_samples_become_tokens_where_the_length_is_known(imported):
    run = imported("  seq_length ....... 2048\n" + line(1) + line(2), "x.log")
    assert curve(run, "tokens_seen") == {1: 8 * 2048.0, 2: 16 * 2048.0}
    assert curve(run, "tokens_per_sec") == {1: 8 * 2048 / 0.5, 2: 8 * 2048 / 0.5}
    assert "tokens_seen" not in imported(line(1) + line(2), "x.log").table.names


def test_a_mean_that_is_nan_is_not_printed_and_counts_as_nan(imported):
    run = imported(line(1) + line(2, None) + line(3, None), "x.log")
    loss = curve(run, "train_loss_raw")
    assert loss[1] == 2.0
    assert math.isnan(loss[2])
    assert math.isnan(loss[3])
    assert any("so it was NaN" in note for note in run.notes)


def test_a_skipped_update_prints_no_loss_either_and_counts_as_not_recorded(imported):
    run = imported(line(1, norm=0.7) + line(2, None, skipped=1, norm=0.7) + line(3, norm=0.6), "x.log")
    assert curve(run, "train_loss_raw") == {1: 2.0, 3: 2.0}
    assert curve(run, "grad_global_norm") == {1: 0.7, 3: 0.6}
    assert curve(run, "skipped_updates") == {1: 0.0, 2: 1.0, 3: 0.0}


def test_under_deepspeed_only_the_scale_tells_of_a_skipped_update(imported):
    run = imported(line(1, scale=4096.0) + line(2, None, scale=2048.0) + line(3, scale=2048.0), "x.log")
    assert curve(run, "train_loss_raw") == {1: 2.0, 3: 2.0}
    assert curve(run, "skipped_updates")[2] == 1.0


def test_a_loss_that_is_written_as_nan_is_nan(imported):
    run = imported(line(1) + line(2, math.nan) + line(3, math.inf), "x.log")
    assert math.isnan(curve(run, "train_loss_raw")[2])
    assert curve(run, "train_loss_raw")[3] == math.inf


def test_a_norm_of_zero_all_along_was_not_computed(imported):
    run = imported(line(1, norm=0.0) + line(2, norm=0.0), "x.log")
    assert "grad_global_norm" not in run.table.names
    assert any("none was computed" in note for note in run.notes)


def test_evaluations_and_those_at_the_end(imported):
    text = (
        line(10)
        + " validation loss at iteration 10 | lm loss value: 3.000000E+00 | lm loss PPL: 2.0E+01 | \n"
        + line(20)
        + " validation loss at iteration 20 on test set | lm loss value: 9.000000E+00 | lm loss PPL: 9.0E+03 | \n"
        + " validation loss at the end of training for val data | lm loss value: 2.500000E+00 | lm loss PPL: 1.2E+01 |\n"
    )
    run = imported(text, "x.log")
    assert curve(run, "val_loss") == {10: 3.0, 20: 2.5}
    assert any("test set" in note for note in run.notes)


def test_gpt_neox(imported):
    text = (
        " samples/sec: 12.345 | iteration       10/  320000 | elapsed time per iteration (ms): 2592.0 | learning rate: 6.0E-04 | "
        "approx flops per GPU: 60.4TFLOPS | lm_loss: 1.0E+01 | loss scale: 4096.0 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |\n"
    )
    run = imported(text + text.replace("  10/", "  20/").replace("1.0E+01", "9.0E+00").replace("12.345", "13.2"), "x.log")
    assert curve(run, "train_loss_raw") == {10: 10.0, 20: 9.0}


def test_deepspeeds_own_lines(imported):
    text = "".join(
        f"[2024-05-01 12:0{minute}:00,123] [INFO] [logging.py:68:log_dist] [Rank 0] step={step}, skipped={skipped}, "
        f"lr=[{rate}, {rate}], mom=[(0.9, 0.95), (0.9, 0.95)]\n"
        for minute, step, skipped, rate in ((0, 10, 0, 1e-05), (1, 20, 2, 2e-05), (2, 30, 2, 0.000123))
    )
    run = imported(text, "x.log")
    assert curve(run, "learning_rate") == {10: 1e-05, 20: 2e-05, 30: 0.000123}
    assert curve(run, "skipped_updates") == {10: 0.0, 20: 0.2, 30: 0.0}
    assert curve(run, "time")[20] - curve(run, "time")[10] == 60.0


def test_the_pipeline_engine(imported):
    text = "".join(f"steps: {step} loss: {9 - step / 10:.4f} iter time (s): 0.500 samples/sec: 64.000\n" for step in (10, 20))
    run = imported(text, "x.log")
    assert curve(run, "train_loss_raw") == {10: 8.0, 20: 7.0}
    assert curve(run, "step_time") == {10: 0.5, 20: 0.5}


def test_a_resume_that_goes_back_is_a_session(imported):
    text = (
        "".join(line(step) for step in (10, 20, 30))
        + "  successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration 20\n"
        + "".join(line(step, 1.5) for step in (30, 40))
    )
    run = imported(text, "x.log")
    assert run.table.sessions.tolist() == [0, 0, 0, 1, 1]
    assert [session.resumed_from for session in run.manifest.sessions or []][1] == 20
    assert any("started again in line 5, from step 30 to 30" in note for note in run.notes)


def test_a_start_is_told_even_where_steps_go_on(imported):
    text = line(10) + "[before the start of training step] datetime: 2024-05-01 12:00:00\n" + line(20)
    run = imported(text, "x.log")
    assert run.table.sessions.tolist() == [0, 1]
    assert [session.start for session in run.manifest.sessions or []][1] == 1_714_564_800.0


def test_a_run_from_the_beginning_is_another_run(tmp_path):
    path = tmp_path / "two.log"
    path.write_text("".join(line(step) for step in (*range(1, 15), *range(1, 20))))
    runs = import_runs(path)
    assert [(run.name, len(run.rows)) for run in runs] == [("run 1", 14), ("run 2", 19)]


def test_a_start_that_fell_at_once_is_no_run(imported):
    run = imported("".join(line(step) for step in (1, 2, 3, *range(1, 20))), "x.log")
    assert len(run.rows) == 19
    assert any("1 start that ended within" in note for note in run.notes)


def test_lines_that_every_rank_prints_are_taken_once(imported):
    text = "".join(f"[rank{rank}]:{line(step, 2.0 + rank)}" for step in (1, 2, 3) for rank in (0, 1, 2))
    run = imported(text, "x.log")
    assert curve(run, "train_loss_raw") == {1: 2.0, 2: 2.0, 3: 2.0}
    assert any("3 ranks log the same steps" in note for note in run.notes)


def test_the_rank_that_prints_may_change_at_a_restart(imported):
    text = "".join(f"[default7]:{line(step)}" for step in (1, 2, 3)) + "".join(f"[default3]:{line(step)}" for step in (4, 5))
    assert len(imported(text, "x.log").rows) == 5


def test_hundreds_of_kilobytes_before_the_first_iteration(imported):
    noise = "".join(f"node{number}:123:456 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/IPC\n" for number in range(4000))
    run = imported(noise + line(1) + line(2), "x.log")
    assert len(run.rows) == 2
    assert not any("error" in note for note in run.notes)


def test_a_last_line_cut_short_is_left_out(imported):
    whole = line(1) + line(2)
    for end in range(len(line(1)) + 12, len(whole)):
        run = imported(whole[:end], "x.log")
        assert curve(run, "train_loss_raw") in ({1: 2.0}, {1: 2.0, 2: 2.0})
        assert curve(run, "learning_rate") in ({1: 1e-4}, {1: 1e-4, 2: 1e-4})


def test_other_causes_of_a_dash(imported):
    run = imported(line(1) + "-" * 80 + "\n" + line(2) + "# after restart\n [...]\n" + line(3), "x.log")
    assert len(run.rows) == 3


def test_a_log_without_any_value_is_refused(imported):
    with pytest.raises(UnreadableError, match="no line of a step holds a value whose name is known"):
        imported(" iteration 1/ 10 | lm loss PPL: 3.0 | foo: 1.0 |\n", "x.log")


def test_a_key_of_the_users_own(imported):
    run = imported(
        line(1).replace("grad norm", "total norm") + line(2).replace("grad norm", "total norm"), "x.log", grad_norm="total norm"
    )
    assert curve(run, "grad_global_norm") == {1: 0.5, 2: 0.5}


def test_overflows_state_the_loss_scale_and_the_timer_the_samples_per_second(imported):
    start, lines, scale = "[2025-03-11 09:14:02,678] [INFO] ", [], 2**20
    for step in range(10, 60, 10):
        for _ in range(2 if step in (10, 40) else 0):
            lines.append(
                f"{start}[loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "
                f"Attempted loss scale: {scale}, reducing to {scale // 2}"
            )
            scale //= 2
        lines += [
            f"{start}[logging.py:96:log_dist] [Rank 0] step={step}, skipped=2, lr=[5.4e-06], mom=[(0.9, 0.95)]",
            f"steps: {step} loss: {9 - step / 100:.4f} iter time (s): 0.515 samples/sec: 61.{step}",
        ]
        timed = f"{start}[timer.py:199:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec=62.3"
        lines.append(f"{timed}, CurrSamplesPerSec=63.{step}, MemAllocated=4.31GB, MaxMemAllocated=11.2GB")
    run = imported("\n".join([*lines, ""]), "ds.log")
    assert curve(run, "loss_scale") == {10: 2**18, 40: 2**16}
    assert curve(run, "samples_per_sec") == {step: 61 + step / 100 for step in range(10, 60, 10)}
    alone = imported("\n".join(line for line in [*lines, ""] if not line.startswith("steps")), "ds.log")
    assert curve(alone, "samples_per_sec") == {step: 63 + step / 100 for step in range(10, 60, 10)}


def test_a_line_whose_attempts_were_all_skipped_is_no_total(imported):
    counts = [*([0] * 5), *([10] * 5)]
    text = "".join(
        line(10 * (n + 1)).replace("number of skipped iterations:   0", f"number of skipped iterations:  {count}")
        for n, count in enumerate(counts)
    )
    assert list(curve(imported(text, "x.log"), "skipped_updates").values()) == [0.0] * 5 + [1.0] * 5
