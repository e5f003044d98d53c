"""Sentences that all renderers share: numbers, intervals of steps, counts, confidence."""

from collections import Counter
from collections.abc import Iterable

from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.report import SEVERITIES, Check, Diagnosis, Finding, Report, Severity
from ckaudit.wording import plural

LIKELIHOOD = ((0.90, "very likely"), (0.66, "likely"), (0.33, "as likely as not"), (0.10, "unlikely"), (0.0, "very unlikely"))


def number(value: Number, *, digits: int = 4) -> str:
    """Return `value` with `digits` significant digits; an integer that a float holds exactly stays an integer.

    >>> number(0.000123456), number(1200.0), number(4915200.0), number("NaN")
    ('0.0001235', '1200', '4,915,200', 'NaN')
    """
    if isinstance(value, str):
        return value
    if float(value).is_integer() and abs(value) < 2**53:
        return f"{int(value):,}" if abs(value) >= 1e6 else str(int(value))
    return f"{value:.{digits}g}"


def likelihood(confidence: float) -> str:
    """Return confidence in words and as a number.

    The words and their bounds are those of the IPCC likelihood scale (Mastrandrea et al. 2010, AR5 guidance note, table 1).

    >>> likelihood(0.87)
    'likely, 0.87'
    """
    word = next(word for bound, word in LIKELIHOOD if confidence >= bound)
    return f"{word}, {confidence:.2f}"


def standing(diagnosis: Diagnosis) -> str:
    """Return how likely a cause is, and whether it may just be a consequence of the first."""
    return likelihood(diagnosis.confidence) + ("; may follow from cause 1" if diagnosis.may_follow else "")


def interval(finding: Finding) -> str:
    """Return the steps of a finding, or an empty string if it has none.

    >>> interval(Finding(code="A", name="a", severity="note", message="", first_step=5, last_step=9, worst_step=7))
    'steps 5-9, worst 7'
    """
    first, last, worst = finding.first_step, finding.last_step, finding.worst_step
    if first is None:
        return "" if worst is None else f"step {worst}"
    if last is None or last == first:
        return f"step {first}"
    return f"steps {first}-{last}" + (f", worst {worst}" if worst is not None and worst not in (first, last) else "")


def unexplained(report: Report) -> list[Finding]:
    """Return the findings that no diagnosis explains."""
    explained = {code for diagnosis in report.diagnoses for code in diagnosis.explains}
    return [finding for finding in report.findings if finding.code not in explained]


def rest_title(report: Report) -> str:
    """Return the heading for the findings that no diagnosis explains: notes need none."""
    only_notes = all(finding.severity == "note" for finding in unexplained(report))
    return "Findings" if not report.diagnoses else "Also noted" if only_notes else "Not explained by these"


def by_severity(findings: Iterable[Finding]) -> str:
    """Return counts, most severe first, such as `3 sev1, 1 note`."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(f"{counts[severity]:,} {severity}" for severity in SEVERITIES if counts[severity])


def by_code(findings: Iterable[Finding]) -> list[tuple[Severity, str, str, int]]:
    """Return severity, code, name and count of each kind of finding, most severe first, then by code."""
    counts = Counter((SEVERITIES.index(finding.severity), finding.code, finding.name) for finding in findings)
    return [(SEVERITIES[rank], code, name, count) for (rank, code, name), count in sorted(counts.items())]


def skipped(report: Report) -> list[tuple[str, list[Check]]]:
    """Return the checks that were not judged, grouped by reason, the most common reason first."""
    groups: dict[str, list[Check]] = {}
    for check in report.checks:
        if check.outcome == "skipped":
            groups.setdefault((check.reason or "no reason given").replace("_", " "), []).append(check)
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


def not_judged(report: Report) -> str:
    """Return one sentence on what was skipped, or an empty string."""
    groups = skipped(report)
    if not groups:
        return ""
    count = sum(len(checks) for _, checks in groups)
    reasons = ", ".join(f"{len(checks)} {reason}" for reason, checks in groups)
    return f"{count} of {plural(len(report.checks), 'check')} not judged: {reasons}"


def advice(report: Report) -> list[str]:
    """Return what would let more vital checks judge, if one could not; empty if all applicable ones could."""
    return [f"to judge more: {report.to_judge_more}"] if report.judged != "all" and report.to_judge_more else []


def is_limited(report: Report) -> bool:
    """Tell whether a report found no illness while not every vital check could judge; notes do not count as illness."""
    return not report.is_ill and report.judged in ("limited", "nothing")


def limits(report: Report) -> list[str]:
    """Return a sentence for each vital check that could not judge."""
    return [
        f"{check.question} Not judged: {check.missing or 'not recorded'}"
        for check in report.vital
        if check.outcome == "not_judged"
    ]


def level(severity: Severity) -> str:
    """Return the word that SARIF and GitHub use for a severity: error, warning or note."""
    return {"sev0": "error", "sev1": "error", "sev2": "warning", "note": "note"}[severity]


def located(finding: Finding, base: str = "") -> str | None:
    """Return the file of a finding relative to the reader's working folder, or None if it has no file."""
    if finding.file is None:
        return None
    return f"{base.rstrip('/')}/{finding.file}" if base else finding.file


def path_line(path: list[str], *, unicode: bool) -> str:
    """Return a path from metric to kernel on one line.

    >>> path_line(["gradient_norm", "head.weight", "mm"], unicode=False)
    'gradient_norm -> head.weight -> mm'
    """
    return (" \N{RIGHTWARDS ARROW} " if unicode else " -> ").join(path)


def failing_severities(report: Report, fail_on: Severity | None = None) -> tuple[Severity, ...]:
    """Return the severities that fail: from `fail_on` up, or from that of the report's policy, else from sev1.

    For a comparison all answers that count fail, which are its findings except notes.
    """
    usual: Severity = "sev2" if report.command in ("diff", "gate") else "sev1"
    fails_from = fail_on or (report.policy and report.policy.fail_on) or usual
    return SEVERITIES[: SEVERITIES.index(fails_from) + 1]


def broken_checks(checks: Iterable[Check]) -> list[Check]:
    """Return the checks that broke instead of judging."""
    return [check for check in checks if check.outcome == "error"]
