"""`validate` on a screen: violations by file, each with what was expected and found, then the counts.

Nothing is aligned in columns, so rich is not loaded: this report runs before every commit.
"""

from collections import Counter
from collections.abc import Iterator

from ckaudit.contract.schema.report import Finding, Report
from ckaudit.reports import words
from ckaudit.reports.report_sections import policy_sentences, why_suppressed
from ckaudit.reports.terminal.screen_text import badge, columns, paint, paragraph, printable
from ckaudit.reports.view import View
from ckaudit.wording import plural

INDENT = "    "


def draw(report: Report, view: View) -> str:
    """Return the violations of `report`, the first `view.limit` of each code, and, unless quiet, the summary."""
    findings_shown, hidden = _first_of_each(report.findings, view)
    lines = [line for file, findings in _by_file(findings_shown) for line in _group(file, findings, view)]
    lines += [f"... and {count:,} more {code} (-v shows all)" for code, count in sorted(hidden.items())]
    if not view.quiet:
        lines += [""] * bool(lines) + list(_summary(report, view))
    for check in words.broken_checks(report.checks):
        lines += [paint(line, "sev1", view) for line in _wrapped(f"{check.code} broke: {check.detail}", view)]
    return "\n".join(lines) + "\n" if lines else ""


def _first_of_each(findings: list[Finding], view: View) -> tuple[list[Finding], Counter[str]]:
    """Return the findings to show, and how many of each code were left out."""
    seen: Counter[str] = Counter()
    hidden: Counter[str] = Counter()
    first = []
    for finding in findings:
        seen[finding.code] += 1
        if view.verbose or seen[finding.code] <= view.limit:
            first.append(finding)
        else:
            hidden[finding.code] += 1
    return first, hidden


def _by_file(findings: list[Finding]) -> list[tuple[str, list[Finding]]]:
    """Return findings by file in the order of names, within a file by line; those without a file come first."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.file or "", []).append(finding)
    return [(file, sorted(groups[file], key=lambda finding: (finding.line or 0, finding.code))) for file in sorted(groups)]


def _group(file: str, findings: list[Finding], view: View) -> Iterator[str]:
    """Yield the lines of one file: each violation, followed by what was expected and found and a hint."""
    for finding in findings:
        yield from _place(finding, file, view)
        details = (("expected", finding.expected), ("found", finding.found), ("help", finding.help))
        for label, text in details:
            if text:
                yield from _detail(label, printable(text, view), view)


def _place(finding: Finding, file: str, view: View) -> Iterator[str]:
    """Yield place, code and message as one line, or, on a narrow screen, the latter two on separate lines."""
    place = printable(words.located(finding, view.base) or "", view) if file else ""
    if finding.line:
        place += f":{finding.line}"
    pointer = printable(finding.pointer or finding.where or "", view)
    code, message = paint(finding.code, finding.severity, view), printable(finding.message, view)
    head = " ".join(part for part in (paint(place, "bold", view), pointer) if part)
    plain = "  ".join(part for part in (f"{place} {pointer}".strip(), finding.code, message) if part)
    if not head or view.width is None or columns(plain) <= view.width:
        yield "  ".join(part for part in (head, code, message) if part)
        return
    yield head
    lines = paragraph(message, max(view.width, 40), first=f"{finding.code}  ", indent=INDENT)
    yield lines[0].replace(finding.code, code, 1)
    yield from lines[1:]


def _detail(label: str, text: str, view: View) -> Iterator[str]:
    """Yield `text` indented and wrapped to the screen, each line dimmed separately."""
    head = f"{label:<8} "
    lines = [INDENT + head + text] if view.width is None else paragraph(text, max(view.width, 40), first=head, indent=INDENT)
    for line in lines:
        yield paint(line, "dim", view)


def _summary(report: Report, view: View) -> Iterator[str]:
    """Yield one line of totals, one line per code, then notes on how the audit was made."""
    word, colour = badge(report)
    files = f"{plural(report.files, 'file')} read"
    if not report.findings:
        yield from _verdict(word, colour, f"{report.verdict} ({files})", view)
    else:
        hit = len({finding.file for finding in report.findings if finding.file})
        counts = f"{plural(len(report.findings), 'finding')} in {plural(hit, 'file')}"
        yield from _verdict(word, colour, f"{counts}, {files}: {words.by_severity(report.findings)}", view)
        yield from _codes(report, view)
    yield from _accepted(report, view)
    yield from (line for note in [*policy_sentences(report), *report.notes] for line in _wrapped(note, view, first="note: "))
    if sentence := words.not_judged(report):
        yield from (paint(line, "dim", view) for line in _wrapped(sentence, view))


def _accepted(report: Report, view: View) -> Iterator[str]:
    """Yield, in verbose mode, a line for each finding that does not count, with the reason."""
    for suppressed in report.suppressed if view.verbose else ():
        place = words.located(suppressed.finding, view.base) or suppressed.finding.where or ""
        text = "  ".join(
            part
            for part in (place, suppressed.finding.pointer or "", suppressed.finding.code, why_suppressed(suppressed))
            if part
        )
        yield from _wrapped(text, view, first="does not count: ")


def _verdict(word: str, colour: str, text: str, view: View) -> Iterator[str]:
    """Yield the badge with its explanation, later lines aligned below the text."""
    first, *rest = _wrapped(text, view, first=f"{word}  ")
    yield paint(word, colour, view) + first.removeprefix(word)
    yield from rest


def _wrapped(text: str, view: View, *, first: str = "", whole: bool = False) -> list[str]:
    """Return `text` wrapped to the screen, preceded by `first`; in one line if requested or if there is no screen."""
    safe = printable(text, view)
    return [first + safe] if whole or view.width is None else paragraph(safe, max(view.width, 40), first=first, indent="")


def _codes(report: Report, view: View) -> Iterator[str]:
    """Yield a line per code with its severity, name and count."""
    rows = words.by_code(report.findings)
    widest = max(len(name) for _, _, name, _ in rows)
    if view.width is not None and 16 + widest + max(len(f"{count:,}") for *_, count in rows) > max(view.width, 40):
        widest = 0  # no room for a column of counts
    for severity, code, name, count in rows:
        first, *rest = _wrapped(f"{name:<{widest}}  {count:,}", view, first=f"  {severity:<4}  {code}  ", whole=bool(widest))
        yield first.replace(f"{severity:<4}", paint(f"{severity:<4}", severity, view), 1)
        yield from rest
