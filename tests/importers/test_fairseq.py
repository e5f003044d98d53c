"""fairseq's JSON log lines."""

import json
import math

import pytest

LOG2 = math.log(2)
START = "2021-03-04 05:06:"


def noted(run, words):
    return any(words in note for note in run.notes)


def line(second, tag, **entry):
    return f"{START}{second:02d} | INFO | {tag} | {json.dumps(entry)}\n"


def inner(second, update, loss, base=2.0):
    numbers = {"wps": "1000", "wpb": "512", "bsz": "8", "lr": "0.001", "gnorm": "1.5", "clip": "25", "loss_scale": "128"}
    told = {"loss": f"{loss}", "ppl": f"{base**loss:.2f}", "num_updates": f"{update}", "wall": "9"}
    return line(second, "train_inner", epoch=1, update=0.1, **told, **numbers)


LOG = (
    "2021-03-04 05:06:00 | INFO | fairseq_cli.train | task: language_modeling\n"
    + inner(10, 100, 10.0)
    + inner(20, 200, 9.0)
    + line(
        21, "valid", epoch=1, valid_loss="9.5", valid_ppl="724.1", valid_wps="1", valid_num_updates="200", valid_best_loss="9.5"
    )
    + line(21, "valid1", epoch=1, valid1_loss="8.5", valid1_ppl="362", valid1_num_updates="200")
    + line(22, "train", epoch=1, train_loss="9.4", train_ppl="5", train_num_updates="200", train_gnorm="1.6")
    + "2021-03-04 05:06:30 | INFO | fairseq.trainer | begin training epoch 2\n"
    + inner(40, 300, 8.0)
)


def test_bits_become_nats_and_texts_numbers(imported):
    run = imported(LOG, "train.log")
    assert run.source == "fairseq log"
    assert run.rows[0] == {
        "step": 100,
        "time": 1614834370.0,
        "train_loss_raw": pytest.approx(10 * LOG2),
        "train_ppl": 1024.0,
        "learning_rate": 0.001,
        "grad_global_norm": 1.5,
        "grad_clip_rate": 0.25,
        "loss_scale": 128.0,
        "tokens_per_sec": 1000.0,
        "tokens_per_update": 512.0,
    }
    assert [row["step"] for row in run.rows] == [100, 200, 300]
    assert noted(run, "logged in bits")
    assert noted(run, "without their zone")


def test_validation_stands_at_its_update_and_other_sets_are_slices(imported):
    (row,) = [row for row in imported(LOG, "train.log").rows if "val_loss" in row]
    assert row["step"] == 200
    assert row["val_loss"] == pytest.approx(9.5 * LOG2)
    assert row["val_ppl"] == 724.1
    assert row["slice_val_loss/valid1"] == pytest.approx(8.5 * LOG2)


def test_means_of_an_epoch_are_no_points(imported):
    run = imported(LOG, "train.log")
    assert [row["train_loss_raw"] for row in run.rows] == pytest.approx([10 * LOG2, 9 * LOG2, 8 * LOG2])
    assert noted(run, "means of whole epochs were left out")


def test_a_criterion_that_logs_nats_is_told_by_its_perplexity(imported):
    run = imported(inner(10, 100, 4.0, base=math.e) + inner(20, 200, 3.0, base=math.e), "train.log")
    assert [row["train_loss_raw"] for row in run.rows] == [4.0, 3.0]
    assert noted(run, "losses are in nats")


def test_objects_without_anything_before_them(imported):
    text = "".join(piece[piece.index("{") :] + "\n" for piece in LOG.splitlines() if "{" in piece)
    run = imported(text, "log.json")
    assert [row["step"] for row in run.rows] == [100, 200, 300]
    assert "time" not in run.rows[0]


def test_a_torn_line_and_nan_words(imported):
    run = imported(inner(10, 100, 10.0).replace('"10.0"', '"nan"') + inner(20, 200, 9.0) + inner(30, 300, 8.0)[:-9], "train.log")
    assert math.isnan(run.rows[0]["train_loss_raw"])
    assert [row["step"] for row in run.rows] == [100, 200]


def test_a_line_number_that_is_told_is_that_of_the_file(imported):
    run = imported(
        "noise\n" + inner(10, 100, 10.0) + "noise\n" + inner(20, 200, 9.0).replace('"num_updates": "200", ', ""), "t.log"
    )
    assert noted(run, "first line 4")


def as_text(update, loss, nll, start=""):
    numbers = f"wps=1000, ups=2.5, wpb=512, bsz=8, num_updates={update}, lr=1e-05, gnorm=1.5, clip=25%, oom=0, wall=40"
    return f"{start}| epoch 001: {update:6d} / 500 loss={loss:.3f}, nll_loss={nll:.3f}, ppl={2**nll:.2f}, {numbers}\n"


def after_an_epoch(update, set_="", start=""):
    place, name = (f" | {set_} on '{set_}' subset", f"{set_}_") if set_ else ("", "")
    return (
        f"{start}| epoch 001{place} | {name}loss 8.5 | {name}nll_loss 7.25 | {name}ppl 152.22 | wpb 512 | num_updates {update}\n"
    )


TEXT = as_text(100, 9, 8) + as_text(200, 8.5, 7.5) + after_an_epoch(200) + after_an_epoch(200, "valid") + as_text(300, 8, 7)


@pytest.mark.parametrize("start", ["", "2021-03-04 05:06:07 | INFO | train_inner "])
def test_lines_of_text_have_the_numbers_of_objects(imported, start):
    run = imported("".join(start + line for line in TEXT.splitlines(keepends=True)), "train.log")
    assert run.source == "fairseq log"
    assert [row["step"] for row in run.rows] == [100, 200, 300]
    assert [row["train_loss_raw"] / LOG2 for row in run.rows] == pytest.approx([9, 8.5, 8])
    assert run.rows[1]["val_loss"] == pytest.approx(8.5 * LOG2)
    assert run.rows[0]["grad_clip_rate"] == 0.25
    assert run.rows[0]["learning_rate"] == 1e-5


def test_a_perplexity_beside_a_smoothed_loss_is_not_of_it(imported):
    assert "train_ppl" not in imported(TEXT, "train.log").rows[0]
    unsmoothed = imported(LOG, "train.log").rows[0]
    assert unsmoothed["train_ppl"] == 1024.0


END = """Traceback (most recent call last):
  File "train.py", line 343, in <module>
    cli_main()
FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.
"""


def test_an_exception_at_the_end_is_an_error(imported):
    run = imported(LOG + END, "train.log")
    assert noted(run, "errors: other exceptions once, 2 lines, first in line")
    assert noted(run, "'FloatingPointError: Minimum loss scale reached")
    rates = [row.get("error_event_rate/python") for row in run.rows]
    assert rates[-1] == 1.0
    assert set(rates[:-1]) <= {0.0, None}
    text = "".join(
        f"| epoch 001:    {n} / 3000 loss=9.5, ppl=700, wpb=3591, num_updates={n}, lr=1e-05\n" for n in range(100, 900, 100)
    )
    told = imported(text + END, "train.log")
    assert noted(told, "the log tells no times")
    rates = [row.get("error_event_rate/python") for row in told.rows]
    assert rates[-1] == 1.0  # it is behind the last line
    assert set(rates[:-1]) == {None}


def scales(run):
    return [row["loss_scale"] for row in run.rows if "loss_scale" in row]


def test_overflows_behind_the_last_line_leave_its_loss_scale(imported):
    message = "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to:"
    note = f"2021-03-04 05:06:{{:02}} | INFO | fairseq.trainer | {message} {{}}\n"
    between = LOG.replace("2021-03-04 05:06:30", note.format(25, 64.0) + "2021-03-04 05:06:30")
    assert scales(imported(between)) == [128.0, 128.0, 128.0]
    behind = imported(between + "".join(note.format(41 + n, f"{2.0**-n:.4g}") for n in range(3)))
    assert scales(behind) == [128.0, 128.0, 0.25]
    assert any("3 gradients overflow behind the last line" in words for words in behind.notes)
