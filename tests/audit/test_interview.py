"""The verdict on readiness, findings weighed in, and what happens where a question breaks."""

from pathlib import Path

import msgspec
import pytest

from ckaudit.audit import triage
from ckaudit.audit.autopsy import autopsy
from ckaudit.audit.interview import answer, broken, interview
from ckaudit.audit.readiness import readiness
from ckaudit.contract.interview import Answer, Phase
from ckaudit.contract.report import Finding
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.questions.question import Question, Said
from tests.cases import run_of

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
LOSS = {"train_loss_raw": {"steps": "1..100", "value": 3.0, "to": 1.0}}
SPIKE = Finding(code="LOSS001", name="loss_spike", severity="sev1", message="the loss jumps", first_step=40)


def told(**words):
    return [
        Answer(id=row.replace("_", "."), question="?", word=word, sentence="") for row, word in words.items()
    ]  # fmt: skip


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
    return Said(word="good", sentence="it falls", numbers={"nan": float("nan")})


def made(function, rules=()):
    return Question("D9.9", 1, "Does it?", (train_loss_raw,), (), rules, "Does it?", "does_it", function)


def test_a_question_that_breaks_is_no_answer_and_makes_the_audit_incomplete():
    found = answer(made(breaks), run_of({"name": "a", "scalars": LOSS}), [], [])
    assert (found.word, found.sentence) == ("not_recorded", "the question broke: ZeroDivisionError: no more")
    (check,) = broken([Phase(number=1, title="t", answers=[found])])
    assert (check.code, check.outcome) == ("D9.9", "error")


@pytest.mark.parametrize(("severity", "word"), [("sev0", "bad"), ("sev1", "bad"), ("sev2", "watch"), ("note", "good")])
def test_no_answer_is_better_than_the_finding(severity, word):
    finding = msgspec.structs.replace(SPIKE, severity=severity)
    found = answer(made(well, ("loss_spike",)), run_of({"name": "a", "scalars": LOSS}), [finding], [])
    assert found.word == word
    assert found.findings == ([] if severity == "note" else ["LOSS001"])
    assert found.numbers == {"nan": "NaN"}


def test_other_findings_are_counted_apart_from_the_other_places_of_the_first():
    folded = msgspec.structs.replace(SPIKE, message="w gets no gradient (and 4 more)")
    found = answer(made(well, ("loss_spike",)), run_of({"name": "a", "scalars": LOSS}), [folded, SPIKE, SPIKE], [])
    assert found.sentence == "LOSS001 from step 40: w gets no gradient (and 4 more), and 2 other findings. It falls"


def test_a_finding_of_another_rule_does_not_bear():
    found = answer(made(well, ("overfitting",)), run_of({"name": "a", "scalars": LOSS}), [SPIKE], [])
    assert (found.word, found.sentence) == ("good", "it falls")


def test_a_finding_counts_where_the_series_are_missing():
    found = answer(made(well, ("loss_spike",)), run_of({"name": "a"}), [SPIKE], [])
    assert (found.word, found.missing) == ("bad", ["train_loss_raw"])


def test_the_run_is_quoted_in_commands_that_a_shell_would_split():
    (phase,) = interview(run_of({"name": "my runs/a", "scalars": LOSS}), [1], [], [], step=7)
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
