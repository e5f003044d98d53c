"""Artifacts of C-Kernel-Engine: what each tells, what stands for nothing in it, and several of them as one run."""

import json
import math
import random
from contextlib import suppress
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.importers import Imported, ImportOptions, import_runs, import_source

MEASURED = {"forward_ms": 2.5, "backward_ms": 3.0, "optimizer_ms": 1.0, "step_ms": 6.5}
NOT_MEASURED = {"forward_ms": 0.0, "backward_ms": 0.0, "optimizer_ms": 0.0, "torch_step_ms": 0.0}
TENSORS = ("rms_gamma", "embedding.weight", "fc1.weight", "fc1.bias", "fc2.weight")


def row(step: int, loss: float = 5.0, **more: object) -> dict[str, object]:
    return {
        "step": step,
        "micro_steps": 4,
        "tokens": 32,
        "loss_ck": loss,
        "loss_pt": loss + 1e-7,
        "lr": 1e-3,
        "grad_norm": 3.0,
        **MEASURED,
        **more,
    }


def micro(step: int, loss: float, **more: object) -> dict[str, object]:
    """Return a row as the generated runtime writes it: one micro-step, nothing measured but the whole."""
    return {
        "step": step,
        "epoch": 1,
        "source_stage": "pretrain",
        "micro_steps": 1,
        "tokens": 8,
        "loss_ck": loss,
        "loss_pt": loss,
        "lr": 1e-3,
        "grad_norm": 0.0,
        "step_ms": 4.0,
        **NOT_MEASURED,
        **more,
    }


def curve(*rows: dict[str, object], source: str = "train_e2e_detailed") -> dict[str, object]:
    return {"steps": list(rows), "source": source}


def written(path: Path, document: object) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=2))
    return path


@pytest.fixture
def artifact(tmp_path):
    def run(document: object, name: str = "training_loss_curve_latest.json") -> Imported:
        return import_source(written(tmp_path / name, document))

    return run


def notes_of(run: Imported) -> str:
    return "\n".join(run.notes)


def test_a_curve_gives_a_line_per_update(artifact):
    run = artifact(curve(row(1, 5.5), row(2, 5.25, grad_norm=2.0)))
    assert run.source == "C-Kernel-Engine training artifacts"
    assert run.rows == [
        {
            "step": 1,
            "grad_global_norm": 3.0,
            "train_loss_raw": 5.5,
            "learning_rate": 1e-3,
            "tokens_per_update": 32.0,
            "step_time": 0.0065,
        },
        {
            "step": 2,
            "grad_global_norm": 2.0,
            "train_loss_raw": 5.25,
            "learning_rate": 1e-3,
            "tokens_per_update": 32.0,
            "step_time": 0.0065,
        },
    ]
    assert [document["parity"]["loss_diff"] for document in run.documents] == pytest.approx([1e-7, 1e-7], rel=1e-2)
    assert all(document["parity"]["reference"] == "PyTorch" for document in run.documents)


def test_a_norm_of_zero_beside_no_measured_time_was_not_recorded(artifact):
    run = artifact(curve(micro(1, 5.5), micro(2, 5.25)))
    assert [set(line) for line in run.rows] == [{"step", "train_loss_raw", "learning_rate", "tokens_per_update", "step_time"}] * 2
    assert "2 gradient norms of exactly 0" in notes_of(run)


def test_a_norm_of_zero_beside_measured_times_is_one(artifact):
    assert [line["grad_global_norm"] for line in artifact(curve(row(1), row(2, grad_norm=0.0))).rows] == [3.0, 0.0]


def test_a_norm_that_is_null_was_not_recorded(artifact):
    assert "grad_global_norm" not in artifact(curve(row(1, grad_norm=None))).rows[0]


def test_a_reference_loss_that_copies_the_loss_is_none(artifact):
    run = artifact(curve(micro(1, 5.5), micro(2, 5.25, loss_pt=5.26)))
    assert [(document["step"], round(document["parity"]["loss_diff"], 9)) for document in run.documents] == [(2, 0.01)]
    assert "1 reference losses that only copy" in notes_of(run)


def test_a_summary_without_a_curve_holds_only_what_is_not_zero(artifact):
    summary = {"step": 0, "loss_ck": 0.0, "loss_pt": 0.0, "lr": 0.0, "grad_norm": 0.0}
    with pytest.raises(UnreadableError, match="no value of any step"):
        artifact(curve(summary, source="train_e2e_summary"))
    run = artifact(curve({**summary, "step": 9, "loss_ck": 3.5}, source="train_e2e_summary"))
    assert run.rows == [{"step": 9, "train_loss_raw": 3.5}]
    assert "zeros of a summary" in notes_of(run)


@pytest.mark.parametrize(
    ("word", "value"), [("NaN", math.nan), ("nan", math.nan), ("-nan", math.nan), ("inf", math.inf), ("-Infinity", -math.inf)]
)
def test_bare_words_are_numbers_that_were_recorded(artifact, word, value):
    text = json.dumps(curve(row(1, 5.0), row(2, 4.0, note="nan of it"))).replace("4.0", word, 1)
    loss = artifact(text).rows[1]["train_loss_raw"]
    assert repr(loss) == repr(value)


def test_a_loss_of_nan_is_found(tmp_path):
    rows = [row(step, 5 - step / 100) for step in range(1, 60)] + [row(60, math.nan), row(61, math.nan)]
    path = written(tmp_path / "training_loss_curve.json", curve(*rows))
    (finding,) = [each for each in triage(path).findings if each.name == "nonfinite_values"]
    assert (finding.severity, finding.first_step) == ("sev0", 60)


def test_norms_of_tensors_become_checkpoints(artifact):
    norms = {"steps": [1, 2], "global": [3.0, 2.5], "params": {name: [0.5, 0.25] for name in TENSORS}, "source": "detailed"}
    run = artifact(norms, "training_grad_norms_latest.json")
    assert [line["grad_global_norm"] for line in run.rows] == [3.0, 2.5]
    assert [document["gradients"]["fc1.weight"] for document in run.documents] == [{"norm": 0.5}, {"norm": 0.25}]
    assert run.manifest.tensors["embedding.weight"].kind == "embedding"
    assert list(run.manifest.tensors) == list(TENSORS)


def test_a_step_at_which_every_norm_is_zero_was_not_measured(artifact):
    norms = {
        "steps": [1, 2, 3],
        "global": [0.0, 3.0, 0.0],
        "params": {"fc1.weight": [0.0, 3.0, 0.0], "fc1.bias": [0.0, 0.0, 0.0]},
    }
    run = artifact(norms, "training_grad_norms_latest.json")
    assert [line["step"] for line in run.rows] == [2]
    assert run.documents[0]["gradients"] == {"fc1.weight": {"norm": 3.0}, "fc1.bias": {"norm": 0.0}}


def test_long_norms_are_known_by_what_stands_behind_the_steps(artifact):
    count = 20_000
    norms = {"steps": list(range(1, count + 1)), "global": [1.0] * count, "params": {"fc1.weight": [1.0] * count}}
    assert len(artifact(norms, "training_grad_norms_latest.json").table.steps) == count


def test_parity_becomes_a_section_of_checkpoints(artifact):
    rows = [
        {"step": 1, "loss_diff": 4.8e-7, "max_param_diff": 2.1e-5, "worst_param": "fc1.weight", "mean_param_diff": 1e-10},
        {"step": 2, "loss_diff": None, "max_param_diff": 2.2e-5, "worst_param": "aggregate"},
    ]
    run = artifact({"steps": rows, "source": "train_e2e_detailed"}, "training_parity_latest.json")
    assert [document["parity"] for document in run.documents] == [
        {"loss_diff": 4.8e-7, "param_diff": 2.1e-5, "worst_tensor": "fc1.weight", "reference": "PyTorch"},
        {"param_diff": 2.2e-5, "reference": "PyTorch"},
    ]


def test_a_comparison_that_was_not_made_is_none(artifact):
    unasked = {
        "loss_diff": 0.0,
        "max_param_diff": 0.0,
        "worst_param": None,
        "checked": False,
        "oracle_available": False,
        "replay_weight_max_abs_diff": None,
    }
    asked = {**unasked, "checked": True, "oracle_available": True, "loss_diff": 2e-6}
    run = artifact({"steps": [{"step": 1, **unasked}, {"step": 2, **asked}]}, "training_parity_latest.json")
    assert [(document["step"], document["parity"]) for document in run.documents] == [
        (2, {"loss_diff": 2e-6, "reference": "PyTorch"})
    ]
    assert "1 comparisons with a reference that was not asked" in notes_of(run)


def test_a_step_profile_alone_gives_one_line(artifact):
    profile = {
        "steps": 2,
        "micro_steps": 8,
        "tokens_per_update": 32,
        "processed_tokens": 64,
        "ck_total_ms": 12.5,
        "ck_avg_step_ms": 6.25,
        "torch_avg_step_ms": 0.0,
        "train_tok_s": 5120.0,
        "decode_tok_s": 5120.0,
    }
    run = artifact(profile, "training_step_profile_latest.json")
    assert run.rows == [
        {"step": 2, "tokens_seen": 64.0, "tokens_per_update": 32.0, "tokens_per_sec": 5120.0, "step_time": 0.00625}
    ]
    with pytest.raises(UnreadableError):
        artifact(dict.fromkeys(profile, 0), "training_step_profile_latest.json")


def test_merged_checkpoints_are_read_and_broken_ones_said(artifact, tmp_path):
    good = {"schema_version": "ck.analysis.v1", "loss": 2.5, "gradients": {"layer.0.wq": {"norm": 0.5}}, "extra": 1}
    merged = {
        "schema_version": "ck.analysis.v1",
        "checkpoints": [
            {**good, "step": 10},
            {**good, "step": 20, "loss": "NaN"},
            {**good, "step": 10, "loss": 9.0},
            good,
            {**good, "step": 30, "gradients": {"layer.0.wq": {"norm": -1}}},
        ],
    }
    run = artifact(merged, "analysis_checkpoints_latest.json")
    assert [(document["step"], document["loss"]) for document in run.documents] == [(10, 2.5), (20, "NaN")]
    assert "2 checkpoints do not follow" in notes_of(run)
    report = triage(tmp_path / "analysis_checkpoints_latest.json")
    assert [each.first_step for each in report.findings if each.name == "nonfinite_values"] == [20]


LEDGER = [
    {"schema": "ck.run_ledger.v1", "run_id": "ascii_1", "phase_label": "pretrain_1", "status": "running", "loss_first": None},
    {
        "schema": "ck.run_ledger.v1",
        "run_id": "ascii_1",
        "phase_label": "pretrain_1",
        "status": "completed",
        "steps": 100,
        "loss_first": 5.5,
        "loss_final": 2.25,
        "loss_min": 2.0,
        "loss_min_step": 90,
        "seq_len": 128,
        "lr": 1e-3,
        "started_at": "2026-03-18T10:00:00+00:00",
        "ended_at": "2026-03-18T11:00:00+00:00",
    },
    {
        "schema": "ck.run_ledger.v1",
        "run_id": "ascii_2",
        "phase_label": "sft_1",
        "status": "completed",
        "steps": 40,
        "loss_first": 2.5,
        "loss_final": 1.5,
        "loss_min": 1.5,
        "loss_min_step": 40,
        "seq_len": 128,
        "dataset_name": "sft.txt",
    },
]


def test_a_ledger_alone_gives_a_run_per_stage_and_its_last_record_counts(tmp_path):
    text = "".join(json.dumps(record) + "\n" for record in LEDGER) + '{"schema": "ck.run_led'
    path = written(tmp_path / "run_ledger.jsonl", text)
    runs = import_runs(path)
    assert [run.name for run in runs] == ["pretrain_1", "sft_1"]
    assert runs[0].rows == [
        {"step": 1, "train_loss_raw": 5.5},
        {"step": 90, "train_loss_raw": 2.0},
        {"step": 100, "train_loss_raw": 2.25},
    ]
    assert (runs[0].manifest.sessions[0].start, runs[0].manifest.sessions[0].end) == (1773828000.0, 1773831600.0)
    assert runs[0].manifest.sequence_length == 128
    assert "1 lines of run_ledger.jsonl are no JSON" in notes_of(runs[0])
    assert import_source(path, import_options=ImportOptions(run="sft_1")).rows[-1] == {"step": 40, "train_loss_raw": 1.5}


def test_a_row_per_micro_step_is_joined_to_updates(tmp_path):
    rows = [micro(step, loss) for step, loss in enumerate([6.0, 4.0, 5.0, 3.0, 2.0], 1)]
    written(tmp_path / "training_loss_curve_latest.json", curve(*rows))
    profile = {"steps": 5, "micro_steps": 5, "tokens_per_update": 16, "processed_tokens": 40, "ck_total_ms": 20.0}
    written(tmp_path / "training_step_profile_latest.json", profile)
    run = import_source(tmp_path)
    assert [(line["step"], line["train_loss_raw"], line["tokens_per_update"], line["step_time"]) for line in run.rows] == [
        (1, 5.0, 16.0, 0.008),
        (2, 4.0, 16.0, 0.008),
        (3, 2.0, 8.0, 0.004),
    ]
    assert run.rows[-1]["tokens_seen"] == 40.0
    assert "2 micro-steps of an update" in notes_of(run)


def test_stages_whose_steps_begin_again_are_runs_of_their_own(artifact, tmp_path):
    stages = [("pretrain", 1), ("pretrain", 2), ("sft", 1), ("sft", 2)]
    path = written(tmp_path / "training_loss_curve.json", curve(*(row(step, source_stage=stage) for stage, step in stages)))
    assert [(run.name, len(run.rows)) for run in import_runs(path)] == [("pretrain", 2), ("sft", 2)]
    going_on = [("pretrain", 1), ("pretrain", 2), ("sft", 3), ("sft", 4)]
    assert len(artifact(curve(*(row(step, source_stage=stage) for stage, step in going_on))).rows) == 4


def test_a_folder_of_artifacts_is_one_run(tmp_path):
    steps = range(1, 41)
    written(tmp_path / "training_loss_curve_latest.json", curve(*(row(step, 5 - step / 20) for step in steps)))
    norms = {
        "steps": list(steps),
        "global": [3.0] * 40,
        "params": {name: [1.0] * 40 for name in TENSORS} | {"fc2.bias": [0.0] * 40},
    }
    written(tmp_path / "training_grad_norms_latest.json", norms)
    written(tmp_path / "training_parity_latest.json", {"steps": [{"step": 40, "loss_diff": 3e-7, "max_param_diff": 2e-5}]})
    written(tmp_path / "run_ledger.jsonl", json.dumps(LEDGER[2]) + "\n")
    checkpoint = {"schema_version": "ck.analysis.v1", "step": 40, "weights": {"fc1.weight": {"frobenius_norm": 2.0}}}
    written(tmp_path / "analysis_checkpoint_step_40.json", checkpoint)
    run = import_source(tmp_path)
    assert (len(run.rows), len(run.documents), run.manifest.name) == (40, 40, "ascii_2")
    assert set(run.documents[-1]) == {"step", "schema_version", "weights", "gradients", "parity"}
    report = triage(tmp_path)
    (dead,) = [each for each in report.findings if each.name == "dead_parameter"]
    assert dead.where == "fc2.bias"
    assert "nonfinite_values" in {check.name for check in report.checks if check.outcome == "passed"}


def test_a_training_summary_holds_all_parts(artifact):
    summary = {
        "final_ck_loss": 4.0,
        "run_id": "exp1",
        "seed": 7,
        "grad_accum": 2,
        "seq_len": 8,
        "optimizer": "adamw",
        "loss_curve": [micro(1, 6.0), micro(2, 4.0)],
        "parity_steps": [],
        "step_profile": {},
        "grad_norm_series": {"steps": [1, 2], "global": [0.0, 0.0], "params": {}},
    }
    run = artifact(summary, "train_e2e_latest.json")
    assert [(line["step"], line["train_loss_raw"]) for line in run.rows] == [(1, 5.0)]
    assert (run.manifest.name, run.manifest.seed, run.manifest.config["optimizer"]) == ("exp1", 7, "adamw")


@pytest.mark.parametrize("end", [0, 1, 20, 200, 600])
def test_a_file_cut_anywhere_is_refused_with_the_reason(tmp_path, end):
    text = json.dumps(curve(*(row(step) for step in range(1, 9))), indent=2)
    path = written(tmp_path / "training_loss_curve_latest.json", text[:end])
    with pytest.raises(UnreadableError) as raised:
        import_source(path)
    assert raised.value.hint


def test_hostile_artifacts_give_an_error_of_ours_or_a_run(tmp_path):
    path = tmp_path / "training_loss_curve_latest.json"
    odd = [None, [], {}, "x", -1, 1e400, [1], {"a": 1}, True]
    for value in odd:
        for key in ("step", "loss_ck", "grad_norm", "tokens", "source_stage", "micro_steps"):
            for document in (curve({**row(1), key: value}), {"steps": value, "loss_ck": 1, "source": value}):
                written(path, document)
                try:
                    run = import_source(path)
                except CkauditError:
                    continue
                assert all(isinstance(each, float) for line in run.rows for name, each in line.items() if name != "step")
    with pytest.raises(CkauditError):
        import_source(written(path, '{"loss_ck": ' + "[" * 100_000))


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bytes_give_an_error_of_ours_or_a_run(tmp_path, seed):
    source = random.Random(seed)
    norms = {"steps": [1, 2], "global": [1.0, 2.0], "params": {"a.b": [1.0, 2.0]}}
    documents = [curve(*(row(step) for step in range(1, 9))), norms]
    for document in documents:
        data = bytearray(json.dumps(document, indent=2).encode())
        for _ in range(source.choice([1, 3, 30])):
            data[source.randrange(len(data))] = source.randrange(256)
        path = tmp_path / "training_loss_curve_latest.json"
        path.write_bytes(bytes(data))
        with suppress(CkauditError):
            assert import_source(path).rows


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path):
    secret = written(tmp_path / "secret.json", curve(row(1)))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "training_loss_curve_latest.json").symlink_to(secret)
    with pytest.raises(UnreadableError):
        import_source(folder)


def test_members_need_no_map(artifact, tmp_path):
    path = written(tmp_path / "training_loss_curve.json", curve(row(1)))
    with pytest.raises(UsageError, match="need no --map"):
        import_source(path, import_options=ImportOptions(columns={"loss": "loss_pt"}))
