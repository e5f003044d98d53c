"""Level 4: what only a whole run can show, each by one change to a healthy run."""

import json
import math
from pathlib import Path

import pytest

from ckaudit.contract.schema.report import Finding
from ckaudit.validate import validate
from ckaudit.validate.run_checks import DERIVED
from tests.validate.material import NAMES, STEPS, checkpoint, healthy_run, line, manifest, name_of, write, write_lines


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return healthy_run(tmp_path / "run")


def only(run: Path) -> Finding:
    (finding,) = validate([run]).findings
    return finding


def codes(run: Path) -> list[str]:
    return [finding.code for finding in validate([run]).findings]


def test_a_healthy_run_has_no_findings(run):
    report = validate([run])
    assert report.findings == []
    assert report.verdict == "8 files follow ck.analysis.v1, ck.run.v1 and ck.scalars.v1"


def test_another_version_among_the_files_is_told_of_the_file_and_of_the_run(run):
    write(run / name_of(30), checkpoint(30, schema_version="ck.analysis.v9"))
    assert codes(run) == ["RUN001", "SCH002"]


def test_one_step_in_two_files(run):
    write(run / "analysis_checkpoint_step_00000030b.json", checkpoint(30))
    finding = only(run)
    assert (finding.code, finding.first_step) == ("RUN002", 30)
    assert {finding.file, *finding.also} == {name_of(30), "analysis_checkpoint_step_00000030b.json"}


def test_missing_steps_are_counted_between_the_first_and_the_last(run):
    (run / name_of(20)).unlink()
    (run / name_of(30)).unlink()
    (run / name_of(50)).unlink()
    finding = only(run)
    assert (finding.code, finding.points, finding.first_step, finding.file) == ("RUN003", 2, 20, name_of(40))


def test_a_run_without_a_cadence_hears_once_of_all_gaps_in_the_default_one(run):
    (run / "run.json").unlink()
    for step in (20, 40):
        (run / name_of(step)).unlink()
    write(run / name_of(250), checkpoint(250))
    finding = only(run)
    # 20 and 40, then 60 to 100 by tens, then 150 and 200.
    assert (finding.code, finding.points, finding.first_step) == ("RUN003", 9, 20)


def test_a_step_beyond_all_others_does_not_make_validation_count_to_it(run):
    write(run / "run.json", manifest(cadence=[{"until": 50, "every": 10}, {"until": None, "every": 1}]))
    write(run / name_of(10**17), checkpoint(10**17, time=1.8e9))
    assert only(run).points == 10**17 - 51


def test_checkpoints_outside_the_cadence_are_events_and_no_gap(run):
    write(run / name_of(33), checkpoint(33))
    assert codes(run) == []


def test_a_tensor_that_vanishes_and_one_that_appears(run):
    for step in (30, 40, 50):
        document = checkpoint(step)
        document["weights"]["renamed"] = document["weights"].pop("embed")
        document["gradients"]["renamed"] = document["gradients"].pop("embed")
        write(run / name_of(step), document)
    write(run / "run.json", manifest(tensors={}, parameters=192))
    vanished, appeared = sorted(validate([run]).findings, key=lambda finding: finding.where or "")
    assert (vanished.code, vanished.where, vanished.file) == ("RUN004", "embed", name_of(30))
    assert (appeared.code, appeared.where, appeared.first_step) == ("RUN004", "renamed", 30)


def test_a_checkpoint_without_weights_is_no_change_of_tensors(run):
    write(run / name_of(30), {"schema_version": "ck.analysis.v1", "step": 30})
    assert codes(run) == []


def test_a_tensor_that_changes_shape_or_type(run):
    document = checkpoint(50)
    document["weights"]["embed"] |= {"shape": [8, 9], "dtype": "bfloat16"}
    write(run / name_of(50), document)
    found = {finding.code: finding for finding in validate([run]).findings}
    assert set(found) == {"RUN005", "RUN006", "RUN014"}
    assert (found["RUN005"].expected, found["RUN005"].found, found["RUN005"].where) == ("shape (8, 8)", "shape (8, 9)", "embed")


def test_a_layer_that_changes_its_number_of_heads(run):
    for step, heads in ((40, 4), (50, 8)):
        write(run / name_of(step), checkpoint(step, attention={"layer.0": {"heads": heads}}))
    assert (only(run).code, only(run).expected, only(run).found) == ("RUN005", "4 heads", "8 heads")


def test_grids_may_take_turns(run):
    for step, name in ((40, "embed"), (50, "blocks.0.w")):
        document = checkpoint(step)
        document["weights"][name]["sampled_grid_32x32"] = [[0.0] * 8] * 8
        write(run / name_of(step), document)
    assert codes(run) == []


def test_shards_of_ranks_are_compared_with_their_own_rank_only(run):
    for rank in (0, 1):
        shard = {name: {"shape": [4 + rank, 8], "placement": "shard"} for name in NAMES}
        write(run / f"analysis_checkpoint_step_00000050.rank00{rank}.json", checkpoint(50, rank=rank, weights=shard))
    write(run / "run.json", manifest(sessions=[{"start": 1, "end": 2, "world_size": 2}]))
    assert codes(run) == []


def test_steps_that_go_back_in_one_session(run):
    write_lines(run / "scalars.jsonl", [line(step, time=1.7e9) for step in (1, 2, 3)] + [line(2, time=1.7e9)])
    finding = only(run)
    assert (finding.code, finding.line, finding.first_step) == ("RUN007", 4, 2)


def test_a_value_that_changes_when_steps_go_back_is_found_far_apart(run):
    steps = [*range(1, 40), *range(20, 51)]
    lines = [line(step, time=1.7e9 + index) for index, step in enumerate(steps)]
    lines[39]["train_loss_raw"] = 1.5
    write_lines(run / "scalars.jsonl", lines)
    found = {finding.code: finding for finding in validate([run]).findings}
    assert set(found) == {"RUN007", "RUN010", "RUN019"}
    assert (found["RUN010"].line, found["RUN010"].expected, found["RUN010"].found) == (40, "2.0", "1.5")


def test_lines_of_one_step_are_merged_and_may_repeat_a_value_but_not_change_it(run):
    lines = [line(step) for step in range(1, 51)]
    lines[10:10] = [{"step": 10, "session": 0, "val_loss": 2.5, "train_loss_raw": 2.0}]
    write_lines(run / "scalars.jsonl", lines)
    assert codes(run) == []
    lines[10]["train_loss_raw"] = 2.25
    write_lines(run / "scalars.jsonl", lines)
    found = {finding.code: finding for finding in validate([run]).findings}
    assert (found["RUN010"].line, found["RUN010"].where) == (11, "train_loss_raw")


def test_two_logs_that_contradict_each_other(run):
    write_lines(run / "scalars_b.jsonl", [line(step, time=1.7e9 + step, train_loss_raw=2.0) for step in (31, 32)])
    assert codes(run) == []
    write_lines(run / "scalars_b.jsonl", [{"step": 31, "train_loss_raw": 2.5}, {"step": 32, "val_loss": 9.0}])
    finding = only(run)
    assert (finding.code, finding.file, finding.line) == ("RUN010", "scalars_b.jsonl", 1)


def test_a_higher_session_replaces_a_lower_one_from_its_first_step(run):
    resumed = [line(step, session=1, time=1.7e9 + 100 + step, train_loss_raw=1.0) for step in range(31, 51)]
    write_lines(run / "scalars.jsonl", [line(step) for step in range(1, 41)] + resumed)
    for step in (40, 50):
        write(run / name_of(step), checkpoint(step, session=1, loss=1.0, time=1.7e9 + 100 + step))
    write(run / "analysis_checkpoint_step_00000040.session000.json", checkpoint(40))
    write(run / "run.json", manifest(sessions=[{"start": 1, "end": 2}, {"start": 3, "end": 4}]))
    report = validate([run])
    assert report.findings == []
    assert report.notes == ["1 history file of replaced sessions, each judged by itself"]


def test_a_lower_session_after_a_higher_one(run):
    write(run / name_of(40), checkpoint(40, session=1))
    write(run / "run.json", manifest(sessions=[{"start": 1, "end": 2}, {"start": 3, "end": 4}]))
    assert (only(run).code, only(run).file) == ("RUN009", name_of(50))
    write(run / name_of(40), checkpoint(40))
    lines = [line(step, session=int(step < 30)) for step in range(1, 51)]
    write_lines(run / "scalars.jsonl", lines)
    assert (only(run).code, only(run).line) == ("RUN009", 30)


def test_a_clock_that_goes_back(run):
    write(run / name_of(40), checkpoint(40, time=1.7e9 + 20))
    assert (only(run).code, only(run).file) == ("RUN008", name_of(40))
    healthy_run(run)
    lines = [line(step) for step in range(1, 51)]
    lines[24]["time"] -= 10
    write_lines(run / "scalars.jsonl", lines)
    assert (only(run).code, only(run).line) == ("RUN008", 25)


def test_facts_of_a_rank_without_a_merged_file(run):
    facts = {"schema_version": "ck.analysis.v1", "step": 60, "rank": 3, "rank_facts": {"step_time": 1.0}}
    write(run / "analysis_checkpoint_step_00000060.rank003.json", facts)
    write(run / "run.json", manifest(sessions=[{"start": 1, "end": 2, "world_size": 4}]))
    assert (only(run).code, only(run).first_step) == ("RUN017", 60)
    write(run / "run.json", manifest(world_size=2, sessions=[{"start": 1, "end": 2}]))
    assert codes(run) == ["RUN018", "RUN017"]


@pytest.mark.parametrize(("value", "verdict"), [(2.3478, []), (2.35, []), (2.36, ["RUN019"]), ("NaN", ["RUN019"])])
def test_the_loss_of_a_checkpoint_is_that_of_its_line(run, value, verdict):
    write(run / name_of(30), checkpoint(30, loss=2.3478))
    lines = [line(step, train_loss_raw=value if step == 30 else 2.0) for step in range(1, 51)]
    write_lines(run / "scalars.jsonl", lines)
    assert codes(run) == verdict


def test_the_gradient_norm_of_a_checkpoint_is_that_of_its_line(run):
    write_lines(run / "scalars.jsonl", [line(step, grad_global_norm=0.6 if step == 30 else 0.55) for step in range(1, 51)])
    assert (only(run).code, only(run).file, only(run).pointer) == ("RUN020", name_of(30), "/scalars/grad_global_norm")


def test_a_tensor_that_the_table_does_not_list_is_told_once(run):
    table = manifest()["tensors"]
    del table["embed"]
    write(run / "run.json", manifest(tensors=table, parameters=128))
    assert (only(run).code, only(run).where, only(run).file) == ("RUN013", "embed", name_of(0))


@pytest.mark.parametrize(
    ("changed", "code", "pointer"),
    [
        ({"cadence": [{"until": None, "every": 0}]}, "RUN011", "/cadence/0/every"),
        ({"cadence": [{"until": 100, "every": 10}, {"until": 50, "every": 10}]}, "RUN011", "/cadence/1/until"),
        ({"cadence": [{"until": None, "every": 10}, {"until": 50, "every": 10}]}, "RUN011", "/cadence/1"),
        ({"sessions": [{"start": 5, "end": 4}]}, "RUN012", "/sessions/0/end"),
        ({"sessions": [{"start": 5, "end": 6}, {"start": 4, "end": 7}]}, "RUN012", "/sessions/1/start"),
        ({"sessions": [{"end": 6, "write_errors": 2, "checkpoint_ok": False}]}, "RUN015", "/sessions/0/write_errors"),
        ({"sessions": [{"end": 6, "checkpoint_ok": False}]}, "RUN015", "/sessions/0/checkpoint_ok"),
        ({"sessions": [{"end": 6, "checkpoint_ok": True, "look_errors": 3}]}, "RUN025", "/sessions/0/look_errors"),
        ({"sessions": [{"start": 5}]}, "RUN016", "/sessions/0"),
        ({"sessions": []}, "RUN021", "/sessions"),
        ({"parameters": 193}, "RUN022", "/parameters"),
        ({"planned_learning_rate": [[0, 0.1], [0, 0.2]]}, "RUN023", "/planned_learning_rate/1"),
        ({"planned_learning_rate": [[0, 0.1, 7]]}, "RUN023", "/planned_learning_rate/0"),
        ({"warmup_steps": 10, "planned_steps": 9}, "RUN023", "/warmup_steps"),
        ({"cadense": 1}, "SCH008", "/cadense"),
        ({"sessions": 7}, "SCH004", "/sessions"),
        ({"parameters": -1}, "SCH007", "/parameters"),
    ],
)
def test_a_manifest_that_contradicts_itself(run, changed, code, pointer):
    write(run / "run.json", manifest(**changed))
    finding = only(run)
    assert (finding.code, finding.pointer, finding.file) == (code, pointer, "run.json")
    assert (finding.line is None) == (code == "RUN021")


def test_failures_of_the_recorder_are_told_by_what_they_cost_and_the_first_of_them(run):
    wrote = {"end": 6, "write_errors": 2, "checkpoint_ok": False}
    looked = {"look_errors": 3, "first_look_error": "looking at {x} failed"}
    write(run / "run.json", manifest(sessions=[wrote, wrote | looked | {"end": 7, "first_write_error": "No space left"}]))
    told = [(finding.code, finding.severity, finding.message) for finding in validate([run]).findings]
    assert told == [
        ("RUN015", "sev2", "session 0 counts 2 failures of the recorder, to write or to look"),
        ("RUN015", "sev2", "session 1 counts 2 failures to write a file, a checkpoint or a line, the first: No space left"),
        ("RUN025", "note", "session 1 counts 3 failures to look at a part, the first: looking at {x} failed"),
    ]


def test_a_tensor_tied_to_one_that_is_not_there(run):
    table = manifest()["tensors"] | {"head": {"tied_to": "embedding"}}
    write(run / "run.json", manifest(tensors=table))
    assert (only(run).code, only(run).where) == ("RUN022", "head")


def test_a_key_twice_in_a_manifest(run):
    text = json.dumps(manifest()).replace('"parameters"', '"name": "a", "name": "b", "parameters"')
    (run / "run.json").write_text(text)
    assert (only(run).code, only(run).pointer) == ("SYN010", "/name")


def test_single_files_are_not_asked_for_what_is_missing(run):
    report = validate([run / name_of(0), run / name_of(50), run / "scalars.jsonl"])
    assert report.findings == []
    skipped = {check.name for check in report.checks if check.outcome == "skipped"}
    assert "cadence_gap" in skipped
    write(run / name_of(50), checkpoint(50, loss=7.0))
    assert [each.code for each in validate([run / name_of(50), run / "scalars.jsonl"]).findings] == ["RUN019"]


def test_the_order_of_files_does_not_matter_where_names_have_no_zeros(tmp_path):
    for step in STEPS:
        write(tmp_path / f"analysis_checkpoint_step_{step}.json", checkpoint(step))
    assert codes(tmp_path) == []


def test_a_logged_perplexity_that_is_not_that_of_its_loss(run):
    write_lines(run / "scalars.jsonl", [line(step, val_loss=2.0 + 1 / step, val_ppl=4.0) for step in range(1, 51)])
    finding = only(run)
    assert (finding.code, finding.where, finding.first_step, finding.last_step) == ("RUN024", "val_ppl", 1, 50)
    assert "at least" in finding.message
    right = [line(step, val_loss=2.0 + 1 / step, val_ppl=round(math.exp(2.0 + 1 / step), 3)) for step in range(1, 51)]
    write_lines(run / "scalars.jsonl", right)
    report = validate([run])
    assert report.findings == []
    assert {check.code: check.outcome for check in report.checks}["RUN024"] == "passed"


def test_the_names_that_a_log_can_judge_are_those_of_the_claims():
    import ckaudit.metrics.contradictions
    from ckaudit.metrics.claims import CLAIMS

    assert ckaudit.metrics.contradictions
    assert {name for name, claim in CLAIMS.items() if claim.is_of_log} == set(DERIVED)
    assert all(set(inputs) <= set(CLAIMS[name].reads) for name, inputs in DERIVED.items())


def test_a_loss_that_run_json_says_is_of_another_kind_may_be_negative(run):
    write(run / name_of(30), checkpoint(30, loss=-0.5, scalars={}))
    assert "VAL049" in codes(run)
    write(run / "run.json", manifest(loss_kind="other"))
    assert "VAL049" not in codes(run)
