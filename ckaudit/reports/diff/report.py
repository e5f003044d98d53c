"""A comparison as a `ck.report.v1` report, for the formats that show findings: a check per question, a finding per bad answer."""

from collections.abc import Iterator
from typing import Any, Literal

from msgspec.structs import replace

from ckaudit.contract.schema.diff import BAD_WORDS, OPEN_WORDS, Answer, Comparison, Departure
from ckaudit.contract.schema.report import SEVERITIES, VERSION, Check, Finding, Report, Severity, gravest
from ckaudit.contract.violations import ViolationKind
from ckaudit.diff.catalogue import GATE, PARTING, UNLIKE, kind_of
from ckaudit.reports.diff import sentences as say


def report_of(comparison: Comparison) -> Report:
    """Return a comparison as findings and checks.

    A worse or different answer has the severity of its question's kind; one that a gate excuses is a note, and if the gate
    passes, everything passes. Whether the gate passes is a check of its own. Questions that cannot be answered are skipped
    checks; a difference that causes this is a finding of its own.
    """
    unsorted = _once(comparison, _findings(comparison))
    if comparison.gate is not None and comparison.gate.outcome == "passed":
        unsorted = [replace(finding, severity="note") for finding in unsorted]
    findings = sorted(unsorted, key=lambda finding: (SEVERITIES.index(finding.severity), finding.code))
    return Report(
        schema_version=VERSION,
        tool=comparison.tool,
        command=comparison.command,
        subject=" ".join(comparison.subjects),
        verdict=comparison.verdict,
        severity=gravest(finding.severity for finding in findings),
        findings=findings,
        checks=sorted(_checks(comparison, findings), key=lambda check: check.code),
        notes=[*(comparison.gate.reasons if comparison.gate else ()), *comparison.notes],
        files=comparison.files,
    )


def _findings(comparison: Comparison) -> Iterator[Finding]:
    """Yield what is worse, different or prevents a comparison, pair by pair."""
    for pair in comparison.pairs:
        of = f"{pair.right} against {pair.left}: " if len(comparison.pairs) > 1 else ""
        answered = [answer for answer in pair.answers if answer.word in BAD_WORDS]
        for answer in answered:
            kind = kind_of(answer.question)
            excuse = f" (does not count: {answer.excused})" if answer.excused else ""
            yield _finding(
                kind,
                of + answer.message + excuse,
                "note" if answer.excused else kind.severity,
                first_step=pair.parting and pair.parting.step,
                value=answer.right,
                limit=answer.left,
                unit=answer.unit,
            )
        if pair.parting is not None and not answered and pair.word in BAD_WORDS:
            yield _parting(pair.parting, of)
        for unlike in pair.unlike:
            if say.questions_voided(unlike, pair):
                severity: Severity = "sev2" if pair.word == "incomparable" else "note"
                yield _finding(UNLIKE, of + unlike.message, severity, where=unlike.name, expected=unlike.left, found=unlike.right)


def _once(comparison: Comparison, findings: Iterator[Finding]) -> list[Finding]:
    """Return findings; for a gate with several good runs, one of each kind, preferring those that count."""
    if comparison.gate is None:
        return list(findings)
    by_code: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)):
        by_code.setdefault(finding.code, finding)
    return list(by_code.values())


def _parting(first: Departure, of: str) -> Finding:
    return _finding(
        PARTING,
        of + first.message,
        PARTING.severity,
        where=say.place(first),
        first_step=first.step,
        value=first.right,
        limit=first.left,
        unit=first.unit,
    )


def _finding(kind: ViolationKind, message: str, severity: Severity, **fields: Any) -> Finding:
    return Finding(code=kind.code, name=kind.name, severity=severity, message=message, help=kind.help, **fields)


def _checks(comparison: Comparison, findings: list[Finding]) -> Iterator[Check]:
    """Yield a check for each kind of question, one for whether the runs are comparable, and one for a gate."""
    answers: dict[str, list[Answer]] = {}
    for pair in comparison.pairs:
        for answer in pair.answers:
            answers.setdefault(kind_of(answer.question).code, []).append(answer)
    counts = {code: sum(finding.code == code for finding in findings) for code in {finding.code for finding in findings}}
    for code, group in answers.items():
        yield _check(kind_of(group[0].question), group, counts.get(code, 0))
    for kind in (PARTING, UNLIKE):
        if kind.code in counts:
            yield _check_of(kind, "failed", counts[kind.code])
        elif kind is UNLIKE and comparison.pairs:
            yield _check_of(kind, "passed", 0)
    if comparison.gate is not None:
        passes = comparison.gate.outcome == "passed"
        yield replace(_check_of(GATE, "passed" if passes else "failed", 0), detail=comparison.verdict)


def _check(kind: ViolationKind, answers: list[Answer], count: int) -> Check:
    """Return the check for one question, skipped if no pair has an answer."""
    if count:
        return _check_of(kind, "failed", count)
    if all(answer.word in OPEN_WORDS for answer in answers):
        missing = all(answer.word == "not_recorded" for answer in answers)
        return Check(
            code=kind.code,
            name=kind.name,
            title=kind.title,
            severity=kind.severity,
            outcome="skipped",
            reason="not_recorded" if missing else "not_mergeable",
            detail=answers[0].message,
        )
    return _check_of(kind, "passed", 0)


def _check_of(kind: ViolationKind, outcome: Literal["passed", "failed"], count: int) -> Check:
    return Check(code=kind.code, name=kind.name, title=kind.title, severity=kind.severity, outcome=outcome, findings=count)
