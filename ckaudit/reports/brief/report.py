"""An audit in under 400 tokens: the verdict, what is wrong since when, why, what to change first, and what was not judged."""

from collections import Counter
from collections.abc import Iterator, Sequence
from shlex import quote

from ckaudit.contract.schema.report import WORDS, Answer, Diagnosis, Finding, Report
from ckaudit.reports import words
from ckaudit.reports.brief.text_budget import MAX_SUBJECT, clipped, fitted
from ckaudit.reports.escape import visible
from ckaudit.reports.terminal.screen_text import abbreviate, badge
from ckaudit.reports.view import View
from ckaudit.wording import first_names, plural

MAX_CAUSES = 3


def render(report: Report, view: View) -> str:
    """Return the key facts of a report; the last line says where to find the rest."""
    return brief(report, base=view.base, more=commands(report))


def brief(report: Report, *, base: str = "", more: str) -> str:
    """Return the same summary with another last line.

    Args:
        report: The report to summarize.
        base: Folder that file names are relative to.
        more: Where to find the rest.
    """
    head = [_verdict(report), _counted(report)]
    if report.interview:
        answers = {
            answer.id: clipped(f"{answer.word} {answer.id} {answer.question} {answer.sentence}", 180)
            for answer in _not_good(report)
        }
        return fitted([*head, *_counted_answers(report)], answers, [*_phase_verdicts(report), _broken(report), more])
    tail = [*_causes(report.diagnoses), _now(report), _broken(report), _not_judged(report), _advice(report), _notes(report), more]
    return fitted(head, dict(_findings(report, base)), tail)


def commands(report: Report) -> str:
    """Return the commands that show the rest."""
    subject = visible(report.subject)
    is_one_path = subject == report.subject and len(subject) <= MAX_SUBJECT and ", " not in subject
    asked = "--questions" if report.interview else "-v"
    command = f"more: ckaudit {report.command} {quote(subject) if is_one_path else 'RUN'} {asked}"
    if report.interview:
        answers = _not_good(report)
        return f"{command}; ckaudit explain {answers[0].id if answers else 'D1.1'}"
    return f"{command}; ckaudit explain {report.findings[0].code}" if report.findings else command


def _verdict(report: Report) -> str:
    step = "" if report.step is None else f" at step {report.step}"
    return clipped(f"{badge(report)[0]}{step}: {report.verdict}", 260)


def _counted(report: Report) -> str:
    """Return how many findings there are, and how many of them do not count."""
    count = len(report.findings)
    kinds = len({finding.code for finding in report.findings})
    summary = f"{plural(count, 'finding')}: {words.by_severity(report.findings)}" if count else "no finding"
    summary += f", of {kinds} kinds" if 1 < kinds < count else ""
    normal = sum(suppressed.by == "siblings" for suppressed in report.suppressed)
    numbers = ((len(report.suppressed) - normal, "accepted by policy or baseline"), (normal, "normal among its siblings"))
    hidden = "".join(f"; {number:,} more {reason}" for number, reason in numbers if number)
    return summary + hidden if count or hidden else ""


def _findings(report: Report, base: str) -> Iterator[tuple[str, str]]:
    """Yield a line for each code, the most severe first: its first finding, and how many more places and times there are."""
    by_code: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_code.setdefault(finding.code, []).append(finding)
    for code, (first, *others) in by_code.items():
        file = words.located(first, base)
        place = f"{file}:{first.line}" if file and first.line else file or first.group or first.where or ""
        where = "" if not place or place in first.message else abbreviate(visible(place), 60, unicode=False)
        beside = sum(1 + len(other.also) for other in others) + (0 if first.group else len(first.also))
        more = f" (+{beside:,} more)" if beside else ""
        about = ", ".join(part for part in (f"{code} {first.name}", _when(first, report.step), where) if part)
        yield code, clipped(f"{first.severity} {about}: {clipped(first.message, 150)}{more}", 300)


def _when(finding: Finding, end: int | None) -> str:
    """Return the first step of a finding if it lasts to the end, else its first and last step."""
    first, last = finding.first_step, finding.last_step
    if first is None or last in (None, first):
        return words.interval(finding)
    return f"since step {first}" if last == end else f"steps {first}-{last}"


def _causes(diagnoses: Sequence[Diagnosis]) -> Iterator[str]:
    """Yield the first causes with their knobs; where to look is given only for the first."""
    for rank, diagnosis in enumerate(diagnoses[:MAX_CAUSES], start=1):
        codes = first_names(list(dict.fromkeys(diagnosis.explains)), 4)
        parts = [
            f"cause {rank}: {diagnosis.cause} ({words.standing(diagnosis)}) explains {codes}",
            f"First knob: {clipped(diagnosis.knob, 190 if rank == 1 else 90)}",
            f"Look at: {clipped(diagnosis.inspect, 110)}" if rank == 1 else "",
        ]
        yield clipped(" ".join(part if part.endswith(".") else f"{part}." for part in parts if part), 450)
    if len(diagnoses) > MAX_CAUSES:
        yield f"and {plural(len(diagnoses) - MAX_CAUSES, 'less likely cause')}"


def _now(report: Report) -> str:
    return clipped(f"do now: {report.response[0]}", 240) if report.response else ""


def _broken(report: Report) -> str:
    broken = [check.code for check in words.broken_checks(report.checks)]
    return f"broke, so not judged: {first_names(broken, 5)}" if broken else ""


def _not_judged(report: Report) -> str:
    """Return how many checks could not judge, and which of them are vital."""
    vital = [check.name for check in report.vital if check.outcome == "not_judged"]
    open_vital = f"; vital ones among them: {first_names(vital, 9)}" if vital else ""
    return clipped(words.not_judged(report) + open_vital, 300) if words.not_judged(report) or vital else ""


def _advice(report: Report) -> str:
    return clipped("; ".join(words.advice(report)), 200)


def _notes(report: Report) -> str:
    if not report.notes:
        return ""
    first, *others = report.notes
    return clipped(f"note: {clipped(first, 150)}", 160) + (f" (and {plural(len(others), 'more note')})" if others else "")


# The interview: counts, followed by the answers that are not good.
def _counted_answers(report: Report) -> Iterator[str]:
    for phase in report.interview:
        counts = Counter(answer.word for answer in phase.answers)
        counted = ", ".join(f"{counts[word]} {word.replace('_', ' ')}" for word in WORDS if counts[word])
        yield clipped(f"phase {phase.number}, {phase.title} {counted}", 120)


def _not_good(report: Report) -> list[Answer]:
    """Return the bad answers, then those that need watching."""
    answers = [answer for phase in report.interview for answer in phase.answers]
    return [answer for word in ("bad", "watch") for answer in answers if answer.word == word]


def _phase_verdicts(report: Report) -> Iterator[str]:
    for phase in report.interview:
        if phase.verdict:
            yield clipped(f"phase {phase.number}: {phase.verdict}", 200)
