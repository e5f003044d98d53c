"""Lines of keys and values: nanoGPT, speed runs, and programs that print like them."""

import math

import pytest

from ckaudit.errors import UnreadableError
from ckaudit.importers import import_runs, import_source

NANOGPT = (
    "number of parameters: 123.59M\n"
    "tokens per iteration will be: 491,520\n"
    "step 0: train loss 10.9886, val loss 10.9897\n"
    "iter 0: loss 10.9885, time 43009.39ms, mfu -100.00%\n"
    "iter 10: loss 9.7001, time 300.00ms, mfu 33.10%\n"
    "saving checkpoint to out\n"
    "step 20: train loss 8.5000, val loss 8.6000\n"
    "iter 20: loss 8.5500, time 310.00ms, mfu 33.20%\n"
)


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def test_nanogpt_counts_iterations_from_0(imported):
    run = imported(NANOGPT, "train.log")
    assert curve(run, "train_loss_raw") == {1: 10.9885, 11: 9.7001, 21: 8.55}
    assert curve(run, "val_loss") == {0: 10.9897, 20: 8.6}
    assert curve(run, "step_time") == pytest.approx({1: 43.00939, 11: 0.3, 21: 0.31})
    assert curve(run, "mfu") == pytest.approx({11: 0.331, 21: 0.332})
    assert set(curve(run, "tokens_per_update").values()) == {491_520.0}
    assert run.manifest.model_scale_hint == "number of parameters: 123.59M"
    assert any("estimate over many batches" in note for note in run.notes)


def test_without_losses_of_updates_the_estimate_is_the_training_loss(imported):
    run = imported("step 0: train loss 4.2, val loss 4.3\nstep 500: train loss 2.0, val loss 2.1\n", "x.txt")
    assert curve(run, "train_loss_raw") == {0: 4.2, 500: 2.0}
    assert curve(run, "val_loss") == {0: 4.3, 500: 2.1}
    assert any("was taken for it" in note for note in run.notes)


def test_source_of_the_program_before_its_log_is_passed_over(imported):
    source = (
        "import torch\n"
        "# step:3 train_loss:1.0 is what a line looks like\n"
        'print0(f"step:{step}/{args.num_iterations} val_loss:{val_loss:.4f}")\n'
        "    raise RuntimeError('CUDA out of memory')\n"
        "step = 5\nloss = 3.0\n"
    )
    run = imported(source * 4000 + "step:0/10 val_loss:9.0\nstep:1/10 train_loss:9.1 train_time:100ms step_avg:nanms\n", "x.txt")
    assert run.rows == [{"step": 0, "val_loss": 9.0}, {"step": 1, "train_loss_raw": 9.1}]
    assert not any("errors" in note for note in run.notes)


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        (
            "Epoch: 1, Step: 100, Loss: 2.5, LR: 1e-4\nEpoch: 1, Step: 200, Loss: 2.4, LR: 1e-4\n",
            "train_loss_raw",
            {100: 2.5, 200: 2.4},
        ),
        (
            "[titan] 2024-05-01 12:00:00,123 - root - INFO - step: 10  loss:  5.4  grad_norm: 3.2  memory: 10GiB(5%)  tps: 1,2\n",
            "grad_global_norm",
            {10: 3.2},
        ),
        ("iteration 10/ 100 | lm loss: 2.0E+00 | lr: 1e-4 |\n", "train_loss_raw", {10: 2.0}),
        ("global_step=5 train_loss=nan\nglobal_step=6 train_loss=1.5\n", "train_loss_raw", {5: math.nan, 6: 1.5}),
        (
            "step:1 loss:2.5 tokens_seen:1,048,576\nstep:2 loss:2.5 tokens_seen:2,097,152\n",
            "tokens_seen",
            {1: 1048576.0, 2: 2097152.0},
        ),
        (
            "INFO:tensorflow:loss = 2.5, step = 100 (1.2 sec)\nINFO:tensorflow:loss = 2.25, step = 200\n",
            "train_loss_raw",
            {100: 2.5, 200: 2.25},
        ),
        ("metrics {'step': 10, 'val_loss': 1.5}\nmetrics {'step': 20, 'val_loss': 1.25}\n", "val_loss", {10: 1.5, 20: 1.25}),
        ("Cost after iteration 100: 0.54\nCost after iteration 200: 0.32\n", "train_loss_raw", {100: 0.54, 200: 0.32}),
        ("validation loss at step 10 is 1.5\nvalidation loss at step 20 is 1.25\n", "val_loss", {10: 1.5, 20: 1.25}),
        ("step 1 loss 2.5 grad norm 0.4\nstep 2 loss 2.4 grad norm 0.5\n", "grad_global_norm", {1: 0.4, 2: 0.5}),
    ],
)
def test_programs_that_print_alike(imported, text, name, values):
    found = curve(imported(text, "x.log"), name)
    assert {step: repr(value) for step, value in found.items()} == {step: repr(value) for step, value in values.items()}


def test_training_lines_that_count_from_0_are_converted(imported):
    run = imported("step:0 loss:3.0\nstep:1 loss:2.9\nstep:2 loss:2.8\n", "x.log")
    assert curve(run, "train_loss_raw") == {1: 3.0, 2: 2.9, 3: 2.8}
    assert any("count from 0" in note for note in run.notes)


def test_a_progress_bar_leaves_its_last_version(imported):
    run = imported("step:1 loss:9.0\rstep:1 loss:8.5\rstep:1 loss:3.0\nstep:2 loss:2.9\r\nstep:3 loss:2.8\n", "x.log")
    assert curve(run, "train_loss_raw") == {1: 3.0, 2: 2.9, 3: 2.8}


def test_a_log_of_windows_in_utf_16(imported):
    run = imported("step:1 loss:3.0\r\nstep:2 loss:2.9\r\n".encode("utf-16"), "x.log")
    assert curve(run, "train_loss_raw") == {1: 3.0, 2: 2.9}


def test_zeros_after_a_power_cut(imported):
    assert curve(imported(b"step:1 loss:3.0\nstep:2 loss:2.9\n" + bytes(5000), "x.log"), "train_loss_raw") == {1: 3.0, 2: 2.9}


@pytest.mark.parametrize(
    ("end", "kept"), [("step:3 loss:2.8", 3), ("step:3 loss:2.", 2), ("step:3 loss:", 2), ("step:3", 2), ("step:3 loss:2.8\n", 3)]
)
def test_a_last_line_without_an_end_counts_if_it_is_whole(imported, end, kept):
    assert len(imported(f"step:1 loss:3.0\nstep:2 loss:2.9\n{end}", "x.log").rows) == kept


def test_a_thousand_forms_are_read_without_a_pattern_for_each(imported):
    text = "".join(f"step:{step} {'x' * step}{step}:1 loss:{step}.5\n" for step in range(1, 400))
    assert curve(imported(text, "x.log"), "train_loss_raw") == {step: step + 0.5 for step in range(1, 400)}


def test_an_interleaved_evaluation_below_its_place_is_sorted_in(imported):
    run = imported("step:1 loss:3.0\nstep:2 loss:2.9\nstep:3 loss:2.8\nstep:2 val_loss:3.1\nstep:4 loss:2.7\n", "x.log")
    assert curve(run, "val_loss") == {2: 3.1}
    assert not run.table.sessions.any()
    assert any("sorted in" in note for note in run.notes)


def test_steps_that_cannot_be_steps(imported):
    run = imported("step:1 loss:3.0\nstep:99999999999999999999 loss:2.9\nstep:2 loss:2.8\n", "x.log")
    assert list(curve(run, "train_loss_raw")) == [1, 2]
    assert any("no whole step" in note for note in run.notes)


def test_two_runs_are_listed_by_name(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("".join(f"step:{step}/50 loss:{9 - step / 50:.2f}\n" for step in [*range(1, 51), *range(1, 31)]))
    assert [run.name for run in import_runs(path)] == ["run 1", "run 2"]
    assert any("number 2" in note for note in import_runs(path)[1].notes)


def test_another_key_is_named_by_the_user(imported):
    run = imported("step:1 loss:5.0 my_cost:3.0\nstep:2 loss:5.0 my_cost:2.9\n", "x.log", loss="my_cost")
    assert curve(run, "train_loss_raw") == {1: 3.0, 2: 2.9}


def test_text_about_steps_is_no_log(tmp_path):
    path = tmp_path / "README.txt"
    path.write_text("Step 1: install it.\nStep 2: lose no time 3.\nIn step 4 the loss was low.\n")
    with pytest.raises(UnreadableError, match="no log that is known"):
        import_source(path)


def test_runs_that_log_at_other_distances_are_split_too(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("".join(f"step:{step} loss:{9 - step / 900:.2f}\n" for step in [*range(1, 61), *range(10, 900, 10)]))
    assert [len(run.rows) for run in import_runs(path)] == [60, 89]


@pytest.mark.parametrize("line", ["step:1 " + "a1" * 10**6, "a1-" * 10**6, "step " * 10**6, "A_" * 10**6 + "Error", "[" * 10**6])
def test_endless_lines_take_no_endless_time(imported, line):
    run = imported(f"step:1 loss:3.0\n{line}\nstep:2 loss:2.9\n", "x.log")
    assert len(run.rows) == 2


def test_of_a_name_that_stands_twice_in_a_line_the_first_counts(imported):
    text = "".join(f"step {step} | loss {3 - step / 10:.4f} | lr 0.001 | loss 9.0000\n" for step in range(1, 9))
    table = imported(text).table
    assert table.values[table.names.index("train_loss_raw")].tolist() == pytest.approx([3 - step / 10 for step in range(1, 9)])


def test_a_step_of_all_steps_begins_a_line(imported):
    run = imported(
        "********\nHyperparameters:\n  vocab_size: 4096\n1/4000 train_loss: 8.3 train_time: 0.0m tok/s: 17921784\n"
        "500/4000 train_loss: 2.9 train_time: 0.8m tok/s: 8217810\n1000/4000 train_loss: 2.6 train_time: 1.6m tok/s: 8195099\n"
        "1000/4000 val_loss: 2.7 val_bpb: 1.07\n3/4 files done\n",
        "train.log",
    )
    assert curve(run, "train_loss_raw") == {1: 8.3, 500: 2.9, 1000: 2.6}
    assert curve(run, "val_loss") == {1000: 2.7}
    assert curve(run, "tokens_per_sec") == {1: 17921784.0, 500: 8217810.0, 1000: 8195099.0}
    assert curve(run, "step_time") == pytest.approx({500: 48 / 499, 1000: 48 / 500})
    assert run.manifest.planned_steps == 4000


def test_a_loss_beside_returns_of_rollouts_is_left_out_unless_it_is_named_or_breaks(imported):
    lines = [f"step {step} total_loss: {0.5 + step / 1000} ep_rew_mean: {step / 10} lr: 0.001\n" for step in range(10, 200, 10)]
    run = imported("".join(lines), "rl.log")
    assert set(run.table.names) == {"learning_rate", "microbench_score/ep_rew_mean"}
    assert any("total_loss was left out: beside rewards of rollouts" in note for note in run.notes)
    assert not any("train_loss_raw" in note for note in run.notes)
    assert "train_loss_raw" in imported("".join(lines), "rl.log", loss="total_loss").table.names
    broken = imported("".join(lines[:-1]) + lines[-1].replace("total_loss: 0.69", "total_loss: nan"), "rl.log")
    assert "train_loss_raw" in broken.table.names


def test_a_return_that_is_printed_as_an_array_of_one_is_read(imported):
    text = "".join(f"global_step={512 * n}, episodic_return=[{20 + n}.]\n" for n in range(1, 30))
    run = imported(text, "cleanrl.log")
    assert [row["step"] for row in run.rows][:2] == [512, 1024]
    assert [row["microbench_score/episodic_return"] for row in run.rows][:2] == [21.0, 22.0]


def test_marian_counts_updates_and_its_time_is_of_many(imported):
    lines = [
        f"[2020-05-01 10:{n:02d}:42] Ep. 1 : Up. {n}000 : Sen. 131,000 : Cost {9 - n / 10:.8f} * 2,882,000 @ 3,412 "
        f"after 2,900,000 : Time 211.11s : 13628.67 words/s : gNorm 0.55{n}0\n"
        + (f"[2020-05-01 10:{n:02d}:50] [valid] Ep. 1 : Up. {n}000 : ce-mean-words : 3.5 : new best\n" if n == 4 else "")
        for n in range(1, 8)
    ]
    run = imported("".join(lines), "train.log")
    assert {row["step"]: row["train_loss_raw"] for row in run.rows} == {1000 * n: 9 - n / 10 for n in range(1, 8)}
    assert [row["val_loss"] for row in run.rows if "val_loss" in row] == [3.5]
    assert not any("step_time" in row for row in run.rows)


def test_memory_is_taken_in_the_unit_behind_it(imported):
    text = "".join(f"step={n} loss={3 - n / 100} gpu_mem={8 + n}.50GiB memory=3 step_time=0.4s\n" for n in (1, 2, 3))
    run = imported(text, "x.log")
    assert curve(run, "gpu_mem_used") == {n: (8.5 + n) * 2**30 for n in (1, 2, 3)}


def test_the_only_measure_of_error_is_the_loss(imported):
    text = "baseline mse = 0.1667\n" + "".join(f"iter {n} mse {0.2 - n / 1000:.4f} lr 0.001\n" for n in range(0, 50, 10))
    assert list(curve(imported(text, "x.log"), "train_loss_raw").values()) == [0.2, 0.19, 0.18, 0.17, 0.16]


def test_a_line_of_marian_s_validation_is_no_update(imported):
    text = "".join(
        f"[2020-11-05 21:00:20] Ep. 1 : Up. {n} : Sen. 1,280 : Cost {3 - n / 1000} : Time 11.55s : L.r. 7.8125e-05\n"
        + (f"[2020-11-05 21:00:21] [valid] Ep. 1 : Up. {n} : cross-entropy : {8 - n / 1000} : new best\n" if n % 300 == 0 else "")
        for n in range(100, 700, 100)
    )
    run = imported(text, "train.log")
    assert curve(run, "train_loss_raw") == {n: 3 - n / 1000 for n in range(100, 700, 100)}
    assert curve(run, "val_loss") == {300: 7.7, 600: 7.4}


def test_of_tokens_of_source_and_target_those_of_the_target_are_the_speed(imported):
    text = "".join(
        f"[2021-06-02 08:00:20,000 INFO] Step {n}/ 5000; acc:   3.34; xent: 3.07;  6076/ {5277 - n} tok/s;      8 sec;\n"
        for n in (50, 100, 150)
    )
    assert curve(imported(text, "train.log"), "tokens_per_sec") == {50: 5227.0, 100: 5177.0, 150: 5127.0}


def test_a_plan_that_no_count_could_hold_is_none(imported):
    run = imported("step:1/20000 train_loss:6.9\nstep:2/20000 train_loss:6.8\nstep:3/1e309 train_loss:6.7\n", "train.log")
    assert curve(run, "train_loss_raw") == {1: 6.9, 2: 6.8, 3: 6.7}


def test_a_time_that_hardly_ever_falls_is_a_clock(imported):
    text = "".join(f"[it {n:04d}] step={n * 1000} | loss={3 / n:.4f} | time={0.5 * n:.1f}m\n" for n in range(1, 41))
    run = imported(text, "train.log")
    assert [*curve(run, "step_time").values()] == pytest.approx([0.03] * 39), "half a minute for a thousand steps"


def test_a_step_in_brackets_begins_a_line(imported):
    run = imported("".join(f"[{15 * n:4d}] nll={9 / n:.4f} lr=4.9e-03\n" for n in range(1, 12)), "train.log")
    assert list(curve(run, "train_loss_raw").items())[:2] == [(15, 9.0), (30, 4.5)]
    assert set(curve(run, "learning_rate").values()) == {0.0049}


def test_the_score_of_deeplearning4j_is_the_loss(imported):
    listener = "06:38:16.402 [main] INFO org.deeplearning4j.optimize.listeners.ScoreIterationListener"
    run = imported("".join(f"{listener} - Score at iteration {100 * n} is {1.6 / (n + 1)}\n" for n in range(12)), "train.log")
    assert list(curve(run, "train_loss_raw").items())[:2] == [(1, 1.6), (101, 0.8)]
