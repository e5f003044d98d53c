"""llm.c: its main.log, and what its programs print."""

import math

import pytest


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def test_training_lines_tell_of_the_next_update(imported):
    run = imported(
        "s:0 tel:11.0\ns:0 trl:10.9 lr:0.000001 norm:15.37\ns:1 trl:10.8 lr:0.000002 norm:nan\ns:2 tel:10.0\n", "main.log"
    )
    assert run.source == "llm.c main.log"
    assert curve(run, "train_loss_raw") == {1: 10.9, 2: 10.8}
    assert curve(run, "val_loss") == {0: 11.0, 2: 10.0}
    assert math.isnan(curve(run, "grad_global_norm")[2])
    assert any("step N + 1" in note for note in run.notes)


def test_earlier_programs_log_neither_rate_nor_norm(imported):
    run = imported("s:0 tel:10.968871\ns:0 trl:10.965596\ns:1 trl:10.814037\n", "x.log")
    assert curve(run, "train_loss_raw") == {1: 10.965596, 2: 10.814037}
    assert run.table.names == ("train_loss_raw", "val_loss")


def test_a_resume_appends_to_the_file(imported):
    first = "".join(f"s:{step} trl:{9 - step / 10:.4f} lr:0.000100 norm:1.00\n" for step in range(10))
    again = "".join(f"s:{step} trl:{9 - step / 10 + 0.01:.4f} lr:0.000100 norm:1.00\n" for step in range(5, 15))
    run = imported(first + again, "main.log")
    assert run.table.sessions.tolist() == [0] * 10 + [1] * 10
    assert run.table.steps.tolist() == [*range(1, 11), *range(6, 16)]


def test_what_is_printed(imported):
    text = (
        "| max_sequence_length T | 1024                                               |\n"
        "| num_parameters        | 124475904                                          |\n"
        "val loss 11.009\n"
        "step    1/19560 | loss 11.00918 (+nanz)| norm 15.3700 (+nanz)| lr 8.57e-07 | 307.31 ms | -100.0% bf16 MFU | 1704 tok/s\n"
        "step    2/19560 | loss 10.96000 (+0.12z)| norm 15.2400 (-1.31z)| lr 1.71e-06 | 310.00 ms | 43.1% bf16 MFU | 1690 tok/s\n"
        "val loss 10.5\n"
    )
    run = imported(text, "stdout.txt")
    assert curve(run, "train_loss_raw") == {1: 11.00918, 2: 10.96}
    assert curve(run, "step_time")[2] == pytest.approx(0.31)
    assert curve(run, "mfu") == pytest.approx({2: 0.431})
    assert curve(run, "tokens_per_sec") == {1: 1704.0, 2: 1690.0}
    assert curve(run, "val_loss") == {2: 10.5}
    assert (run.manifest.parameters, run.manifest.sequence_length, run.manifest.planned_steps) == (124_475_904, 1024, 19_560)
    assert any("1 evaluations before the first step" in note for note in run.notes)
