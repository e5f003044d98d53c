"""Real text logs: every value equals what a plain expression finds in the file, and each run gets its verdict."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.contract.io.jsonl import parse_lines
from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.contract.schema.scalars import NAMES
from ckaudit.importers import Imported, import_runs
from tests.loops import for_each

REAL = Path(__file__).parents[2] / "fixtures" / "real"
FOLDERS = ("bigscience", "llmc", "modded_nanogpt", "parameter_golf")
FILES = sorted(str(path.relative_to(REAL)) for folder in FOLDERS for path in (REAL / folder).iterdir())

# name, number of values, first and last step, lowest value and its step: found with awk, and told by their authors.
FACTS = {
    ("llmc/modded_124M_main.first4000.log", 0): [
        ("train_loss_raw", 4000, 1, 4000, 3.4445, 3678),
        ("val_loss", 17, 0, 4000, 3.6176, 4000),
        ("grad_global_norm", 4000, 1, 4000, None, None),
        ("learning_rate", 4000, 1, 4000, None, None),
    ],
    ("llmc/siddanth_124M_main.first2000.log", 0): [
        ("train_loss_raw", 2000, 1, 2000, 3.7926, 1891),
        ("val_loss", 9, 0, 2000, 3.8686, 2000),
        ("microbench_score/hellaswag", 8, 250, 2000, 0.2435, 500),
    ],
    ("modded_nanogpt/windowwarmup_3151f69a.txt", 0): [
        ("train_loss_raw", 1750, 1, 1750, 2.9558, 1743),
        ("val_loss", 15, 0, 1750, 3.2745, 1750),
    ],
    ("modded_nanogpt/valueembed_75a3af7b.txt", 0): [
        ("train_loss_raw", 1530, 1, 1530, 3.0396, 1495),
        ("val_loss", 14, 0, 1530, 3.2838, 1530),
    ],
    ("modded_nanogpt/track3_muon_311d7833.txt", 0): [("val_loss", 29, 0, 3500, 3.27673, 3500)],
    ("parameter_golf/lowerlr_train.log", 0): [
        ("train_loss_raw", 298, 1, 14400, 1.8565, 12400),
        ("val_loss", 74, 0, 14421, 2.0571, 14421),
    ],
    ("parameter_golf/legendregpt_resumed_train.log", 0): [
        ("train_loss_raw", 1500, 30020, 60000, 1.872, 59940),
        ("val_loss", 31, 30000, 60000, 2.0256, 57000),
    ],
    ("parameter_golf/hnet_byte260_4h.log", 0): [
        ("train_loss_raw", 436, 1, 85200, 0.8016, 46800),
        ("val_loss", 87, 0, 85242, 0.9181, 85242),
    ],
    ("parameter_golf/gdn_baseline_seq8192_two_runs.txt", 0): [
        ("train_loss_raw", 109, 1, 1000, 2.1868, 720),
        ("val_loss", 22, 0, 1009, 2.2888, 1009),
    ],
    ("parameter_golf/gdn_baseline_seq8192_two_runs.txt", 1): [
        ("train_loss_raw", 110, 1, 1010, 2.1642, 720),
        ("val_loss", 22, 0, 1011, 2.2794, 1011),
    ],
    ("bigscience/tr8-104B-wide__chronicles__it6900-6940.log", 0): [("train_loss_raw", 5, 6900, 6940, 6.365808, 6900)],
    ("bigscience/tr8-104B-wide__chronicles__it7000-7220.log", 0): [("val_loss", 1, 7000, 7000, 7.1742, 7000)],
}


@cache
def runs(file: str) -> list[Imported]:
    return import_runs(REAL / file)


def curve(run: Imported, name: str) -> dict[int, float]:
    return {row["step"]: row[name] for row in run.rows if name in row}


def found(pattern: str, file: str, *, shift: int = 0) -> list[tuple[int, float]]:
    """Read step and value the plain way, line by line."""
    lines = (REAL / file).read_text(encoding="utf-8").splitlines()
    matches = (re.search(pattern, line) for line in lines)
    return [(int(match[1]) + shift, float(match[2])) for match in matches if match]


@for_each("file", [file for file in FILES if file.startswith("bigscience")])
@for_each(
    ("name", "key"),
    [
        ("train_loss_raw", "lm loss"),
        ("learning_rate", "learning rate"),
        ("loss_scale", "loss scale"),
        ("tokens_seen", "consumed tokens"),
        ("nan_inf_events", "number of nan iterations"),
    ],
)
def test_megatron_values_are_those_of_the_file(file, name, key):
    (run,) = runs(file)
    assert curve(run, name) == dict(found(rf"iteration +(\d+)/.*\| {key}: +(\S+)", file))


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("llmc")])
@pytest.mark.parametrize(
    ("name", "key", "shift"),
    [("train_loss_raw", "trl", 1), ("learning_rate", "lr", 1), ("grad_global_norm", "norm", 1), ("val_loss", "tel", 0)],
)
def test_llmc_values_are_those_of_the_file(file, name, key, shift):
    (run,) = runs(file)
    assert curve(run, name) == dict(found(rf"^s:(\d+) .*\b{key}:(\S+)", file, shift=shift))


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith(("modded", "parameter"))])
@pytest.mark.parametrize(("name", "key"), [("train_loss_raw", "train_loss"), ("val_loss", "val_loss")])
def test_key_value_pairs_are_those_of_the_file(file, name, key):
    imported = [pair for run in runs(file) for pair in curve(run, name).items()]
    assert imported == found(rf"^step:(\d+)/\d+ {key}:(\S+)", file)


@pytest.mark.parametrize(("file", "number"), FACTS)
def test_counts_ends_and_minima(file, number):
    for name, count, first, last, lowest, where in FACTS[file, number]:
        values = curve(runs(file)[number], name)
        assert (len(values), min(values), max(values)) == (count, first, last), name
        if where is not None:
            assert (min(values.values()), min(values, key=values.__getitem__)) == (lowest, where), name


@pytest.mark.parametrize("file", FILES)
def test_imported_rows_are_lines_of_the_contract(file):
    for run in runs(file):
        rows = [{name: encode_float(value) for name, value in row.items()} for row in run.rows]
        lines = parse_lines(b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows), "scalars.jsonl")
        assert lines.findings == []
        assert lines.rows == rows
        assert {name.partition("/")[0] for row in rows for name in row} <= NAMES | {"step", "session", "time"}


@pytest.mark.parametrize("file", FILES)
def test_only_files_of_two_runs_are_split(file):
    assert len(runs(file)) == (2 if "two_runs" in file else 1)


DIVERGED = {  # rule, step of the first line that is too high, and what the loss came from and to
    "bigscience/tr8-104B-wide__chronicles__it6900-6940.log": ("LOSS004", 6910, 6.365808, 10.23865),
    "bigscience/tr8-104B-wide__chronicles__it7000-7220.log": ("LOSS001", 7010, 6.444662, 11.42026),
}


@pytest.mark.parametrize("file", [file for file in FILES if file not in DIVERGED])
def test_nothing_but_notes_is_found_in_what_is_healthy_or_too_short_to_judge(file):
    for number in range(len(runs(file))):
        told = triage(REAL / file, import_options=ImportOptions(run=str(number + 1)))
        assert [finding.message for finding in told.findings if finding.severity != "note"] == []


@pytest.mark.parametrize("file", DIVERGED)
def test_a_divergence_is_seen_in_a_handful_of_lines(file):
    found = [(each.code, each.first_step, each.limit, each.value) for each in triage(REAL / file).findings]
    assert found == [DIVERGED[file]]


def test_a_learning_rate_set_by_hand_is_seen_in_two_lines():
    (found,) = triage(REAL / "bigscience/tr8b-104B__chronicles__it12000-12001_lr_override.log").findings
    assert (found.code, found.severity, found.first_step, found.limit, found.value) == (
        "SCHED003",
        "note",
        12001,
        5.999e-5,
        5.842e-5,
    )


@pytest.mark.parametrize(
    "file",
    [
        "modded_nanogpt/track3_muon_311d7833.txt",
        "parameter_golf/lowerlr_train.log",
        "parameter_golf/gdn_baseline_seq8192_two_runs.txt",
    ],
)
def test_no_flag_at_all(file):
    assert triage(REAL / file, import_options=ImportOptions(run="1")).findings == []


def test_two_runs_with_the_same_order_of_data_share_their_flags():
    (run,) = runs("modded_nanogpt/windowwarmup_3151f69a.txt")
    (other,) = runs("modded_nanogpt/valueembed_75a3af7b.txt")
    for step in (918, 946):
        assert all(curve(each, "train_loss_raw")[step] > curve(each, "train_loss_raw")[step - 1] + 0.3 for each in (run, other))


def test_a_slow_gpu_is_seen_in_tokens_per_second():
    (run,) = runs("bigscience/tr11-176B-ml__chronicles__it42780-42784.log")
    speed = curve(run, "tokens_per_sec")
    flops = dict(found(r"iteration +(\d+)/.*TFLOPs: (\S+)", "bigscience/tr11-176B-ml__chronicles__it42780-42784.log"))
    assert {step: round(speed[step] / speed[42780], 3) for step in speed} == {
        step: round(flops[step] / flops[42780], 3) for step in flops
    }
    assert run.manifest.sequence_length == 2048
    assert run.manifest.planned_steps == 115_311
    (noted,) = triage(REAL / "bigscience/tr11-176B-ml__chronicles__it42780-42784.log").findings
    assert (noted.code, noted.severity, noted.first_step, noted.last_step) == ("SYS002", "note", 42782, 42784)


def test_an_update_skipped_by_the_loss_scaler_has_no_loss_and_no_norm():
    (run,) = runs("bigscience/tr8-104B-wide__chronicles__it9026-9027.log")
    assert run.rows[1].keys() & {"train_loss_raw", "grad_global_norm"} == set()
    assert curve(run, "skipped_updates") == {9026: 0.0, 9027: 1.0}
    assert any("because the update was skipped" in note for note in run.notes)


def test_steps_logged_again_under_other_topologies_are_a_replay(tmp_path):
    parts = ("94769", "94769_b2", "94770")
    text = "".join((REAL / f"bigscience/tr11-176B-ml__reshaping-log__it94768-{part}.log").read_text() for part in parts)
    path = tmp_path / "reshaping.log"
    path.write_text(text)
    (run,) = import_runs(path)
    assert [(row.get("session", 0), row["step"], row["train_loss_raw"]) for row in run.rows] == [
        (0, 94768, 1.943883),
        (0, 94769, 1.934365),
        (1, 94768, 1.94582),
        (1, 94769, 1.936358),
        (2, 94768, 1.954172),
        (2, 94769, 1.944833),
        (2, 94770, 1.946273),
    ]
    assert sum("stand there again" in note for note in run.notes) == 2
    assert triage(path).findings == []


def test_a_run_that_begins_after_a_resume_says_so():
    (run,) = runs("parameter_golf/legendregpt_resumed_train.log")
    (session,) = run.manifest.sessions
    assert session.resumed_from == 30_000
    assert "learning_rate" not in run.table.names


def test_what_the_header_of_parameter_golf_says():
    (run,) = runs("parameter_golf/hnet_byte260_4h.log")
    manifest = run.manifest
    assert (manifest.parameters, manifest.world_size, manifest.sequence_length) == (17_455_176, 8, 1024)
    assert (manifest.seed, manifest.vocabulary, manifest.planned_steps) == (1337, 260, 5_000_000)
    assert set(curve(run, "tokens_per_update").values()) == {524_288.0}
    assert any("wallclock_cap" in note for note in run.notes)


def test_the_duration_of_a_step_is_the_difference_of_the_clock():
    (run,) = runs("parameter_golf/hnet_byte260_4h.log")
    assert curve(run, "step_time")[84200] == pytest.approx((14212.422 - 14174.897) / 200)
