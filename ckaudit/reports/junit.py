"""JUnit XML: a suite per code with its check as the test case, for continuous integration that draws tests."""

import re
from collections.abc import Iterator

from ckaudit.contract.schema.report import Check, Finding, Report, Suppressed
from ckaudit.reports import words
from ckaudit.reports.escape import visible
from ckaudit.reports.report_sections import policy_sentences, suppressed_of, why_suppressed
from ckaudit.reports.view import PLAIN, View

# XML 1.0 allows no other characters (section 2.2), not even as references.
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report, view: View = PLAIN) -> str:
    """Return `report` as JUnit XML; times are left out, so that equal reports give equal bytes."""
    cases = [*report.checks, *_uncatalogued(report)]
    findings: dict[str, list[Finding]] = {}
    for finding in report.findings:
        findings.setdefault(finding.code, []).append(finding)
    sentences = policy_sentences(report)
    failed = sum(check.outcome == "failed" for check in cases)
    errors = sum(check.outcome == "error" for check in cases)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    name = _attribute(f"ckaudit {report.command} {report.subject}")
    tests = len(cases) + bool(sentences) + len(report.vital)
    lines.append(f'<testsuites name={name} tests="{tests}" failures="{failed}" errors="{errors}">')
    for check in cases:
        lines += _suite(check, findings.get(check.code, []), suppressed_of(report, check.code), view)
    lines += _policy_suite(sentences)
    lines += _vital(report)
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _uncatalogued(report: Report) -> Iterator[Check]:
    """Yield a failed check for each finding's code that no check of the report carries."""
    known = {check.code for check in report.checks}
    for severity, code, name, count in words.by_code(report.findings):
        if code not in known:
            known.add(code)
            yield Check(code=code, name=name, title=name.replace("_", " "), severity=severity, outcome="failed", findings=count)


def _suite(check: Check, findings: list[Finding], suppressions: list[Suppressed], view: View) -> list[str]:
    """Return the lines of one suite: its counts and the one case in it."""
    body = _body(check, findings, suppressions, view)
    counts = f'failures="{int(check.outcome == "failed")}" errors="{int(check.outcome == "error")}"'
    skipped = int(body is not None and body.startswith("<skipped"))
    head = f'  <testsuite name={_attribute(check.code)} tests="1" {counts} skipped="{skipped}">'
    case = f"    <testcase classname={_attribute(check.code)} name={_attribute(f'{check.name}: {check.title}')}"
    inside = [f"{case}/>"] if body is None else [f"{case}>", f"      {body}", "    </testcase>"]
    return [head, *inside, "  </testsuite>"]


def _vital(report: Report) -> list[str]:
    """Return a suite of the vital checks: a case that is skipped is one that the record does not let anybody answer."""
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
    """Return a suite that tells of policy and baseline, which JUnit has no place for; it never fails."""
    if not sentences:
        return []
    case = '    <testcase classname="ckaudit" name="policy and baseline">'
    body = f"      <skipped message={_attribute('; '.join(sentences))}/>"
    head = '  <testsuite name="ckaudit" tests="1" failures="0" errors="0" skipped="1">'
    return [head, case, body, "    </testcase>", "  </testsuite>"]


def _body(check: Check, findings: list[Finding], suppressions: list[Suppressed], view: View) -> str | None:
    """Return what stands inside a case, or None for one that passed; a case is skipped where all its findings are accepted."""
    if check.outcome == "skipped":
        reason = (check.reason or "no reason given") + (f": {check.detail}" if check.detail else "")
        return f"<skipped message={_attribute(reason)}/>"
    if check.outcome == "error":
        return f'<error type="error" message={_attribute(check.detail or "the check broke")}/>'
    if check.outcome == "failed":
        return _failure(check, findings, suppressions, view)
    if suppressions:
        reasons = ", ".join(dict.fromkeys(why_suppressed(suppressed) for suppressed in suppressions))
        message = f"{words.plural(len(suppressions), 'finding')} accepted: {reasons}"
        return f"<skipped message={_attribute(message)}/>"
    return None


def _failure(check: Check, findings: list[Finding], suppressions: list[Suppressed], view: View) -> str:
    """Return the failure with the first finding as its message and the first `view.limit` of them as its text."""
    severity = findings[0].severity if findings else check.severity
    first = findings[0].message if findings else check.title
    message = first if len(findings) < 2 else f"{words.plural(len(findings), 'finding')}, first: {first}"
    shown = findings if view.verbose else findings[: view.limit]
    lines = [_line(finding, view.base) for finding in shown]
    if len(findings) > len(shown):
        lines.append(f"... and {len(findings) - len(shown):,} more")
    if suppressions:
        lines.append(f"and {words.plural(len(suppressions), 'finding')} accepted")
    text = _escape("\n".join(lines))
    return f"<failure type={_attribute(severity)} message={_attribute(message)}>{text}</failure>"


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
