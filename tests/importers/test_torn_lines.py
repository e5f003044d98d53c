"""Lines that are torn, or written into one another, cost themselves: every importer goes on at the next good line."""

import random
from pathlib import Path

import numpy as np
import pytest
from msgspec import UNSET

from ckaudit.errors import UnreadableError
from ckaudit.importers import ImportOptions, import_runs
from tests.loops import for_each

REAL = Path(__file__).parents[2] / "fixtures" / "real"
FILES = (
    "llmc/siddanth_124M_main.first2000.log",
    "modded_nanogpt/track3_muon_311d7833.txt",
    "parameter_golf/lowerlr_train.log",
    "parameter_golf/hnet_byte260_4h.log",
    "hf_trainer/mistral_lora_4ep/trainer_log.first600.jsonl",
    "mmengine/vis_data/20241205_152037.json",
    "multipowerlaw/csv_400/wsdcon_3.csv",
    "olmo/peteish1.csv",
    "pythia/160m-6.first5000.csv",
)
LINES = 400


def torn(one, other, source):
    """Return what is left of two lines after a write that was cut, or that went into another one."""
    cut, end = source.randrange(len(one) + 1), source.randrange(len(other) + 1)
    near, near_end = source.randrange(min(len(one), 12) + 1), source.randrange(min(len(other), 12) + 1)
    return source.choice(
        [
            [one + other],
            [one[:cut] + other],
            [one + other[end:]],
            [one + one, other],
            [one[:cut], one[cut:] + other],
            [one[:near] + other[near_end:]],
        ]
    )


def read(path, lines):
    path.write_bytes(b"\n".join(lines) + b"\n")
    runs = import_runs(path)
    return sum(len(run.table.steps) for run in runs), runs


@for_each("file", FILES)
@for_each("seed", range(12))
def test_two_torn_lines_cost_no_more_than_themselves(tmp_path, file, seed):
    source = random.Random(f"{file} {seed}")
    lines = (REAL / file).read_bytes().split(b"\n")[:LINES]
    whole, _ = read(tmp_path / Path(file).name, lines)
    at = source.randrange(1, len(lines) - 1)
    left = torn(*lines[at : at + 2], source)
    count, runs = read(tmp_path / Path(file).name, [*lines[:at], *left, *lines[at + 2 :]])
    assert count >= whole - 2, left
    assert len(runs) == 1


@pytest.mark.parametrize("file", [file for file in FILES if "json" in file])
def test_a_log_of_objects_is_known_by_its_second_line_where_the_first_is_torn(tmp_path, file):
    lines = (REAL / file).read_bytes().split(b"\n")[:LINES]
    count, runs = read(tmp_path / Path(file).name, [lines[0][:40] + lines[1], *lines[2:]])
    assert count >= read(tmp_path / Path(file).name, lines)[0] - 2
    assert any("hold no JSON object and were left out, first line 1" in note for note in runs[0].notes)


def test_a_step_that_lost_its_last_digits_replaces_nothing(imported):
    rows = [f"{step},{3 - step / 1000}\n" for step in range(1000, 1100)]
    rows[50] = "10,2.5\n"
    first = [f"{step},{4 - step / 1000}\n" for step in range(1000)]
    run = imported("step,loss\n" + "".join([*first, *rows]))
    assert set(run.table.sessions.tolist()) == {0}
    assert sorted(run.table.steps.tolist()) == [step for step in range(1100) if step != 1050]
    assert "1 line was left out: the step stands alone" in " ".join(run.notes)


def test_a_step_made_of_the_digits_of_two_is_not_the_end_of_the_run(imported):
    rows = [f"{step},{3 - step / 1000}\n" for step in range(1000, 1100)]
    run = imported("step,loss\n" + "".join([*rows[:50], "10501051,2.5\n", *rows[51:]]))
    assert run.table.steps.max() == 1099


def test_a_form_learnt_from_a_broken_line_takes_no_good_ones(imported):
    lines = [f"step:{step}/2000 train_loss:{3 - step / 1000:.4f}\n" for step in range(100)]
    lines[3] = "step:3 train_loss:2.9970\n"
    run = imported("".join(lines), "train.log")
    assert len(run.table.steps) == 100
    assert np.isfinite(run.table.values).all()


def test_lines_that_could_not_be_read_and_fused_ones_are_counted(imported):
    lines = [f"s:{step} trl:{4 - step / 100:.4f} lr:0.0001 norm:1.{step:04d}\n" for step in range(100)]
    lines[50] = lines[50].strip() + lines[51]
    lines[51] = "s:51 tr\n"
    notes = " ".join(imported("".join(lines), "main.log").notes)
    assert "1 line begins as a step's do and could not be read, first line 52: left out" in notes
    assert "1 line holds a step or a key twice" in notes


COUNTED = {
    "keyvalue": "train_batch_tokens:{0}\nworld_size:{0}\nresumed from step {0}\n"
    "step:1/10 train_loss:4.5\nstep:2/10 train_loss:4.4\n",
    "megatron": "using world size: {0}\n> padded vocab (size: {0})\nseq_length .... {0}\n"
    " iteration 10/ 100 | lm loss: 2.0E+00 |\n iteration 20/ 100 | lm loss: 1.9E+00 |\n",
    "llmc": "| num_parameters | {0} |\n| max_sequence_length | {0} |\ns:1 trl:4.5\ns:2 trl:4.4\n",
    "epochlog": "Epoch {0}: loss 3.0\nEpoch 1 batch {0}/{0} loss 2.5\nEpoch 2 batch 1/2 loss 2.4\nEpoch 2 batch 2/2 loss 2.3\n",
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_count_of_thousands_of_digits_is_none(tmp_path, name):
    path = tmp_path / "train.log"
    path.write_text(COUNTED[name].format("9" * 5000))
    with np.errstate(all="ignore"):
        (run,) = import_runs(path, import_options=ImportOptions(format=name))
    assert run.table.steps.tolist()[-2:] == sorted(run.table.steps.tolist()[-2:])
    assert run.manifest.world_size is run.manifest.vocabulary is run.manifest.parameters is UNSET


NAMES = "step,train_loss,learning_rate,grad_norm\n"
ROWS = "".join(f"{step},{3 - step / 100:.3f},0.001,0.5\n" for step in range(1, 60))
WRITTEN_BY_R = ROWS.replace("\n", "\n1,").removesuffix("1,")


@for_each(
    "header", [NAMES[cut:] for cut in (5, 7, 16)] + [NAMES[:cut] + "\n" for cut in (15, 25)] + [f"{NAMES[:15]}\n{NAMES[15:]}"]
)
def test_a_torn_header_line_names_no_cell(tmp_path, header):
    path = tmp_path / "log.csv"
    path.write_text(header + ROWS)
    with pytest.raises(UnreadableError, match=r"the header line of log\.csv is torn: it names [23] columns, and (59|60) rows"):
        import_runs(path)


def test_a_name_that_the_writer_left_out_makes_no_wrong_columns(tmp_path):
    """R writes no name above the column of row names."""
    path = tmp_path / "log.csv"
    path.write_text(NAMES + "1," + WRITTEN_BY_R)
    with pytest.raises(UnreadableError) as caught:
        import_runs(path)
    assert "R leaves out that of the row names" in caught.value.hint


@for_each("ending", [",", ",,", ", "])
def test_cells_without_a_name_and_without_a_value_are_none(tmp_path, ending):
    path = tmp_path / "log.csv"
    path.write_text(NAMES + ROWS.replace("\n", f"{ending}\n"))
    (run,) = import_runs(path)
    assert run.table.steps.tolist() == list(range(1, 60))


@for_each("text", ["step:{} train_loss:{}\n", " iteration {}/ 60 | lm loss: {} |\n", '{{"step": {}, "loss": {}}}\n'])
@for_each("lines", [8, 12, 30, 60])
@for_each("spoilt", [lambda step: f"1{step}", lambda step: f"{step}{step + 1}", lambda step: f"{step}0"])
def test_one_torn_step_in_a_short_log_is_no_restart(tmp_path, text, lines, spoilt):
    at = lines // 2
    path = tmp_path / "log.jsonl"
    rows = [text.format(spoilt(step) if step == at else step, f"{3 - step / 100:.6f}") for step in range(1, lines + 1)]
    path.write_text("".join(rows))
    (run,) = import_runs(path)
    assert run.table.steps.tolist() == [step for step in range(1, lines + 1) if step != at]
    assert not run.table.sessions.any()
    assert any("1 line was left out" in note for note in run.notes)


@for_each("lines", [8, 30])
def test_a_log_that_went_back_is_a_restart_however_short_it_is(tmp_path, lines):
    path = tmp_path / "log.txt"
    steps = [*range(1, lines + 1), *range(lines - 3, lines + 4)]
    path.write_text("".join(f"step:{step} train_loss:{3 - step / 100:.6f}\n" for step in steps))
    (run,) = import_runs(path)
    assert any("started again" in note for note in run.notes)
