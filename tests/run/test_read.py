import gc
import gzip
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import zstandard
from msgspec import UNSET

from ckaudit.audit import triage
from ckaudit.errors import UnreadableError
from ckaudit.metrics import metrics
from ckaudit.run.read import read_run
from ckaudit.run.run_facts import is_reinforcement_learning, resume_steps
from tests.metrics.samples import NAN, cells, close

NORM = "gradients.*.norm"


def document(step, **parts):
    return {"schema_version": "ck.analysis.v1", "step": step, **parts}


def gradient(step, norm=1.0, **parts):
    return document(step, gradients={"w": {"norm": norm}}, **parts)


def write(folder, step, content, suffix="", tail=".json"):
    """Write one checkpoint file, packed by its suffix; text and bytes are written as they are."""
    text = content if isinstance(content, (str, bytes)) else json.dumps(content)
    data = text.encode() if isinstance(text, str) else text
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix]
    (folder / f"analysis_checkpoint_step_{step:08d}{tail}{suffix}").write_bytes(pack(data))


def log(folder, *lines, name="scalars.jsonl", end="\n"):
    (folder / name).write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end)


def codes(run):
    return [finding.code for finding in run.findings]


def test_plain_and_packed_checkpoints_are_one_run(tmp_path):
    for step, suffix in ((10, ""), (20, ".gz"), (30, ".zst")):
        write(tmp_path, step, gradient(step, step / 10), suffix)
    run = read_run(tmp_path)
    assert cells(run.sections[NORM]) == {(10, "w"): 1.0, (20, "w"): 2.0, (30, "w"): 3.0}
    assert (run.checkpoint_steps.tolist(), run.files, run.findings) == ([10, 20, 30], 3, ())


def test_steps_decide_the_order_not_names(tmp_path):
    for name, step in (("b", 5), ("a", 100), ("c", 20)):
        (tmp_path / f"analysis_checkpoint_{name}.json").write_text(json.dumps(gradient(step)))
    run = read_run(sorted(tmp_path.iterdir()))
    assert run.sections[NORM].steps.tolist() == run.checkpoint_steps.tolist() == [5, 20, 100]


def test_one_file_alone_is_a_run(tmp_path):
    write(tmp_path, 7, gradient(7, loss=2.5))
    run = read_run(next(tmp_path.iterdir()))
    assert cells(run.scalar("train_loss_raw")) == {(7, "train_loss_raw"): 2.5}
    assert run.last_step == 7


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(UnreadableError):
        read_run(tmp_path)


def test_a_file_that_is_not_there_is_a_finding(tmp_path):
    assert codes(read_run(tmp_path / "nowhere.json")) == ["SYN001"]


def test_nan_words_and_bare_words_and_missing_fields_are_told_apart(tmp_path):
    write(tmp_path, 1, gradient(1, "NaN"))
    write(tmp_path, 2, '{"schema_version":"ck.analysis.v1","step":2,"gradients":{"w":{"norm":NaN},"v":{"norm":Infinity}}}')
    write(tmp_path, 3, document(3, gradients={"w": {"std": 1.0}}))
    found = read_run(tmp_path).sections[NORM]
    assert close(cells(found), {(1, "w"): NAN, (2, "w"): NAN, (2, "v"): np.inf})


def test_a_section_that_comes_late_is_recorded_late(tmp_path):
    write(tmp_path, 1, document(1))
    write(tmp_path, 2, document(2, weights={"w": {"mean": 1.0}}))
    run = read_run(tmp_path)
    assert cells(run.series("weights", "mean")) == {(2, "w"): 1.0}
    assert not run.series("gradients", "norm")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "SYN002"),
        ('{"schema_version": "ck.analysis.v1", "step": 2, "lo', "SYN005"),
        ("[1, 2]", "SCH009"),
        (b"\xff\xfe\x00", "SYN003"),
        ({"schema_version": "ck.analysis.v9", "step": 2}, "SCH002"),
        ({"schema_version": "ck.analysis.v1"}, "SCH003"),
    ],
)
def test_a_broken_file_among_others_is_a_finding_and_costs_only_itself(tmp_path, content, code):
    write(tmp_path, 1, gradient(1))
    write(tmp_path, 2, content)
    write(tmp_path, 3, gradient(3))
    run = read_run(tmp_path)
    assert code in codes(run)
    assert all(finding.file == "analysis_checkpoint_step_00000002.json" for finding in run.findings)
    assert run.checkpoint_steps.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("bad", "lost"),
    [
        ({"loss": None}, {"loss"}),
        ({"loss": "high"}, {"loss"}),
        ({"weights": {"w": {"mean": 1.0, "std": -1.0}, "v": {"mean": 2.0}}}, {"weights.w.std"}),
        ({"weights": {"w": {"mean": [1.0], "std": 1.0}, "v": {"mean": 2.0}}}, {"weights.w.mean"}),
        ({"attention": {"layer.0": {"entropy_per_head": [1.0, None], "max_attn_per_head": [0.5, 0.6]}}}, {"entropy"}),
        ({"optimizer": {"loss_scale": "high"}}, {"scale"}),
    ],
)
def test_a_value_that_violates_the_contract_costs_only_itself(tmp_path, bad, lost):
    good = {
        "loss": 2.5,
        "optimizer": {"loss_scale": 8.0},
        "weights": {"w": {"mean": 1.0, "std": 1.0}, "v": {"mean": 2.0}},
        "attention": {"layer.0": {"entropy_per_head": [1.0, 1.2], "max_attn_per_head": [0.5, 0.6]}},
    }
    write(tmp_path, 1, document(1, **good))
    write(tmp_path, 2, document(2, **good | bad))
    run = read_run(tmp_path)
    assert len(run.findings) == 1
    assert run.findings[0].file == "analysis_checkpoint_step_00000002.json"
    known = {
        "loss": (2, "train_loss_raw") in cells(run.scalar("train_loss_raw")),
        "scale": 2 in run.value("optimizer.loss_scale").recorded_rows().steps,
        "weights.w.std": (2, "w") in cells(run.series("weights", "std")),
        "weights.w.mean": (2, "w") in cells(run.series("weights", "mean")),
        "weights.v.mean": (2, "v") in cells(run.series("weights", "mean")),
        "entropy": (2, "layer.0/head.1") in cells(run.series("attention", "entropy_per_head")),
        "sharpest": (2, "layer.0/head.1") in cells(run.series("attention", "max_attn_per_head")),
    }
    assert {name for name, is_known in known.items() if not is_known} == lost
    assert "1 file was read without the values that violate the contract" in run.notes


def test_a_value_beside_a_violation_is_judged(tmp_path):
    for step in (100, 200, 300):
        norm = "NaN" if step == 300 else 0.5
        write(tmp_path, step, document(step, loss=None, gradients={"w": {"norm": norm}, "v": {"norm": 0.5}}))
    report = triage(tmp_path)
    assert report.severity == "sev0"
    assert [(each.code, each.where) for each in report.findings if each.severity == "sev0"][-1] == ("NUM001", "w")


def test_violations_in_other_places_of_each_file_cost_only_themselves(tmp_path):
    for step in range(1, 9):
        weights = {f"w{place}": {"mean": 1.0, "std": -1.0 if place == step else 1.0} for place in range(1, 9)}
        write(tmp_path, step, document(step, weights=weights))
    known = cells(read_run(tmp_path).series("weights", "std"))
    assert known == {(step, f"w{place}"): 1.0 for step in range(1, 9) for place in range(1, 9) if place != step}


def test_huge_numbers_in_other_places_of_each_file_cost_only_themselves(tmp_path):
    for step in range(1, 9):
        weights = {f"w{place}": {"mean": 10**400 if place == step else 1.0} for place in range(1, 9)}
        write(tmp_path, step, document(step, loss=None, weights=weights))
    known = cells(read_run(tmp_path).series("weights", "mean"))
    assert {at for at in known if at[0] <= 3} == {(step, f"w{place}") for step in (1, 2, 3) for place in range(1, 9)} - {
        (step, f"w{step}") for step in (1, 2, 3)
    }
    assert all(value == 1.0 for value in known.values())


def test_a_torn_packed_file_is_a_finding(tmp_path):
    write(tmp_path, 1, gradient(1))
    write(tmp_path, 2, gradient(2), ".gz")
    packed = tmp_path / "analysis_checkpoint_step_00000002.json.gz"
    packed.write_bytes(packed.read_bytes()[:-9])
    assert codes(read_run(tmp_path)) == ["SYN005"]


def test_rank_files_and_replaced_history_stay_out_of_the_run(tmp_path):
    write(tmp_path, 10, gradient(10))
    write(tmp_path, 10, document(10, rank=3, gradients={"w": {"norm": 99.0}}), tail=".rank003.json")
    write(tmp_path, 10, gradient(10, 77.0, session=1), tail=".session001.json")
    run = read_run(tmp_path)
    assert cells(run.sections[NORM]) == {(10, "w"): 1.0}
    assert run.files == 1


def test_events_are_kept_with_the_step_that_asked(tmp_path):
    write(tmp_path, 21, document(21, event_step=20, triggers=["loss_spike"]))
    write(tmp_path, 11, document(11, event_step=10, triggers=["nonfinite", "grad_norm"]))
    events = [(event.step, event.event_step, event.triggers) for event in read_run(tmp_path).events]
    assert events == [(11, 10, ("nonfinite", "grad_norm")), (21, 20, ("loss_spike",))]


def test_only_what_was_asked_for_is_kept(tmp_path):
    write(tmp_path, 1, document(1, loss=2.0, gradients={"w": {"norm": 1.0, "std": 2.0}}, weights={"w": {"mean": 1.0}}))
    run = read_run(tmp_path, reads=[NORM])
    assert list(run.sections) == [NORM]
    assert run.scalar("train_loss_raw")


def test_single_values_and_heads_have_their_paths(tmp_path):
    attention = {"l.0": {"entropy_per_head": [1.0, "NaN"], "causal": True}}
    write(tmp_path, 1, document(1, attention=attention, optimizer={"clip_coefficient": 0.5, "found_inf": False}))
    run = read_run(tmp_path)
    assert close(cells(run.series("attention", "entropy_per_head")), {(1, "l.0/head.0"): 1.0, (1, "l.0/head.1"): NAN})
    assert run.series("attention", "causal").values.tolist() == [[1.0]]
    assert [*cells(run.value("optimizer.clip_coefficient")).values()] == [0.5]
    assert [*cells(run.value("optimizer.found_inf")).values()] == [0.0]


def test_scalars_of_many_files_with_a_torn_end(tmp_path):
    log(tmp_path, {"step": 1, "train_loss_raw": 3.0, "slice_val_loss/regular": 1.0}, {"step": 2, "train_loss_raw": "NaN"})
    (tmp_path / "scalars.001.jsonl.zst").write_bytes(
        zstandard.compress(b'{"step": 3, "train_loss_raw": NaN}\n{"step": 4, "lr": 1}\n')
    )
    log(tmp_path, {"step": 5, "train_loss_raw": 1.0}, '{"step": 6, "train_lo', name="scalars.002.jsonl", end="")
    run = read_run(tmp_path)
    assert close(
        cells(run.scalar("train_loss_raw")), {(s, "train_loss_raw"): v for s, v in ((1, 3.0), (2, NAN), (3, NAN), (5, 1.0))}
    )
    assert cells(run.scalar("slice_val_loss")) == {(1, "regular"): 1.0}
    assert run.last_step == 5


def test_a_resume_replaces_the_lines_it_trained_again(tmp_path):
    old = [{"step": step, "train_loss_raw": 5.0} for step in range(1, 7)]
    new = [{"step": step, "train_loss_raw": 2.0, "session": 1} for step in (4, 5)]
    log(tmp_path, *old, *new)
    found = cells(read_run(tmp_path).scalar("train_loss_raw"))
    assert {step: value for (step, _), value in found.items()} == {1: 5.0, 2: 5.0, 3: 5.0, 4: 2.0, 5: 2.0}


def test_sessions_that_only_lines_name_are_those_of_the_run(tmp_path):
    old = [{"step": step, "train_loss_raw": 5.0} for step in (10, 20, 30, 40)]
    log(tmp_path, *old, {"step": 30, "train_loss_raw": 2.0, "session": 1}, {"step": 50, "train_loss_raw": 2.0, "session": 2})
    assert resume_steps(read_run(tmp_path).manifest) == [20, 30]
    (tmp_path / "run.json").write_text('{"schema_version": "ck.run.v1", "sessions": [{}, {"resumed_from": 25}]}')
    assert resume_steps(read_run(tmp_path).manifest) == [25]


def test_a_loss_beside_returns_of_episodes_is_that_of_a_policy(tmp_path):
    lines = [{"step": step, "train_loss_raw": -0.1, "microbench_score/episode_return": 20.0} for step in (1, 2, 3)]
    log(tmp_path, *lines)
    assert is_reinforcement_learning(read_run(tmp_path).manifest)
    log(tmp_path, *({"step": line["step"], "train_loss_raw": 2.0, "microbench_score/val_accuracy": 0.5} for line in lines))
    assert not is_reinforcement_learning(read_run(tmp_path).manifest)


def test_the_log_counts_before_the_checkpoints(tmp_path):
    write(tmp_path, 1, document(1, loss=9.0, scalars={"learning_rate": 0.1}))
    write(tmp_path, 2, document(2, loss=8.0))
    log(tmp_path, {"step": 1, "train_loss_raw": 3.0})
    run = read_run(tmp_path)
    assert run.scalar("train_loss_raw").values.ravel().tolist() == [3.0, 8.0]
    assert cells(run.scalar("learning_rate")) == {(1, "learning_rate"): 0.1}


def test_a_broken_line_is_a_finding_and_costs_only_itself(tmp_path):
    log(tmp_path, {"step": 1, "a": 1.0}, '{"step": 2, "a": ]}', {"step": 3, "a": 3.0})
    run = read_run(tmp_path)
    assert cells(run.scalar("a")) == {(1, "a"): 1.0, (3, "a"): 3.0}
    assert [finding.line for finding in run.findings] == [2]


def test_words_in_the_log_are_texts(tmp_path):
    log(tmp_path, {"step": 1, "input_hash": "ab"}, {"step": 2, "input_hash": "cd"})
    assert read_run(tmp_path).texts["input_hash"].values == ("ab", "cd")


def test_the_manifest_gives_blocks_their_depth(tmp_path):
    write(tmp_path, 1, gradient(1))
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": "ck.run.v1", "tensors": {"w": {"depth": 4}}}))
    assert read_run(tmp_path).tensors.block("w") == "block.4"


def test_a_broken_manifest_is_a_finding_and_costs_only_itself(tmp_path):
    write(tmp_path, 1, gradient(1))
    (tmp_path / "run.json").write_text('{"schema_version": "ck.run.v1", "seed": "many", "source": "test"}')
    run = read_run(tmp_path)
    assert codes(run) == ["SCH004"]
    assert run.manifest is not None
    assert (run.manifest.seed, run.manifest.source) == (UNSET, "test")
    assert run.sections[NORM]


def test_progress_is_told_for_every_file(tmp_path):
    for step in (1, 2, 3):
        write(tmp_path, step, gradient(step))
    told = []
    read_run(tmp_path, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_folder_in_the_place_of_a_file_is_a_finding(tmp_path):
    write(tmp_path, 1, gradient(1))
    (tmp_path / "analysis_checkpoint_step_00000002.json").mkdir()
    assert codes(read_run(tmp_path)) == ["SYN001"]


def test_grids_that_nobody_asked_for_take_no_memory(tmp_path):
    grid = np.round(np.random.default_rng(0).normal(size=(32, 32)), 3).tolist()
    weights = {f"h.{i}.w": {"mean": 1.0, "sampled_grid_32x32": grid} for i in range(10)}
    for step in range(200):
        write(tmp_path, step, document(step, weights=weights))
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    read_run(tmp_path, reads=["weights.*.mean"])
    gc.collect()  # what other tests left is not to be counted when it goes
    tracemalloc.start()
    run = read_run(tmp_path, reads=["weights.*.mean"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert run.sections["weights.*.mean"].values.shape == (200, 10)
    assert peak < 2e6 < size / 5


FIXTURES = Path(__file__).parents[2] / "fixtures"
RUNS = [*sorted((FIXTURES / "runs").glob("*/run.json")), FIXTURES / "checkpoints" / "valid"]


@pytest.mark.parametrize("source", RUNS, ids=lambda path: path.parent.name)
def test_every_fixture_is_read_whole_and_feeds_every_metric(source):
    run = read_run(source.parent if source.is_file() else sorted(source.rglob("*.json*")))
    assert not run.findings
    assert run.files
    for metric in metrics().values():
        series = metric(run)
        assert series.values.shape == series.recorded.shape == (len(series.steps), len(series.labels))
