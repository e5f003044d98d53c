"""What to do now: the action of the severity, the parts of the stack in order, evidence and replay, by hand from small runs."""

import numpy as np
import pytest
from msgspec.structs import replace

from ckaudit.audit import triage_run
from ckaudit.audit.playbook import ACTIONS, NEWEST, NO_BEFORE, OF_RECORDS, PARTS, part_of
from ckaudit.audit.response_plan import from_the_start, response
from ckaudit.causes import causes
from ckaudit.contract.schema.report import Diagnosis, Finding
from ckaudit.rules import rules
from ckaudit.run.run import Event
from tests.cases import run_of


def finding(code, severity, first):
    return Finding(code=code, name=code, severity=severity, message="x", first_step=first)


def recorded(**more):
    return run_of({"name": "runs/a b", "scalars": {"train_loss_raw": {"steps": "1..400", "value": 2.0}}, **more})


def test_nothing_is_to_be_done_where_nothing_is_more_than_a_note():
    assert response(recorded(), []) == []
    assert response(recorded(), [finding("LOSS001", "note", 5)]) == []


def test_the_gravest_severity_names_the_action_and_the_first_step_what_is_good():
    found = response(recorded(), [finding("LOSS001", "sev1", 200), finding("GRAD007", "sev2", 120), finding("X", "note", 3)])
    assert found[0] == f"sev1: {ACTIONS['sev1']}; checkpoints before step 120 are good"


def test_files_that_cannot_be_read_are_no_reason_to_touch_the_training():
    unread = Finding(code="SYN003", name="not_utf8", severity="sev1", message="x", file="runs/a b/scalars.jsonl")
    assert response(recorded(), [unread]) == [f"sev1: {OF_RECORDS}", "look at: records (SYN003)"]
    beside = response(recorded(), [unread, finding("LOSS001", "sev1", 200)])
    assert beside[0].startswith(f"sev1: {ACTIONS['sev1']}; ")


def test_the_parts_of_the_stack_stand_in_the_order_of_time():
    ill = [finding(code, "sev2", first) for code, first in (("SYS001", 90), ("NUM001", 50), ("DATA004", 48), ("GRAD002", 49))]
    assert response(recorded(), ill)[1] == (
        "look at: data since step 48 (DATA004); numerics since step 49 (GRAD002, NUM001); hardware since step 90 (SYS001)"
    )


def test_evidence_names_batches_numbers_and_the_black_box():
    run = recorded(texts=named(lambda step: f"b{step * step}"))
    run = type(run)(**{name: getattr(run, name) for name in ("name", "scalars", "texts")}, events=(Event(385, 384, ()),))
    save = response(run, [finding("LOSS001", "sev1", 380)])[2]
    assert save.startswith("save: the numbers of steps 330 to 400, the batches b142129 at step 377, b142884 at step 378, ")
    assert "b144400 at step 380" in save
    assert "step 381" not in save
    assert "ckaudit triage 'runs/a b' --event 384" in save


def named(name):
    return {"batch_id": {"steps": list(range(1, 401)), "values": [name(step) for step in range(1, 401)]}}


def saved(name, first=10):
    return response(recorded(texts=named(name)), [finding("LOSS001", "sev1", first)])[2]


def test_batches_that_are_named_by_their_step_are_told_from_the_first_to_the_last():
    assert ", the batches of steps 7 to 10 (ids 7/0 to 10/0), and" in saved(lambda step: f"{step}/0")
    assert "(ids step_0007 to step_0010)" in saved(lambda step: f"step_{step:04}")
    assert "the batch of step 1 (id 1/0)" in saved(lambda step: f"{step}/0", first=1)


def test_batches_with_names_that_do_not_count_with_the_steps_are_told_one_by_one():
    assert "the batches 7/0 at step 7, 8/1 at step 8, 9/0 at step 9, 10/1 at step 10" in saved(
        lambda step: f"{step}/{1 - step % 2}"
    )
    assert "the batches 17 at step 7, 18 at step 8" in saved(lambda step: f"1{step}")
    every = named(lambda step: f"{step}/0")["batch_id"]
    gaps = {"batch_id": {key: [value for row, value in enumerate(each) if row != 7] for key, each in every.items()}}
    told = response(recorded(texts=gaps), [finding("LOSS001", "sev1", 10)])[2]
    assert "the batches 6/0 at step 6, 7/0 at step 7, 9/0 at step 9, 10/0 at step 10" in told


def test_a_replay_has_a_number_to_meet():
    probe = {"fixed_probe_loss": {"steps": [100, 200, 300], "values": [3.0, 2.5, 9.0]}}
    run = recorded(scalars=probe)
    assert response(run, [finding("LOSS001", "sev1", 300)])[3].endswith("must cost 2.5 nats/token, as at step 200")


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"source": "ckaudit recorder 0.1.0"}, "a fixed batch (recorder.pin) would"),
        ({"source": "ckaudit recorder 0.1.0", "trainer": "lightning"}, "a fixed batch (callback.pin) would"),
        ({"source": "Hugging Face trainer_state.json"}, "a fixed batch would"),
        ({"source": "CSV"}, "a fixed batch would"),
        ({}, "a fixed batch would"),
    ],
)
def test_a_fixed_batch_is_asked_for_by_the_call_that_the_writer_has(facts, told):
    assert told in response(recorded(facts=facts), [finding("LOSS001", "sev1", 100)])[3]


def test_what_is_ill_from_the_start_has_nothing_to_go_back_to():
    action, _, _, replay = response(recorded(), [finding("INIT001", "sev2", 1)])
    assert action == f"sev2: {ACTIONS['sev2']}; nothing written so far is known to be good"
    assert replay.startswith("replay: the first steps once more")
    rollback = response(recorded(), [finding("INIT001", "sev1", 1)])[0]
    assert rollback.endswith("make a rollback ready to the start: nothing written so far is known to be good")


EPOCHS = {"val_loss": {"steps": "1..20", "value": 3.0, "to": 1.0, "set": {"9..20": 2.5}}}


def test_what_was_written_before_the_model_overfitted_is_good_however_early_that_was():
    action, _, _, replay = response(recorded(scalars=EPOCHS), [finding("LOSS002", "sev2", 9)])
    assert action.endswith("; checkpoints before step 9 are good (validation is lowest at step 8)")
    assert replay.startswith("replay: from the last checkpoint before step 9")
    assert not from_the_start(recorded(), 9, ["LOSS002"])
    beside = response(recorded(scalars=EPOCHS), [finding("LOSS002", "sev2", 9), finding("GRAD003", "sev2", 2)])[0]
    assert beside.endswith("; nothing written so far is known to be good; validation is lowest at step 8")


def test_the_headline_does_not_say_that_a_model_overfitted_before_its_best_epoch():
    val = {"steps": "1..20", "value": 3.0, "to": 0.5, "set": {f"{step}": 2.1 + 0.1 * (step - 8) for step in range(9, 21)}}
    report = triage_run(
        run_of({"name": "a", "scalars": {"train_loss_raw": {"steps": "1..20", "value": 3.0, "to": 0.2}, "val_loss": val}})
    )
    (first, *_), told = report.diagnoses, " ".join([report.verdict, *report.response])
    assert first.cause == "too_little_data"
    assert first.first_step == 9
    assert "of this run keep step 8, where validation is lowest" in first.knob
    assert "before step 9 are good (validation is lowest at step 8)" in told
    assert "or before" not in told


def test_a_lowest_validation_after_the_first_finding_is_not_said_to_be_before_it():
    held = {"val_loss": {"steps": [100, 200, 300, 400], "values": [2.0, 1.5, 0.9, 1.7]}}
    found = response(recorded(scalars=held), [finding("LOSS001", "sev1", 250), finding("LOSS002", "sev2", 400)])[0]
    assert found.endswith("checkpoints before step 250 are good; validation is lowest later, at step 300")


def test_where_the_cause_leaves_the_weights_sound_nothing_is_rolled_back():
    likely = replace(cause(0.9), cause="loss_scale_too_high", explains=["AMP001"])
    for first in (5, 200):
        assert response(recorded(), [finding("AMP001", "sev1", first)], [likely])[0].endswith(f"; {NEWEST}")
        beside = [finding("AMP001", "sev1", first), finding("GRAD003", "sev2", first)]
        assert NEWEST not in response(recorded(), beside, [likely])[0]
    assert causes()["loss_scale_too_high"].good_checkpoint == "newest"


def test_where_the_cause_is_how_the_run_began_nothing_before_the_finding_is_good():
    likely = replace(cause(0.9), cause="missing_warmup", explains=["LOSS001"])
    action, _, _, replay = response(recorded(), [finding("LOSS001", "sev2", 200)], [likely])
    assert action.endswith(f"; {NO_BEFORE}")
    assert replay.startswith("replay: the first steps once more")
    assert "before step 200" in response(recorded(), [finding("LOSS001", "sev2", 200)], [replace(likely, confidence=0.4)])[0]
    assert causes()["missing_warmup"].good_checkpoint == "none"


def test_a_benchmark_that_fell_leads_to_the_procedure():
    scores = {"microbench_score": {"steps": "100..1000:100", "labels": ["arc"], "value": 0.5, "set": {"700..1000": 0.3}}}
    report = triage_run(recorded(scalars=scores))
    assert [each.code for each in report.findings] == ["EVAL002"]
    assert report.response[-1] == "a benchmark fell: ckaudit triage 'runs/a b' --benchmark-drop asks why, in order"


def test_a_fault_of_the_record_asks_for_no_rollback_whatever_explains_it():
    slip = finding("VAL011", "sev1", 100)
    cause = Diagnosis(
        cause="writer",
        title="t",
        confidence=0.9,
        severity="sev1",
        symptom="x",
        knob="k",
        inspect="i",
        runbook="r",
        evidence=[],
        explains=["VAL011"],
    )
    for diagnoses in ([], [cause]):
        assert response(recorded(), [slip], diagnoses) == [f"sev1: {OF_RECORDS}", "look at: records since step 100 (VAL011)"]


def test_the_training_is_answered_by_its_own_severity_where_the_record_is_broken_too():
    found = response(recorded(), [finding("SYN005", "sev1", 10), finding("LOSS003", "sev2", 50)])
    assert found[0] == f"sev2: {ACTIONS['sev2']}; checkpoints before step 50 are good"


def test_every_rule_of_the_model_is_about_one_part_of_the_stack():
    records = {"CLM001", "VALUE001", "PLAY001", "UNIT001"}  # they judge what was written down
    assert {code for code in rules() if part_of(code) == "records"} == records
    assert {part_of(code) for code in rules()} - {"records"} == set(PARTS)


def cause(confidence):
    return Diagnosis(
        cause="x",
        title="X.",
        confidence=confidence,
        severity="sev2",
        symptom="s",
        knob="k",
        inspect="i",
        runbook="r",
        evidence=[],
        explains=[],
    )


def test_the_knob_of_a_likely_cause_is_better_than_the_general_action():
    ill = [finding("LOSS001", "sev2", 200)]
    assert response(recorded(), ill, [cause(0.9)])[0].startswith("sev2: investigate: try the first knob of cause 1 on a canary")
    assert response(recorded(), ill, [cause(0.4)])[0].startswith(f"sev2: {ACTIONS['sev2']}")


def test_the_best_validation_before_the_illness_is_named():
    held = {"val_loss": {"steps": [100, 200, 300, 400], "values": [2.0, 1.5, 1.7, 1.6]}}
    assert response(recorded(scalars=held), [finding("LOSS006", "sev2", 350)])[0].endswith(
        "checkpoints before step 350 are good (validation is lowest at step 200)"
    )


def test_going_back_has_a_price_where_validation_has_come_on_since():
    held = {"val_loss": {"steps": [100, 200, 300, 400], "values": [2.0, 1.5, 1.7, 0.9]}}
    assert response(recorded(scalars=held), [finding("SCHED002", "sev1", 250)])[0].endswith(
        "before step 250 are good; going back loses the validation gain from 1.5 to 0.9"
    )


def test_what_the_first_checkpoint_shows_may_be_as_old_as_the_run():
    run = recorded()
    run = type(run)(name=run.name, scalars=run.scalars, checkpoint_steps=np.array([0, 50, 100]))
    assert [from_the_start(run, step) for step in (None, 7, 50, 51, 100)] == [False, True, True, False, False]


def test_logs_of_every_rank_are_asked_for_where_there_may_be_several():
    ill = [finding("LOSS001", "sev2", 200)]
    assert response(recorded(facts={"world_size": 1}), ill)[2].endswith("and the logs of these minutes")
    assert response(recorded(facts={"world_size": 2}), ill)[2].endswith("from every rank")


def test_the_price_of_going_back_is_what_the_run_ends_with_and_not_its_best():
    held = {"val_loss": {"steps": "100..400:100", "value": 1.5, "set": {"300": 0.9, "400": 1.2}}}
    price = "going back loses the validation gain from 1.5 to 1.2"
    assert response(recorded(scalars=held), [finding("LOSS001", "sev1", 250)])[0].endswith(price)
    for worse in (1.7, float("nan")):
        held["val_loss"]["set"]["400"] = worse
        assert "going back loses" not in response(recorded(scalars=held), [finding("LOSS001", "sev1", 250)])[0]


def test_a_canary_of_a_log_of_epochs_is_not_counted_in_updates():
    of_epochs = recorded(facts={"step_unit": "epoch"})
    assert "canary of 200 to 2,000 steps" in response(recorded(), [finding("LOSS003", "sev2", 100)])[0]
    assert "on a short canary;" in response(of_epochs, [finding("LOSS003", "sev2", 100)])[0]
