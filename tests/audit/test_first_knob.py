"""Where no cause stands out, the playbook's row of the finding says what to change first and where to look."""

from ckaudit.audit.response_plan import KNOBS, PLACES, advice_on, advised
from ckaudit.contract.schema.report import Diagnosis, Finding, Severity
from ckaudit.rules import rules
from ckaudit.rules.rule import Rule
from tests.loops import for_each


@for_each("rule", rules().values())
def test_every_rule_has_a_knob_and_a_place_to_look(rule: Rule) -> None:
    row = advice_on(rule)
    assert row is not None
    assert row.knob.endswith((".", "..."))
    assert row.inspect.endswith(".")
    assert len(row.knob) > 15
    assert len(row.inspect) > 10


def test_no_knob_is_of_a_rule_that_is_gone() -> None:
    assert set(KNOBS) | set(PLACES) <= {rule.name for rule in rules().values()}


def test_frequent_clipping_has_the_knob_of_its_row() -> None:
    row = advice_on(next(rule for rule in rules().values() if rule.code == "CLIP001"))
    assert row is not None
    assert row.knob.startswith("Find that tensor")


def _finding(code: str, severity: Severity = "sev1", help: str | None = None) -> Finding:  # noqa: A002  the field's name
    return Finding(code=code, name="x", severity=severity, message="m", help=help)


def _diagnosis(code: str, confidence: float) -> Diagnosis:
    return Diagnosis(
        cause="c",
        title="C.",
        confidence=confidence,
        severity="sev1",
        symptom="s",
        knob="k",
        inspect="i",
        runbook="r",
        evidence=[],
        explains=[code],
    )


def test_only_what_no_likely_cause_explains_is_advised() -> None:
    found = [_finding("LOSS001"), _finding("LOSS004"), _finding("CLIP001", "note"), _finding("ACT001", help="own words")]
    likely, guess, note, own = advised(found, [_diagnosis("LOSS001", 0.5), _diagnosis("LOSS004", 0.49)])
    assert likely.help is None
    assert note.help is None
    assert own.help == "own words"
    assert guess.help is not None
    assert "learning rate" in guess.help
    assert "Where to inspect:" in guess.help


def test_a_finding_of_no_rule_is_left_as_it_is() -> None:
    assert advised([_finding("X999")], []) == [_finding("X999")]
