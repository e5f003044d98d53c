"""Logs of real runs: every imported value equals the file's, and each run gets the verdict that its story asks for."""

import csv
import hashlib
import json
import math
from functools import cache
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.contract.io.jsonl import parse_lines
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.contract.schema.report import Report
from ckaudit.importers import Imported, import_source
from tests.loops import for_each

REAL = Path(__file__).parents[1] / "fixtures" / "real"
INDEX = json.loads((REAL / "INDEX.json").read_text(encoding="utf-8"))
FILES = [entry["path"] for entry in INDEX if entry["path"].endswith((".csv", "trainer_state.json"))]
MAX_BYTES = 3_000_000

TRAINER = {"train_loss_raw": "loss", "val_loss": "eval_loss", "learning_rate": "learning_rate", "grad_global_norm": "grad_norm"}
PLAIN = {"train_loss_raw": "loss", "learning_rate": "lr"}
PYTHIA = {"train_loss_raw": "train/lm_loss"}
MEASURED = {"train_loss_raw": "loss", "learning_rate": "lr", "grad_global_norm": "grad_norm", "val_loss": "validation/loss"}
SPEECH = MEASURED | {"val_loss": "validation/ctc_loss"}
OLMO = {
    "learning_rate": "optim/learning_rate_group0",
    "tokens_seen": "throughput/total_tokens",
    "slice_val_loss/pile-validation": "eval/pile-validation/CrossEntropyLoss",
    "slice_val_loss/wikitext_103-validation": "eval/wikitext_103-validation/CrossEntropyLoss",
}
COLUMNS = {"hf_trainer": TRAINER, "multipowerlaw": PLAIN, "pythia": PYTHIA, "algoperf": MEASURED, "olmo": OLMO}

# name, number of values, first and last step, lowest value and its step: read off the files, and told by their authors.
FACTS = {
    "hf_trainer/whisper_small_hi_overfit/trainer_state.json": [
        ("train_loss_raw", 200, 25, 5000, 0.0001, 4850),
        ("val_loss", 5, 1000, 5000, 0.30747494101524353, 1000),
    ],
    "hf_trainer/whisper_flemish_15k/trainer_state.json": [
        ("train_loss_raw", 150, 100, 15000, 0.0035, 14300),
        ("val_loss", 15, 1000, 15000, 0.20878072082996368, 12000),
    ],
    "hf_trainer/mistral_lora_4ep/trainer_state.json": [("train_loss_raw", 866, 10, 8660, None, None)],
    "hf_trainer/mistral_lora_4ep/checkpoint-4500/trainer_state.json": [("train_loss_raw", 450, 10, 4500, None, None)],
    "hf_trainer/mistral_lora_4ep/checkpoint-500/trainer_state.json": [("train_loss_raw", 50, 10, 500, None, None)],
    "multipowerlaw/csv_100/cosine_72000.csv": [("train_loss_raw", 546, 2160, 71920, None, None)],
    "multipowerlaw/csv_400/wsdcon_3.csv": [("learning_rate", 109, 2176, 15936, 3.0000000000000004e-05, 8000)],
    "pythia/160m-6.first5000.csv": [("train_loss_raw", 5000, 0, 4999, 2.6718132495880127, 4622)],
    "pythia/160m-8.first5000.csv": [("train_loss_raw", 5000, 0, 4999, 2.6710867881774902, 4803)],
    "olmo/190M-1xC.csv": [("tokens_seen", 37, 200, 7272, 104857600.0, 200)],
    "olmo/peteish1.csv": [("tokens_seen", 256, 1000, 1907359, 2097152000.0, 1000)],
    "algoperf/deepspeech_baseline_healthy/measurements.csv": [
        ("train_loss_raw", 480, 0, 47900, 1.0464627, 45700),
        ("val_loss", 29, 1, 48000, 0.41774118, 46551),
    ],
    "algoperf/ogbg_prodigy_overfit_s2/measurements.csv": [("val_loss", 78, 1, 49742, 0.0640935075265465, 1963)],
    "algoperf/conformer_nadamw_seq_restart_80k_160k/measurements.csv": [("train_loss_raw", 1855, 0, 185400, 1.0141126, 79200)],
    "algoperf/wmt_caspr_spiky/measurements.csv": [("val_loss", 47, 1, 69839, 1.437616229057312, 69839)],
    "algoperf/resnet_sfprodigy_val_diverges/measurements.csv": [("val_loss", 124, 1, 84094, 2.209638125, 25993)],
    "algoperf/resnet_sfadamw_no_train_series/measurements.csv": [("val_loss", 124, 1, 172116, 2.9541928125, 4201)],
}


@cache
def imported(file: str) -> Imported:
    return import_source(REAL / file)


@cache
def report(file: str) -> Report:
    return triage(REAL / file)


def curve(file: str, name: str) -> dict[int, float]:
    return {row["step"]: row[name] for row in imported(file).rows if name in row}


def entries(file: str) -> list[dict[str, float | str]]:
    """Read a file the plain way: dictionaries of what stands there, each with a step."""
    text = (REAL / file).read_text(encoding="utf-8")
    if file.endswith(".json"):
        return [entry for entry in json.loads(text)["log_history"] if "train_runtime" not in entry]
    rows = list(csv.DictReader(text.splitlines()))
    for row in rows:
        tokens = float(row.get("throughput/total_tokens") or 0) / float(row.get("batch_size_in_tokens") or 1)
        row["step"] = float(row.get("step") or row.get("global_step") or tokens)
    return rows


@for_each("file", FILES)
def test_every_value_of_the_file_is_imported_and_no_other(file):
    columns = SPEECH if "deepspeech" in file or "conformer" in file else COLUMNS[file.partition("/")[0]]
    for name, column in columns.items():
        expected = {int(entry["step"]): float(entry[column]) for entry in entries(file) if entry.get(column) not in (None, "")}
        found = {step: value for step, value in curve(file, name).items() if not math.isnan(value)}
        assert found == expected, name


@for_each("file", FILES)
def test_imported_rows_are_lines_of_the_contract(file):
    rows = [{name: encode_float(value) for name, value in row.items()} for row in imported(file).rows]
    lines = parse_lines(b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows), "scalars.jsonl")
    assert lines.findings == []
    assert lines.rows == rows


@pytest.mark.parametrize("file", FACTS)
def test_counts_ends_and_minima(file):
    for name, count, first, last, lowest, where in FACTS[file]:
        values = curve(file, name)
        assert (len(values), min(values), max(values)) == (count, first, last)
        if where is not None:
            assert (min(values.values()), min(values, key=values.__getitem__)) == (lowest, where)


def test_the_spikes_of_the_gradient_norm_are_there():
    norm = curve("hf_trainer/mistral_lora_4ep/trainer_state.json", "grad_global_norm")
    assert round(norm[3220], 2) == 8.13
    assert round(norm[5510], 2) == 5.47


def test_checkpoints_of_a_run_are_its_beginning():
    whole = imported("hf_trainer/mistral_lora_4ep/trainer_state.json").rows
    for step in (500, 4500):
        part = imported(f"hf_trainer/mistral_lora_4ep/checkpoint-{step}/trainer_state.json")
        assert part.rows == [row for row in whole if row["step"] <= step]
        assert part.manifest.planned_steps == 8660


def test_empty_cells_after_the_blow_up_are_nan():
    loss = curve("algoperf/criteo_genadam_inf_step73/measurements.csv", "train_loss_raw")
    assert (loss[71], loss[72], loss[73]) == (18.291977, 4523269.0, math.inf)
    assert [step for step, value in loss.items() if math.isnan(value)] == list(range(74, 100))


def test_evaluations_on_training_examples_are_no_training_loss():
    file = "algoperf/resnet_sfadamw_no_train_series/measurements.csv"
    assert not curve(file, "train_loss_raw")
    assert {check.name for check in report(file).checks if check.outcome == "skipped"} >= {"loss_spike"}


def test_the_learning_rate_steps_down_where_the_authors_say():
    for folder in ("csv_100", "csv_400"):
        for name, after in (("wsdcon_3", 3e-5), ("wsdcon_9", 9e-5), ("wsdcon_18", 1.8e-4)):
            rate = curve(f"multipowerlaw/{folder}/{name}.csv", "learning_rate")
            assert {value for step, value in rate.items() if step < 8000} == {3e-4}
            assert {round(value, 10) for step, value in rate.items() if step >= 8000} == {after}


HEALTHY = [
    "algoperf/deepspeech_baseline_healthy/measurements.csv",
    "algoperf/resnet_baseline_clean/measurements.csv",
    "algoperf/resnet_nadamp_clean/measurements.csv",
    "hf_trainer/mistral_lora_4ep/trainer_state.json",
    "hf_trainer/mistral_lora_4ep/checkpoint-4500/trainer_state.json",
    "hf_trainer/mistral_lora_4ep/checkpoint-500/trainer_state.json",
    "multipowerlaw/csv_100/cosine_72000.csv",
    "multipowerlaw/csv_400/constant_24000.csv",
    "multipowerlaw/csv_400/cosine_24000.csv",
    "multipowerlaw/csv_400/wsd_20000_24000.csv",
    "multipowerlaw/csv_400/wsdld_20000_24000.csv",
    "olmo/190M-1xC.csv",
    "olmo/peteish1.csv",
    "pythia/160m-6.first5000.csv",
]


def found(file: str, name: str) -> list:
    return [finding for finding in report(file).findings if finding.name == name and finding.severity != "note"]


@pytest.mark.parametrize("file", HEALTHY)
def test_a_healthy_run_gets_at_most_a_note(file):
    assert [finding.message for finding in report(file).findings if finding.severity != "note"] == []


def test_the_control_seed_has_no_flag_at_all():
    assert report("pythia/160m-6.first5000.csv").findings == []


@pytest.mark.parametrize("file", [file for file in FILES if "wsdcon" in file])
def test_a_step_of_the_learning_rate_is_no_illness_of_the_loss(file):
    assert not {"loss_spike", "overfitting", "nonfinite_values"} & {finding.name for finding in report(file).findings}


@pytest.mark.parametrize(
    ("file", "lowest"),
    [
        ("hf_trainer/whisper_small_hi_overfit/trainer_state.json", 1000),
        ("hf_trainer/whisper_flemish_15k/trainer_state.json", 12000),
        ("algoperf/ogbg_prodigy_overfit_s2/measurements.csv", 1963),
        ("algoperf/resnet_sfprodigy_val_diverges/measurements.csv", 25993),
        ("algoperf/resnet_sfadamw_no_train_series/measurements.csv", 4201),
    ],
)
def test_a_validation_loss_that_rises_is_found_with_its_minimum(file, lowest):
    (finding,) = found(file, "overfitting")
    assert f"step {lowest}" in finding.message
    assert finding.first_step >= lowest
    assert not found(file, "loss_spike")


def test_the_spike_at_the_end_of_warm_up_is_one_incident():
    (finding,) = found("pythia/160m-8.first5000.csv", "loss_spike")
    assert (finding.first_step, finding.last_step, finding.worst_step) == (1186, 1209, 1204)


def test_a_model_initialised_anew_is_seen_where_it_happens():
    spikes = found("algoperf/conformer_nadamw_seq_restart_80k_160k/measurements.csv", "loss_spike")
    assert [finding.first_step for finding in spikes] == [80000, 160000]


def test_a_new_model_is_no_other_data():
    told = report("algoperf/conformer_nadamw_seq_restart_80k_160k/measurements.csv")
    assert {finding.first_step for finding in told.findings if finding.name == "learning_rate_jump"} == {80000}
    assert "data_distribution_shift" not in {each.cause for each in told.diagnoses}


def test_the_large_spikes_are_seen_at_their_peaks():
    spikes = found("algoperf/wmt_caspr_spiky/measurements.csv", "loss_spike")
    assert {finding.worst_step for finding in spikes} == {7100, 13800, 23900}
    assert not found("algoperf/wmt_caspr_spiky/measurements.csv", "overfitting")


def test_a_blow_up_is_seen_before_and_when_it_is_not_finite():
    file = "algoperf/criteo_genadam_inf_step73/measurements.csv"
    assert report(file).severity == "sev0"
    assert {finding.first_step for finding in found(file, "nonfinite_values")} == {73, 171}
    (spike,) = found(file, "loss_spike")
    assert spike.first_step <= 71 <= spike.last_step


def test_a_blow_up_in_warm_up_is_no_endless_warm_up():
    file = "algoperf/criteo_genadam_inf_step73/measurements.csv"
    assert not found(file, "schedule_off_plan")
    assert found(file, "exploding_gradient")[0].first_step <= 71
    assert report(file).diagnoses[0].cause == "learning_rate_too_high"


@pytest.mark.parametrize("file", [file for file in FILES if "wsdcon" in file])
def test_a_planned_step_of_the_rate_is_noted_at_its_step(file):
    (note,) = report(file).findings
    assert (note.name, note.severity, note.first_step) == ("learning_rate_jump", "note", 8000)


def test_a_single_gradient_spike_of_a_healthy_fine_tuning_is_noted():
    (note,) = report("hf_trainer/mistral_lora_4ep/trainer_state.json").findings
    assert (note.name, note.severity, note.worst_step) == ("exploding_gradient", "note", 3220)


@pytest.mark.parametrize("file", [file for file in FILES if "overfit" in file])
def test_what_is_learnt_by_heart_is_called_so(file):
    told = report(file)
    assert {finding.name for finding in told.findings if finding.severity != "note"} == {"overfitting"}
    assert told.diagnoses[0].cause == "too_little_data"


@for_each("file", FILES)
def test_no_log_of_a_training_that_ended_is_called_broken(file):
    """No finding of sev0 or sev1 but in the three logs whose authors tell of a blow-up, a restart or spikes."""
    ill = any(name in file for name in ("conformer", "criteo", "wmt_caspr"))
    assert ill == any(finding.severity in ("sev0", "sev1") for finding in report(file).findings)


def test_the_index_names_every_file_as_it_was_published():
    files = {str(path.relative_to(REAL)) for path in REAL.rglob("*") if path.is_file() and path.parent != REAL}
    assert files == {entry["path"] for entry in INDEX}
    assert sum(path.stat().st_size for path in REAL.rglob("*") if path.is_file()) < MAX_BYTES
    for entry in INDEX:
        assert hashlib.sha256((REAL / entry["path"]).read_bytes()).hexdigest() == entry["sha256"]
        assert len(entry["commit"]) == 40
        assert entry["licence"]
        assert entry["shows"]
