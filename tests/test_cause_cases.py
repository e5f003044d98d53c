"""Every cause against its case file: a recording in, the first cause out."""

from pathlib import Path

import pytest

from ckaudit.audit import triage_run
from tests import case_verdicts
from tests.cases import Case, load
from tests.loops import check_each

FILES = sorted((Path(__file__).parent / "causes").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cause_ranks_as_its_cases_expect(path: Path) -> None:
    known, cases = case_verdicts.recorded(path), load(path)[1]
    assert list(known) == [case.name for case in cases], case_verdicts.__doc__
    check_each(cases, lambda case: _check(path.stem, case, known[case.name]), name="case")


def _check(cause: str, case: Case, known: str) -> None:
    report = triage_run(case.run)
    assert case_verdicts.of_cause(report.diagnoses) == known
    ranked = [diagnosis.cause for diagnosis in report.diagnoses]
    for expected in case.expect:
        assert expected.keys() <= {"first", "not_first", "absent", "knob", "says", "follows", "below", "named"}
        if "first" in expected:
            assert ranked[:1] == [expected["first"]], [(d.cause, d.confidence, d.evidence) for d in report.diagnoses]
        if "not_first" in expected:
            assert ranked[:1] != [expected["not_first"]]
        if "named" in expected:
            assert expected["named"] in ranked
        if "absent" in expected:
            assert expected["absent"] not in ranked
        if "knob" in expected:
            assert expected["knob"] in report.diagnoses[0].knob
        if "below" in expected:
            assert report.diagnoses[0].confidence < expected["below"]
        if "says" in expected:
            assert any(expected["says"] in each.sentence for each in report.diagnoses[0].evidence), report.diagnoses[0].evidence
        if "follows" in expected:
            assert [each.cause for each in report.diagnoses if each.may_follow == ranked[0]] == [expected["follows"]]
    if any(expected.get("first") == cause for expected in case.expect):
        diagnosis = report.diagnoses[0]
        assert diagnosis.evidence
        assert set(diagnosis.explains) <= {finding.code for finding in report.findings}
