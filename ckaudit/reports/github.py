"""GitHub workflow commands: one annotation per diagnosis and finding, shown by the runner next to the change.

The format and its escapes are those of actions/toolkit, packages/core/src/command.ts.
"""

from ckaudit.contract.schema.report import Diagnosis, Finding, Report
from ckaudit.reports import words
from ckaudit.reports.escape import visible
from ckaudit.reports.report_sections import policy_sentences
from ckaudit.reports.view import PLAIN, View


def render(report: Report, view: View = PLAIN) -> str:
    """Return `report` as workflow commands, most severe first; GitHub shows ten of a kind per step."""
    lines = [_diagnosis(diagnosis) for diagnosis in report.diagnoses]
    lines += [_finding(finding, view.base) for finding in report.findings]
    lines += [
        _command("error", {"title": f"{check.code} broke"}, [check.detail or "no detail"])
        for check in words.broken_checks(report.checks)
    ]
    if notes := [*words.advice(report), *policy_sentences(report), *report.notes]:
        lines.append(_command("notice", {"title": f"{report.tool}: how it was judged"}, notes))
    if words.is_limited(report) or not (report.findings or report.diagnoses or words.broken_checks(report.checks)):
        sentences = [sentence for sentence in (report.verdict, words.not_judged(report)) if sentence]
        lines.insert(0, _command("notice", {"title": report.tool}, sentences))
    return "\n".join(lines) + "\n"


def _diagnosis(diagnosis: Diagnosis) -> str:
    """Return the annotation of a cause: its symptoms, what to change first, where to look."""
    since = "" if diagnosis.first_step is None else f" since step {diagnosis.first_step}"
    title = f"{diagnosis.cause}{since} ({words.standing(diagnosis)})"
    lines = [diagnosis.symptom, f"first: {diagnosis.knob}", f"inspect: {diagnosis.inspect}"]
    return _command(words.level(diagnosis.severity), {"title": title}, lines)


def _finding(finding: Finding, base: str) -> str:
    """Return the annotation of a finding, at its file and line if it has them."""
    file = words.located(finding, base)
    properties = {"title": f"{finding.code} {finding.name}"}
    if file is not None:
        properties = {"file": file, "line": str(finding.line or 1), **properties}
    details = [
        f"{label}: {text}"
        for label, text in (
            ("when", words.interval(finding)),
            ("at", finding.pointer),
            ("expected", finding.expected),
            ("found", finding.found),
            ("help", finding.help),
        )
        if text
    ]
    is_named = finding.where is None or finding.group is not None or finding.where in finding.message
    place = "" if is_named else f"{finding.where}: "
    return _command(words.level(finding.severity), properties, [place + finding.message, *details])


def _command(level: str, properties: dict[str, str], lines: list[str]) -> str:
    """Return one workflow command.

    Args:
        level: error, warning or note; GitHub calls a note a notice.
        properties: File, line and title, in the order in which they are written.
        lines: Lines of the message; in a command they are joined by an escaped line feed.
    """
    name = "notice" if level == "note" else level
    # A comma or a colon would end a property.
    fields = ",".join(f"{key}={_data(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in properties.items())
    return f"::{name} {fields}::" + "%0A".join(_data(line) for line in lines)


def _data(text: str) -> str:
    """Return `text` as a message: once controls are visible, only the per cent sign needs escaping."""
    return visible(text).replace("%", "%25")
