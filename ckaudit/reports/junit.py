"""JUnit XML for continuous integration that displays tests: a suite per code, with its check as the test case.

A case fails like the command: if findings are as severe as `--fail-on`. Milder ones are in the output of a passing case.
"""

import re
from collections.abc import Collection, Iterator

from ckaudit.contract.schema.report import Check, Finding, Report, Severity, Suppressed
from ckaudit.reports import words
from ckaudit.reports.escape import visible
from ckaudit.reports.report_sections import policy_sentences, suppressed_of, why_suppressed
from ckaudit.reports.view import PLAIN, View
from ckaudit.wording import plural

# XML 1.0 allows no other characters (section 2.2), even as references.
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report, view: View = PLAIN) -> str:
    """Return `report` as JUnit XML; times are omitted, so that equal reports give equal bytes."""
    cases = [*report.checks, *_uncatalogued(report)]
    failing = words.failing_severities(report, view.fail_on)
    findings: dict[str, list[Finding]] = {}
    for finding in report.findings:
        findings.setdefault(finding.code, []).append(finding)
    sentences = policy_sentences(report)
    failed = sum(_fails(check, findings.get(check.code, []), failing) for check in cases)
    errors = sum(check.outcome == "error" for check in cases)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    name = _attribute(f"ckaudit {report.command} {report.subject}")
    tests = len(cases) + bool(sentences) + len(report.vital)
    lines.append(f'<testsuites name={name} tests="{tests}" failures="{failed}" errors="{errors}">')
    for check in cases:
        own = findings.get(check.code, [])
        body = _body(check, own, suppressed_of(report, check.code), view, fails=_fails(check, own, failing))
        lines += _suite(check, body)
    lines += _policy_suite(sentences)
    lines += _vital(report)
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _uncatalogued(report: Report) -> Iterator[Check]:
    """Yield a failed check for each finding whose code has no check in the report."""
    known = {check.code for check in report.checks}
    for severity, code, name, count in words.by_code(report.findings):
        if code not in known:
            known.add(code)
            yield Check(code=code, name=name, title=name.replace("_", " "), severity=severity, outcome="failed", findings=count)


def _fails(check: Check, findings: list[Finding], failing: Collection[Severity]) -> bool:
    """Return whether a check found something severe enough; if it has no findings but failed, the severity of its kind counts."""
    gravest = {finding.severity for finding in findings} or {check.severity}
    return check.outcome == "failed" and not gravest.isdisjoint(failing)


def _suite(check: Check, body: str | None) -> list[str]:
    """Return the lines of one suite: its counts and the one case in it."""
    kinds = {"failures": "<failure", "errors": "<error", "skipped": "<skipped"}
    counts = " ".join(f'{name}="{int(body is not None and body.startswith(start))}"' for name, start in kinds.items())
    head = f'  <testsuite name={_attribute(check.code)} tests="1" {counts}>'
    case = f"    <testcase classname={_attribute(check.code)} name={_attribute(f'{check.name}: {check.title}')}"
    inside = [f"{case}/>"] if body is None else [f"{case}>", f"      {body}", "    </testcase>"]
    return [head, *inside, "  </testsuite>"]


def _vital(report: Report) -> list[str]:
    """Return a suite of the vital checks: a skipped case is one that the recorded data cannot answer."""
    if not report.vital:
        return []
    lines = []
    for check in report.vital:
        case = f'    <testcase classname="vital" name={_attribute(f"{check.name}: {check.question}")}'
        reason = check.missing or check.outcome.replace("_", " ")
        detail = f"{reason}; {check.remedy}" if check.remedy else reason
        skipped = f"<skipped message={_attribute(detail)}/>"
        lines += [f"{case}/>"] if check.outcome == "judged" else [f"{case}>", f"      {skipped}", "    </testcase>"]
    count = sum(check.outcome != "judged" for check in report.vital)
    head = f'  <testsuite name="vital" tests="{len(report.vital)}" failures="0" errors="0" skipped="{count}">'
    return [head, *lines, "  </testsuite>"]


def _policy_suite(sentences: list[str]) -> list[str]:
    """Return a suite that describes policy and baseline, for which JUnit has no place; it never fails."""
    if not sentences:
        return []
    case = '    <testcase classname="ckaudit" name="policy and baseline">'
    body = f"      <skipped message={_attribute('; '.join(sentences))}/>"
    head = '  <testsuite name="ckaudit" tests="1" failures="0" errors="0" skipped="1">'
    return [head, case, body, "    </testcase>", "  </testsuite>"]


def _body(check: Check, findings: list[Finding], suppressions: list[Suppressed], view: View, *, fails: bool) -> str | None:
    """Return the content of a case, or None if it has no findings; it is skipped if all of them are accepted."""
    if check.outcome == "skipped":
        reason = (check.reason or "no reason given") + (f": {check.detail}" if check.detail else "")
        return f"<skipped message={_attribute(reason)}/>"
    if check.outcome == "error":
        return f'<error type="error" message={_attribute(check.detail or "the check broke")}/>'
    if fails:
        return _failure(check, findings, suppressions, view)
    if findings:
        severe = f"{findings[0].severity}, which does not fail:\n" if check.outcome == "failed" else ""
        return f"<system-out>{_escape(severe + _text(findings, suppressions, view))}</system-out>"
    if suppressions:
        reasons = ", ".join(dict.fromkeys(why_suppressed(suppressed) for suppressed in suppressions))
        message = f"{plural(len(suppressions), 'finding')} accepted: {reasons}"
        return f"<skipped message={_attribute(message)}/>"
    return None


def _failure(check: Check, findings: list[Finding], suppressions: list[Suppressed], view: View) -> str:
    """Return the failure with the first finding as its message."""
    severity = findings[0].severity if findings else check.severity
    first = findings[0].message if findings else check.detail or check.title
    message = first if len(findings) < 2 else f"{plural(len(findings), 'finding')}, first: {first}"
    text = _escape(_text(findings, suppressions, view))
    return f"<failure type={_attribute(severity)} message={_attribute(message)}>{text}</failure>"


def _text(findings: list[Finding], suppressions: list[Suppressed], view: View) -> str:
    """Return the first `view.limit` findings, one per line, and how many more there are."""
    shown = findings if view.verbose else findings[: view.limit]
    lines = [_line(finding, view.base) for finding in shown]
    if len(findings) > len(shown):
        lines.append(f"... and {len(findings) - len(shown):,} more")
    if suppressions:
        lines.append(f"and {plural(len(suppressions), 'finding')} accepted")
    return "\n".join(lines)


def _line(finding: Finding, base: str) -> str:
    """Return one finding as place, pointer, steps and message, two spaces between."""
    place = words.located(finding, base) or finding.where or ""
    if finding.line:
        place += f":{finding.line}"
    parts = [place, finding.pointer or "", words.interval(finding), finding.message]
    return visible("  ".join(part for part in parts if part))


def _attribute(text: str) -> str:
    """Return `text` as a quoted attribute value on one line."""
    return f'"{_escape(visible(text))}"'


def _escape(text: str) -> str:
    """Return `text` with markup escaped and characters that XML forbids replaced.

    >>> _escape('a < "b"')
    'a &lt; &quot;b&quot;'
    """
    legal = ILLEGAL.sub("?", text)
    return legal.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
