"""One finding or cause of a report in detail: all its numbers, the reasons, and what to do."""

from collections.abc import Iterator

from ckaudit.contract.schema.report import Check, Diagnosis, Finding, Report
from ckaudit.errors import UsageError
from ckaudit.reports import words
from ckaudit.reports.escape import visible
from ckaudit.wording import first_names

MAX_FINDINGS = 8
MAX_PLACES = 20


def details_of(report: Report, name: str) -> str:
    """Return everything a report has on a code, an illness or a cause; for a check that found nothing, its outcome.

    Raises:
        UsageError: If the report has nothing of that name.
    """
    key = name.strip().casefold()
    findings = [finding for finding in report.findings if key in (finding.code.casefold(), finding.name.casefold())]
    causes = [diagnosis for diagnosis in report.diagnoses if diagnosis.cause == key]
    codes = {finding.code for finding in findings}
    checks = [check for check in report.checks if key in (check.code.casefold(), check.name.casefold())]
    if not (findings or causes or checks):
        names = [
            *dict.fromkeys(finding.code for finding in report.findings),
            *(diagnosis.cause for diagnosis in report.diagnoses),
        ]
        hint = f"There is {first_names(names, 12)}." if names else "It has no finding; explain says what a name means."
        raise UsageError(f"the report has no finding and no cause {name!r}", hint=hint)
    if not (findings or causes):
        return "".join(f"{_outcome(check)}\n" for check in checks)
    causes = causes or [diagnosis for diagnosis in report.diagnoses if codes & set(diagnosis.explains)]
    lines = [line for finding in findings[:MAX_FINDINGS] for line in _finding(finding)]
    if len(findings) > MAX_FINDINGS:
        lines.append(f"and {len(findings) - MAX_FINDINGS:,} more of {findings[0].code}")
    lines += [line for diagnosis in causes for line in _cause(diagnosis)]
    if findings and not causes:
        lines.append("no known cause explains it")
    return "".join(f"{visible(line)}\n" for line in lines)


def _finding(finding: Finding) -> Iterator[str]:
    """Yield what was found, and its numbers and places."""
    where = words.located(finding) or finding.group or finding.where or ""
    line = f":{finding.line}" if finding.file and finding.line else ""
    yield f"{finding.severity} {finding.code} {finding.name}, " + ", ".join(
        part for part in (words.interval(finding), where + line) if part
    )
    yield f"  {finding.message}"
    numbers = [
        f"{label} {words.number(value)}"
        for label, value in (("value", finding.value), ("limit", finding.limit))
        if value is not None
    ]
    if numbers:
        yield f"  {', '.join(numbers)}" + (f" {finding.unit}" if finding.unit not in (None, "1") else "")
    for label, text in (
        ("at", finding.pointer),
        ("expected", finding.expected),
        ("found", finding.found),
        ("help", finding.help),
    ):
        if text:
            yield f"  {label}: {text}"
    if finding.also:
        yield f"  also {first_names(finding.also, MAX_PLACES)}"
    if finding.path:
        yield f"  path: {words.path_line(finding.path, unicode=False)}"


def _cause(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield how likely a cause is, each reason with its weight in log odds, and what to do."""
    yield f"cause {diagnosis.cause} ({words.standing(diagnosis)}): {diagnosis.title}"
    for evidence in diagnosis.evidence:
        side = "for" if evidence.weight >= 0 else "against"
        yield f"  {side} ({evidence.weight:+.1f}): {evidence.sentence}"
    yield f"  explains: {', '.join(dict.fromkeys(diagnosis.explains))}"
    yield f"  first knob: {diagnosis.knob}"
    yield f"  look at: {diagnosis.inspect}"
    yield f"  runbook: {diagnosis.runbook}"


def _outcome(check: Check) -> str:
    """Return the outcome of a check that found nothing: skipped is not passed."""
    reason = f" ({(check.reason or '').replace('_', ' ')})" if check.reason else ""
    detail = f": {check.detail}" if check.detail else ""
    return visible(f"{check.code} {check.name}: {check.outcome}{reason}{detail}. {check.title}")
