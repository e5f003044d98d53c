"""Markdown: a summary for a pull request or a job page, safe against any content of file names."""

from collections.abc import Iterator

from ckaudit.contract.schema.report import Diagnosis, Finding, Phase, Report
from ckaudit.reports import words
from ckaudit.reports.escape import code, escaped, visible
from ckaudit.reports.report_sections import (
    CHECKPOINT_HEAD,
    NUMBER_COLUMNS,
    checkpoint_rows,
    derived_numbers,
    policy_sentences,
    resume_checkpoints,
    why_suppressed,
)
from ckaudit.reports.terminal.charts import draw_curve
from ckaudit.reports.terminal.screen_text import badge
from ckaudit.reports.view import PLAIN, View
from ckaudit.wording import plural


def render(report: Report, view: View = PLAIN) -> str:
    """Return `report` as GitHub-flavoured Markdown."""
    blocks = [f"### ckaudit {escaped(report.command)}: **{badge(report)[0]}** {escaped(report.verdict)}"]
    blocks += loss(report)
    blocks += phases(report.interview)
    blocks += ["\n".join(_window(report))] if resume_checkpoints(report) else []
    blocks += ["\n".join(_diagnoses(report.diagnoses))] if report.diagnoses else []
    blocks += [_evidence(diagnosis) for diagnosis in report.diagnoses]
    findings = words.unexplained(report)
    if findings:
        blocks += [f"**{words.rest_title(report)}**"] if report.diagnoses else []
        blocks.append("\n".join(_findings(findings, view)))
    if report.response:
        blocks.append("\n".join(["**What to do now**", "", *(f"- {escaped(advice)}" for advice in report.response)]))
    blocks += [
        f"- {code(check.code)} broke: {escaped(check.detail or 'no detail')}" for check in words.broken_checks(report.checks)
    ]
    if numbers := derived_numbers(report):
        blocks.append("\n".join(f"- {code(name)}: {escaped(value)}" for name, value in numbers))
    notes = [*words.advice(report), *policy_sentences(report), *report.notes]
    blocks += ["\n".join(f"- {escaped(note)}" for note in notes)] if notes else []
    blocks += [_accepted(report, view)] if report.suppressed else []
    blocks.append("\n".join(f"<sub>{line}</sub>" for line in _footer(report)))
    return "\n\n".join(blocks) + "\n"


def loss(report: Report, *, width: int = 72) -> list[str]:
    """Return the loss as a code block, because Markdown in a pull request shows no inline SVG; for triage, why it is missing."""
    chart = next((chart for chart in report.charts if chart.name == "loss"), None)
    if chart is None:
        no_loss = "No loss was recorded: there is no curve to draw."
        return [no_loss] if report.command == "triage" and report.files else []
    steps = [diagnosis.first_step for diagnosis in report.diagnoses[:3]]
    lines = [visible(line).replace("`", "'") for line in draw_curve(chart, steps, width=width)]
    return ["\n".join(["```text", *lines, "```"])]


def _window(report: Report) -> Iterator[str]:
    """Yield the table of resume checkpoints."""
    yield f"| {' | '.join(CHECKPOINT_HEAD)} |"
    yield f"|{'|'.join('---:' if index in NUMBER_COLUMNS else '---' for index in range(len(CHECKPOINT_HEAD)))}|"
    for row in checkpoint_rows(resume_checkpoints(report)):
        yield f"| {' | '.join([*map(escaped, row[:-1]), code(row[-1])])} |"


def _diagnoses(diagnoses: list[Diagnosis]) -> Iterator[str]:
    """Yield the triage table, a row per cause."""
    yield "| what you see | likely cause | first knob | where to inspect |"
    yield "|---|---|---|---|"
    for diagnosis in diagnoses:
        cause = f"**{escaped(diagnosis.title)}** ({words.standing(diagnosis)})"
        seen = escaped(diagnosis.symptom)
        seen += "" if diagnosis.first_step is None else f"<br>{code(f'since step {diagnosis.first_step}')}"
        yield f"| {seen} | {cause} | {escaped(diagnosis.knob)} | {escaped(diagnosis.inspect)} |"


def _evidence(diagnosis: Diagnosis) -> str:
    """Return the reasons for one cause, folded away until a reader opens them."""
    head = f"<details><summary>Evidence for {escaped(diagnosis.cause)}</summary>"
    lines = [f"- {'for' if evidence.weight >= 0 else 'against'}: {escaped(evidence.sentence)}" for evidence in diagnosis.evidence]
    lines.append(f"- {code(diagnosis.cause)} explains {', '.join(code(name) for name in diagnosis.explains)}")
    return "\n".join([head, "", *lines, f"- runbook: {escaped(diagnosis.runbook)}", "", "</details>"])


def _findings(findings: list[Finding], view: View) -> Iterator[str]:
    """Yield the table of findings; only the first `view.limit` unless in verbose mode."""
    shown = findings if view.verbose else findings[: view.limit]
    yield "| severity | code | where | what |"
    yield "|---|---|---|---|"
    for finding in shown:
        yield f"| {finding.severity} | {code(finding.code)} | {_where(finding, view.base)} | {_what(finding)} |"
    if len(findings) > len(shown):
        yield f"\n... and {len(findings) - len(shown):,} more: {escaped(words.by_severity(findings))} in all"


def _accepted(report: Report, view: View) -> str:
    """Return the findings that do not count, folded away, each with its reason."""
    shown = report.suppressed if view.verbose else report.suppressed[: view.limit]
    findings = [(suppressed.finding, escaped(why_suppressed(suppressed))) for suppressed in shown]
    rows = [f"| {finding.severity} | {code(finding.code)} | {_where(finding, view.base)} | {why} |" for finding, why in findings]
    more = len(report.suppressed) - len(shown)
    head = f"<details><summary>Accepted: {plural(len(report.suppressed), 'finding')}</summary>"
    table = ["| severity | code | where | why |", "|---|---|---|---|", *rows]
    return "\n".join([head, "", *table, *(["", f"... and {more:,} more"] if more else []), "", "</details>"])


def _where(finding: Finding, base: str) -> str:
    """Return file and line, pointer, place and steps, one below the other in a cell."""
    file = words.located(finding, base)
    line = f":{finding.line}" if finding.line else ""
    parts = [
        f"{file}{line}" if file else "",
        finding.pointer or "",
        finding.group or finding.where or "",
        words.interval(finding),
    ]
    return "<br>".join(code(part) for part in parts if part) or "-"


def _what(finding: Finding) -> str:
    """Return the message, followed by what was expected and found."""
    details = [
        f"{label}: {escaped(value)}" for label, value in (("expected", finding.expected), ("found", finding.found)) if value
    ]
    return "<br>".join([escaped(finding.message), *details])


def _footer(report: Report) -> Iterator[str]:
    """Yield what was audited and counted, and what could not be judged."""
    counts = words.by_severity(report.findings) or "no findings"
    at = "" if report.step is None else f" at step {report.step}"
    yield f"{escaped(report.subject)}{at}: {counts}, {plural(report.files, 'file')} read, {escaped(report.tool)}"
    if sentence := words.not_judged(report):
        yield sentence


# The interview: for each phase a table, its verdict, and the commands that show more.
def phases(interview: list[Phase]) -> list[str]:
    """Return one block per phase, followed by its commands."""
    return ["\n".join(_phase(phase)) for phase in interview]


def _phase(phase: Phase) -> Iterator[str]:
    yield f"**Phase {phase.number}: {escaped(phase.title)}**\n"
    yield "| question | answer | what it rests on |"
    yield "|---|---|---|"
    for answer in phase.answers:
        word = "**bad**" if answer.word == "bad" else answer.word.replace("_", " ")
        yield f"| {code(answer.id)} {escaped(answer.question)} | {word} | {escaped(answer.sentence)} |"
    if phase.verdict:
        yield f"\n{escaped(phase.verdict)}"
    if phase.pointers:
        yield ""
    for pointer in phase.pointers:
        why = f" ({escaped(pointer.why)})" if pointer.why else ""
        yield f"- {code(pointer.id)} {escaped(pointer.question)} {code(pointer.command)}{why}"
