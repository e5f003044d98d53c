"""What a gate makes of answers: who is outvoted, what is allowed, what is foreseen, and what nobody can tell."""

import pytest
from msgspec.structs import replace

from ckaudit.contract.schema.diff import Unlike
from ckaudit.contract.schema.report import Finding
from ckaudit.diff.catalogue import kind_of
from ckaudit.diff.gate import gated
from ckaudit.diff.questions import questions
from ckaudit.policy.policy_schema import GATE_QUESTIONS, QUESTION_GROUPS, GateTerms
from tests.reports.diff.sample import answer, comparison, pair

WORSE = answer("final_loss", "worse", 2.0, 2.2, 0.05, "nats")
NOISE = answer("final_loss", "within_noise", 2.0, 2.01, 0.05, "nats")
SPEED = answer("speed", "worse", 1.0, 1.08, 0.01, "s")
OTHERS = [answer("health", "same", 0, 0, 0), answer("stability", "same", 0, 0, 0)]


def against(*answers, unlike=(), terms=None):
    """Hold one canary against as many good runs as lists of answers are given."""
    found = []
    for place, each in enumerate(answers):
        one = pair(f"good/{place}", "canary", "worse", "said elsewhere", answers=[*each, *OTHERS], unlike=list(unlike))
        found.append(comparison([f"good/{place}", "canary"], "worse", "said elsewhere", [one], files=3))
    return gated(found, terms or GateTerms(), policy=None)


def test_every_question_of_a_comparison_has_its_word_in_the_terms_and_its_code():
    assert set(GATE_QUESTIONS) == set(questions())
    assert {question for group in QUESTION_GROUPS.values() for question in group} <= set(GATE_QUESTIONS)
    assert len({kind_of(question).code for question in GATE_QUESTIONS}) == len(GATE_QUESTIONS)


def test_a_canary_that_is_no_worse_passes():
    found = against([NOISE], [NOISE])
    assert (found.gate.outcome, found.gate.reasons, found.word) == ("passed", [], "within_noise")
    assert found.subjects == ["good/0", "good/1", "canary"]
    assert found.files == 6
    assert "final loss" in found.verdict


@pytest.mark.parametrize(("worse", "good", "outcome"), [(1, 0, "failed"), (1, 1, "passed"), (2, 1, "failed"), (1, 2, "passed")])
def test_worse_counts_against_more_than_half_of_the_good_runs(worse, good, outcome):
    found = against(*[[WORSE]] * worse, *[[NOISE]] * good)
    assert found.gate.outcome == outcome
    excused = [each.excused for one in found.pairs for each in one.answers if each.word == "worse"]
    assert all(excused) is (outcome == "passed")


def test_a_failure_says_what_by_how_much_and_against_how_many():
    found = against([WORSE], [WORSE], [NOISE])
    assert found.verdict.startswith("canary does not pass against 3 good runs: final loss: final_loss is worse: 2.0 and 2.2")
    assert "against 2 of 3 good runs" in found.verdict


def test_questions_that_the_terms_do_not_name_do_not_count():
    assert against([NOISE, SPEED]).gate.outcome == "passed"
    assert against([NOISE, SPEED], terms=GateTerms(questions=("loss", "speed"))).gate.outcome == "failed"
    found = against([WORSE], terms=GateTerms(questions=("health",)))
    assert found.gate.outcome == "passed"
    assert found.pairs[0].answers[0].excused == "the gate does not ask this question"


@pytest.mark.parametrize(("severity", "outcome"), [("sev2", "passed"), ("sev1", "failed")])
def test_a_finding_that_is_only_to_be_investigated_fails_no_gate(severity, outcome):
    gained = [Finding(code="A1", name="a", severity=severity, message="a")]
    one = pair("good", "canary", "worse", "x", answers=[NOISE, answer("health", "worse", 0, 1, 0)], gained=gained)
    found = gated([comparison(["good", "canary"], "worse", "x", [one])], GateTerms(), policy=None)
    assert found.gate.outcome == outcome
    assert bool(found.pairs[0].answers[1].excused) is (outcome == "passed")


@pytest.mark.parametrize(("allowed", "outcome"), [("10%", "passed"), ("5%", "failed"), (0.1, "passed"), (0.05, "failed")])
def test_an_allowance_is_a_share_or_a_number_of_the_unit(allowed, outcome):
    found = against([NOISE, SPEED], terms=GateTerms(questions=("loss", "speed"), allow={"speed": allowed}))
    assert found.gate.outcome == outcome


def test_an_allowance_of_a_group_holds_for_its_questions_and_their_own_goes_first():
    assert against([WORSE], terms=GateTerms(allow={"loss": "10%"})).gate.outcome == "passed"
    assert against([WORSE], terms=GateTerms(allow={"loss": "20%", "final_loss": "1%"})).gate.outcome == "failed"


def test_no_allowance_covers_a_value_that_is_no_number():
    broken = replace(WORSE, right="NaN")
    assert against([broken], terms=GateTerms(allow={"loss": "1000%"})).gate.outcome == "failed"


VOID = replace(NOISE, word="incomparable", message="the tokenizers differ")


@pytest.mark.parametrize(("word", "outcome"), [("error", "incomparable"), ("fail", "failed"), ("pass", "passed")])
def test_what_cannot_be_compared_is_an_error_unless_the_terms_say_otherwise(word, outcome):
    found = against([VOID], terms=GateTerms(incomparable=word))
    assert found.gate.outcome == outcome
    assert found.gate.reasons == ["final loss: the tokenizers differ"]
    assert "the tokenizers differ" in found.verdict


def test_one_answer_is_enough_where_another_good_run_cannot_be_compared():
    assert against([VOID], [NOISE]).gate.outcome == "passed"
    assert against([VOID], [WORSE]).gate.outcome == "failed"


def test_a_canary_that_hides_what_a_good_run_records_does_not_pass():
    hidden = answer("validation_loss", "not_recorded", 2.0, None, message="the canary does not record val_loss")
    assert against([NOISE, hidden]).gate.outcome == "incomparable"
    nobody = replace(hidden, left=None)
    found = against([NOISE, nobody])
    assert found.gate.outcome == "passed"
    assert "validation loss" in found.notes[0]
    assert "validation loss" not in found.verdict


RATE = Unlike(name="config.learning_rate", kind="config", left="0.1", right="0.2", message="The rate differs.")
DEVICE = Unlike(name="environment.device", kind="environment", left="cpu", right="cuda", message="The machine differs.")


@pytest.mark.parametrize(
    ("expect", "outcome"), [(None, "passed"), ([], "incomparable"), (["config.*"], "passed"), (["data.*"], "incomparable")]
)
def test_with_a_list_of_expected_differences_any_other_voids_the_comparison(expect, outcome):
    found = against([NOISE], unlike=[RATE, DEVICE], terms=GateTerms(expect=expect))
    assert found.gate.outcome == outcome
    assert found.gate.expected == (["config.learning_rate"] if expect == ["config.*"] else [])
    assert ("config.learning_rate was not expected" in found.verdict) is (outcome == "incomparable")


SEED = Unlike(name="seed", kind="config", left="1", right="2", message="Another seed.")
ORDER = Unlike(name="data_order", kind="data", left="x", right="y", message="Other batches.")
PLAN = Unlike(name="planned_learning_rate", kind="config", left="x", right="y", message="Another plan.")


@pytest.mark.parametrize(
    ("unlike", "outcome"),
    [
        ([RATE, SEED, ORDER, PLAN], "passed"),
        ([SEED, ORDER], "passed"),
        ([RATE, ORDER], "incomparable"),
        ([SEED, PLAN], "incomparable"),
    ],
)
def test_a_seed_need_not_be_expected_nor_what_follows_from_it_or_from_what_is(unlike, outcome):
    found = against([NOISE], [NOISE], unlike=unlike, terms=GateTerms(expect=["config.learning_rate"]))
    assert found.gate.outcome == outcome


@pytest.mark.parametrize(
    ("code", "unlike", "outcome"),
    [
        ("SYS006", [], "passed"),
        ("MOVE001", [], "failed"),
        ("MOVE001", [Unlike(name="tensors.dtype", kind="precision", message="bfloat16")], "passed"),
        ("LOSS002", [Unlike(name="tensors.dtype", kind="precision", message="bfloat16")], "failed"),
    ],
)
def test_findings_on_the_clock_and_of_a_coarser_format_are_left_to_speed_and_loss(code, unlike, outcome):
    gained = [Finding(code=code, name="a", severity="sev1", message="a")]
    one = pair("good", "canary", "worse", "x", answers=[NOISE, answer("health", "worse", 0, 1, 0)], gained=gained, unlike=unlike)
    assert gated([comparison(["good", "canary"], "worse", "x", [one])], GateTerms(), policy=None).gate.outcome == outcome


def test_worse_goes_before_what_nobody_can_tell():
    assert against([WORSE, replace(VOID, question="validation_loss")]).gate.outcome == "failed"


def test_without_any_answer_nothing_passes():
    nothing = [comparison(["good", "canary"], "not_recorded", "x", [pair("good", "canary", "not_recorded", "x")])]
    assert gated(nothing, GateTerms(), policy=None).gate.outcome == "incomparable"


def test_what_a_good_run_records_and_the_canary_does_not_stays_open():
    found = against([NOISE, answer("validation_loss", "not_recorded", 2.0, None, None, "nats")])
    assert found.gate.outcome == "incomparable"
    assert found.gate.reasons[0].startswith("validation loss: ")
    assert against([NOISE, answer("validation_loss", "not_recorded", None, None, None, "nats")]).gate.outcome == "passed"
