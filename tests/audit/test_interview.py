"""The verdict on readiness, findings weighed in, and what happens where a question breaks."""

from pathlib import Path

import msgspec
import pytest

from ckaudit.audit import triage
from ckaudit.audit.autopsy import autopsy
from ckaudit.audit.engine import triage_run
from ckaudit.audit.interview import answer, broken_questions, interview, readiness
from ckaudit.contract.schema.report import Answer, Diagnosis, Finding
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.loss import train_loss_at_evals, train_loss_raw, val_loss
from ckaudit.questions.question import Question, SeriesAnswer
from tests.cases import run_of

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
LOSS = {"train_loss_raw": {"steps": "1..100", "value": 3.0, "to": 1.0}}
SPIKE = Finding(code="LOSS001", name="loss_spike", severity="sev1", message="the loss jumps", first_step=40)


def told(**words):
    return [Answer(id=row.replace("_", "."), question="?", word=word, sentence="") for row, word in words.items()]


@pytest.mark.parametrize(
    ("words", "findings", "head"),
    [
        ({"D6_1": "good", "D6_2": "good", "D6_5": "good"}, [], "Ready for fine-tuning. For it: pretraining is at its plateau"),
        ({"D6_1": "good", "D6_2": "watch", "D6_5": "good"}, [], "Ready for fine-tuning, with reservations."),
        ({"D6_1": "watch", "D6_2": "good", "D6_5": "good"}, [], "Not yet ready for fine-tuning: go on with pretraining."),
        ({"D6_1": "good", "D6_2": "bad", "D6_5": "good"}, [], "Not ready for fine-tuning."),
        ({"D6_1": "good", "D6_2": "good", "D6_5": "good"}, [SPIKE], "Not ready for fine-tuning."),
        ({"D6_1": "good", "D6_2": "not_recorded", "D6_5": "good"}, [], "Whether it is ready for fine-tuning cannot be said."),
        ({"D6_1": "not_recorded", "D6_2": "not_recorded", "D6_5": "not_recorded"}, [], "Whether it is ready"),
    ],
)
def test_the_verdict_on_readiness(words, findings, head):
    assert readiness(told(**words), findings).startswith(head)


def test_the_verdict_names_what_speaks_for_it_against_it_and_what_is_missing():
    sentence = readiness(told(D6_1="watch", D6_2="not_recorded", D6_5="good"), [SPIKE])
    assert "For it: half prompts are continued (D6.5)" in sentence
    assert "against it: pretraining is not at its plateau (D6.1), findings that stop or contain a run (LOSS001)" in sentence
    assert sentence.endswith("not recorded: how fluent it is (D6.2).")


def breaks(loss):
    raise ZeroDivisionError("no more")


def well(loss):
    return SeriesAnswer(word="good", sentence="it falls", numbers={"nan": float("nan")})


def made(function, rules=()):
    return Question("D9.9", 1, "Does it?", (train_loss_raw,), (), rules, "Does it?", "does_it", function)


def test_a_question_that_breaks_is_no_answer_and_makes_the_audit_incomplete():
    found = answer(made(breaks), run_of({"name": "a", "scalars": LOSS}), [], [])
    assert (found.word, found.sentence) == ("not_recorded", "the question broke: ZeroDivisionError: no more")
    (check,) = broken_questions([found])
    assert (check.code, check.outcome) == ("D9.9", "error")


def test_an_interview_has_the_answers_that_broke_beside_its_phases(monkeypatch):
    monkeypatch.setattr("ckaudit.audit.interview.questions", lambda: {"D9.9": made(breaks), "D9.8": made(well)})
    told = interview(run_of({"name": "a", "scalars": LOSS}), [1], [], [])
    assert [given.word for given in told.phases[0].answers] == ["not_recorded", "good"]
    assert [given.sentence for given in told.broken] == ["the question broke: ZeroDivisionError: no more"]


@pytest.mark.parametrize(("severity", "word"), [("sev0", "bad"), ("sev1", "bad"), ("sev2", "watch"), ("note", "good")])
def test_no_answer_is_better_than_the_finding(severity, word):
    finding = msgspec.structs.replace(SPIKE, severity=severity)
    found = answer(made(well, ("loss_spike",)), run_of({"name": "a", "scalars": LOSS}), [finding], [])
    assert found.word == word
    assert found.findings == ([] if severity == "note" else ["LOSS001"])
    assert found.numbers == {"nan": "NaN"}


def test_a_finding_on_other_numbers_does_not_bear():
    other = Finding(code="GRAD003", name="dead_parameter", severity="sev1", message="no gradient", where="a.weight")
    found = answer(made(well, ("overfitting",)), run_of({"name": "a", "scalars": LOSS}), [other], [])
    assert (found.word, found.sentence, found.findings) == ("good", "it falls", [])


@pytest.mark.parametrize("severity", ["sev0", "sev1", "sev2"])
def test_a_good_answer_is_to_be_watched_where_a_finding_rests_on_the_same_numbers(severity):
    finding = msgspec.structs.replace(SPIKE, severity=severity)
    found = answer(made(well), run_of({"name": "a", "scalars": LOSS}), [finding], [])
    assert (found.word, found.findings) == ("watch", ["LOSS001"])
    assert found.sentence == "LOSS001 from step 40, on the same train_loss_raw: the loss jumps. It falls"
    note = msgspec.structs.replace(SPIKE, severity="note")
    assert answer(made(well), run_of({"name": "a", "scalars": LOSS}), [note], []).word == "good"


def test_a_finding_that_names_the_number_rests_on_it():
    wrong = Finding(code="VALUE001", name="impossible_value", severity="sev1", message="it is -3", where="train_loss_raw")
    found = answer(made(well), run_of({"name": "a", "scalars": LOSS}), [wrong], [])
    assert (found.word, found.findings) == ("watch", ["VALUE001"])


def test_a_finding_that_the_question_weighs_itself_does_not_bear_twice():
    asked = msgspec.structs.replace(made(well), weighs=("loss_spike",))
    assert answer(asked, run_of({"name": "a", "scalars": LOSS}), [SPIKE], []).word == "good"


LEAK = Finding(code="MASK001", name="mask_leak", severity="sev0", message="the mask leaks", first_step=10, where="layer.0/head.0")


def likely_cause(name, *codes, confidence=0.9):
    fields = {"knob": "-", "inspect": "-", "runbook": "-", "symptom": "-", "severity": "sev1", "evidence": []}
    return Diagnosis(cause=name, title=f"{name} it is.", confidence=confidence, explains=list(codes), **fields)


def test_losses_mean_nothing_while_the_mask_leaks_and_gradients_still_do():
    run = run_of({"name": "a", "scalars": LOSS})
    found = answer(made(well), run, [LEAK], [likely_cause("causal_mask_leaks", "MASK001")])
    assert (found.word, found.findings, found.causes) == ("watch", ["MASK001"], ["causal_mask_leaks"])
    assert found.sentence.startswith("the losses mean nothing while attention sees the tokens that it is to predict (MASK001")
    other = msgspec.structs.replace(made(lambda norm: SeriesAnswer(word="good", sentence="it flows")), needs=(gradient_norm,))
    sections = {"gradients.*.norm": {"steps": [10, 20], "labels": ["a"], "values": [[1.0], [1.0]]}}
    assert answer(other, run_of({"name": "a", "sections": sections}), [LEAK], []).word == "good"


@pytest.mark.parametrize(("confidence", "word"), [(0.9, "watch"), (0.3, "good")])
def test_a_cause_voids_losses_without_a_proof_where_it_is_more_than_a_guess(confidence, word):
    odd = Finding(code="GRAD003", name="dead_parameter", severity="sev2", message="no gradient", where="a.weight")
    diagnosis = likely_cause("softmax_applied_twice", "GRAD003", confidence=confidence)
    found = answer(made(well), run_of({"name": "a", "scalars": LOSS}), [odd], [diagnosis])
    assert found.word == word
    assert ("while softmax is applied twice (GRAD003)" in found.sentence) == (word == "watch")


def test_a_wrong_number_voids_what_is_made_of_it_and_nothing_else():
    wrong = Finding(code="CLM001", name="contradicted_claim", severity="sev2", message="it is wrong", where="train_loss_ema")
    levels = {"val_loss": {"steps": "10..100:10", "value": 2.0}, "train_loss_ema": {"steps": "1..100", "value": 2.0}}
    run = run_of({"name": "a", "scalars": LOSS | levels})
    of_val = msgspec.structs.replace(made(well), needs=(val_loss,))
    assert answer(of_val, run, [wrong], []).word == "good"
    level = msgspec.structs.replace(made(well), needs=(train_loss_at_evals,))
    assert answer(level, run, [wrong], []).word == "watch"


@pytest.mark.parametrize(("confidence", "word"), [(0.9, "watch"), (0.3, "good")])
def test_a_likely_cause_that_is_about_the_same_is_heard(confidence, word):
    other = Finding(code="MOVE002", name="update_out_of_band", severity="sev2", message="too large")
    asked = msgspec.structs.replace(made(well), causes=("missing_warmup",))
    diagnosis = likely_cause("missing_warmup", "MOVE002", confidence=confidence)
    found = answer(asked, run_of({"name": "a", "scalars": LOSS}), [other], [diagnosis])
    assert (found.word, found.causes) == (word, ["missing_warmup"] if word == "watch" else [])


@pytest.mark.parametrize(("last", "word"), [(None, "watch"), (100, "watch"), (60, "good")])
def test_nothing_is_well_in_a_run_that_is_not_finite_at_its_end(last, word):
    ruin = Finding(
        code="NUM001", name="nonfinite_values", severity="sev0", message="it is NaN", first_step=50, last_step=last, where="a.w"
    )
    assert answer(made(well), run_of({"name": "a", "scalars": LOSS}), [ruin], []).word == word


def test_what_else_bears_is_named_once_beside_the_places_that_the_gravest_has_folded():
    many = msgspec.structs.replace(SPIKE, message="the loss jumps (and 7 more)")
    found = answer(
        made(well, ("loss_spike", "loss_rises")),
        run_of({"name": "a", "scalars": LOSS}),
        [many, SPIKE, msgspec.structs.replace(SPIKE, code="LOSS004", name="loss_rises", severity="sev2")],
        [],
    )
    assert "the loss jumps (and 7 more); besides 1 more of LOSS001, LOSS004. It falls" in found.sentence


def test_a_finding_counts_where_the_series_are_missing():
    found = answer(made(well, ("loss_spike",)), run_of({"name": "a"}), [SPIKE], [])
    assert (found.word, found.missing) == ("bad", ["train_loss_raw"])


def test_the_run_is_quoted_in_commands_that_a_shell_would_split():
    (phase,) = interview(run_of({"name": "my runs/a", "scalars": LOSS}), [1], [], [], step=7).phases
    first, second = phase.pointers
    assert first.command == "ckaudit metrics 'my runs/a' train_loss_raw --step 7"
    assert second.command == "ckaudit coverage 'my runs/a'"
    assert "gradient_check_error" in second.why


@pytest.mark.parametrize("step", [None, 250])
def test_the_map_leads_to_the_first_event(step):
    report = triage(RUNS / "lr_too_high", step=step, questions=(4,))
    (pointer,) = [each for each in report.interview[0].pointers if each.id == "MAP-5"]
    assert pointer.command.endswith("--event 77")
    assert autopsy(RUNS / "lr_too_high", event=77).event.event_step == 77


@pytest.mark.parametrize(("mass", "word"), [(0.0, "good"), (0.5, "watch")])
def test_a_recording_whose_mask_leaks_has_no_good_loss(mass, word):
    heads = {"attention.*.upper_triangle_mass_per_head": {"steps": [10, 20], "labels": ["a/head.0"], "values": [[mass], [mass]]}}
    shifted = {"data.target_shift_match": {"steps": [10, 20], "values": [[1.0], [1.0]]}}
    report = triage_run(run_of({"name": "a", "scalars": LOSS, "sections": heads | shifted}), questions=(1, 2))
    found = {each.id: each for phase in report.interview for each in phase.answers}
    assert {found[row].word for row in ("D1.1", "D2.1")} == {word}
    assert ("the losses mean nothing while attention sees" in found["D1.1"].sentence) == (mass > 0)
    assert found["D1.4"].word == ("bad" if mass else "not_recorded")
