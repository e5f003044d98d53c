"""Every rule against its case file: recordings in, verdicts out."""

import math
from pathlib import Path

import msgspec
import pytest

from ckaudit.audit.judge import apply_rules
from ckaudit.contract.schema.report import Finding
from ckaudit.rules import rules
from tests import case_verdicts
from tests.cases import Case, load
from tests.loops import check_each

FILES = sorted((Path(__file__).parent / "rules").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rule_gives_what_its_cases_expect(path: Path) -> None:
    known, (head, cases) = case_verdicts.recorded(path), load(path)
    assert list(known) == [case.name for case in cases], case_verdicts.__doc__
    check_each(cases, lambda case: _check(head["rule"], case, known[case.name]), name="case")


def _check(code: str, case: Case, known: str) -> None:
    judgement = apply_rules(case.run, [rules()[code]])
    (check,) = judgement.checks
    assert case_verdicts.of_rule(check, judgement.findings) + case_verdicts.rule_variants(code, case) == known
    assert check.outcome != "error", check.detail
    assert check.reason == case.skip, check
    assert msgspec.json.encode(judgement), "what a rule gives can be written"
    found = sorted(judgement.findings, key=_order)
    assert len(found) == len(case.expect), [finding.message for finding in found]
    for finding, expected in zip(found, sorted(case.expect, key=_expected_order), strict=True):
        actual = {
            "severity": finding.severity,
            "where": finding.where,
            "first": finding.first_step,
            "last": finding.last_step,
            "worst": finding.worst_step,
            "points": finding.points,
            "also": finding.also,
        }
        numbers = {"value": float(finding.value or 0), "limit": float(finding.limit or 0)}
        assert expected.keys() <= actual.keys() | numbers.keys() | {"says"}
        assert expected.get("says", "") in finding.message, finding.message
        assert {key: actual[key] for key in expected if key in actual} == {
            key: expected[key] for key in expected if key in actual
        }
        for key in expected.keys() & numbers.keys():
            assert math.isclose(numbers[key], expected[key], rel_tol=1e-3)


def _order(finding: Finding) -> tuple[int, str, str]:
    return finding.first_step or 0, finding.where or "", finding.severity


def _expected_order(expected: dict[str, object]) -> tuple[object, ...]:
    return expected.get("first", 0), expected.get("where", ""), expected["severity"]
