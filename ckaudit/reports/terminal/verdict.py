"""The diagnosis on a screen: verdict, causes, findings without a cause, charts, state, and what was not judged."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ckaudit.contract.schema.report import Chart, Diagnosis, Evidence, Finding, Report, ResumeCheckpoint
from ckaudit.contract.summaries import most_missed
from ckaudit.reports import words
from ckaudit.reports.report_sections import (
    CHECKPOINT_HEAD,
    MISSING_COLUMN,
    NUMBER_COLUMNS,
    checkpoint_rows,
    derived_numbers,
    missing_parts,
    policy_sentences,
    resume_checkpoints,
    why_suppressed,
)
from ckaudit.reports.terminal.charts import draw_curve, waterfall
from ckaudit.reports.terminal.interview import interview
from ckaudit.reports.terminal.screen_text import MAX_COLUMNS, badge, columns, pad, paint, paragraph, printable, wrap
from ckaudit.reports.view import View
from ckaudit.wording import plural

PICTURE_ROWS = 3  # rows of the chart of a finding

MAX_CHECKPOINTS = 20  # a rolling window is smaller

HEADS = ("what you see", "likely cause", "first knob", "where to inspect")

GAP = "  "


def draw(report: Report, view: View) -> str:
    """Return `report` from the verdict down to what was skipped; empty sections are left out."""
    width = view.columns(widest=MAX_COLUMNS)
    if report.interview:
        rest = [_accepted(report, view, width), _notes(report, view, width), _trouble(report, view, width)]
        return _joined([_verdict(report, view, width), *interview(report, view), *rest])
    sections = [
        _verdict(report, view, width),
        window(report, view, width),
        causes(report, view, width),
        _open(report, view, width),
        _response(report, view, width),
        _accepted(report, view, width),
        *_pictures(report, view, width),
        _state(report, view, width),
        _derived(report, view, width),
        _notes(report, view, width),
        _coverage(report, view, width),
    ]
    return _joined(sections)


def _joined(sections: list[list[str]]) -> str:
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _title(text: str, view: View) -> str:
    """Return the heading of a section."""
    return paint(text, "bold", view)


def _verdict(report: Report, view: View, width: int) -> list[str]:
    """Return the badge with the verdict sentence, and a dimmed line on what was audited."""
    word, colour = badge(report)
    first, *rest = wrap(printable(report.verdict, view), width - len(word) - 2)
    lines = [f"{paint(word, colour, view)}  {paint(first, 'bold', view)}"]
    lines += [" " * (len(word) + 2) + paint(line, "bold", view) for line in rest]
    step = "" if report.step is None else f" at step {report.step}"
    if report.to_judge_more and not report.is_ill:
        lines += paragraph(printable(f"To judge more: {report.to_judge_more}", view), width, indent=" " * (len(word) + 2))
    about = f"{report.command} {report.subject}{step}, {plural(report.files, 'file')} read, {report.tool}"
    return lines + [paint(line, "dim", view) for line in wrap(printable(about, view), width)]


def _open(report: Report, view: View, width: int) -> list[str]:
    """Return the findings that no cause explains, or in verbose mode all findings."""
    findings = report.findings if view.verbose else words.unexplained(report)
    if not findings:
        return []
    title = "All findings" if view.verbose else words.rest_title(report)
    shown_findings = findings if view.verbose else findings[: view.limit]
    lines = [_title(title, view), *(line for finding in shown_findings for line in _finding(finding, view, width))]
    more = len(findings) - len(shown_findings)
    return [*lines, f"  ... and {more:,} more (-v shows all)"] if more else lines


def _finding(finding: Finding, view: View, width: int) -> Iterator[str]:
    """Yield severity, code, name, steps and place, then the message, the places folded into it and the path to a kernel."""
    label = f"{finding.severity:<4}  {finding.code}"
    place = words.located(finding, view.base) or finding.group or finding.where or ""
    rest = printable(", ".join(part for part in (finding.name, words.interval(finding), place) if part), view)
    first, *others = wrap(rest, width - len(label) - 4)
    yield f"  {paint(label, finding.severity, view)}  {first}"
    yield from (" " * (len(label) + 4) + line for line in others)
    yield from paragraph(printable(finding.message, view), width, indent="        ")
    if finding.help:
        yield from paragraph(printable(finding.help, view), width, indent="        ")
    if finding.also and (view.verbose or finding.group is None):
        names = finding.also if view.verbose else finding.also[:3]
        more = "" if len(names) == len(finding.also) else f" and {len(finding.also) - len(names):,} more"
        text = f"also {printable(', '.join(names), view)}{more}"
        yield from (paint(line, "dim", view) for line in paragraph(text, width, indent="        "))
    if finding.path:
        text = printable(words.path_line(finding.path, unicode=view.unicode), view)
        yield from (paint(line, "dim", view) for line in paragraph(text, width, indent="        "))


def _response(report: Report, view: View, width: int) -> list[str]:
    """Return what to do now, in order."""
    if not report.response:
        return []
    lines = [line for advice in report.response for line in paragraph(printable(advice, view), width, first="- ")]
    return [_title("What to do now", view), *lines]


def _accepted(report: Report, view: View, width: int) -> list[str]:
    """Return, in verbose mode, the findings that do not count, each with the reason."""
    if not (view.verbose and report.suppressed):
        return []
    lines = [_title("Accepted", view)]
    for suppressed in report.suppressed:
        lines += _finding(suppressed.finding, view, width)
        lines += paragraph(printable(f"does not count: {why_suppressed(suppressed)}", view), width, indent="        ")
    return lines


def _pictures(report: Report, view: View, width: int) -> Iterator[list[str]]:
    """Yield each chart under the question it answers; curves have marks at the first steps of the causes, or of the finding."""
    marks = [diagnosis.first_step for diagnosis in report.diagnoses]
    for chart in report.charts if view.pictures else ():
        if not chart.labels:
            continue
        drawn = _legible(chart, view)
        if chart.name == "gradient_waterfall":
            lines = waterfall(drawn, width=width - 2, unicode=view.unicode)
        elif chart.finding is not None:
            first = report.findings[chart.finding].first_step
            lines = draw_curve(drawn, [first], sign="^", width=width - 2, height=PICTURE_ROWS, unicode=view.unicode)
        else:
            lines = draw_curve(drawn, marks, width=width - 2, unicode=view.unicode)
        caption = [paint(f"  {line}", "dim", view) for line in wrap(lines[-1], width - 2)]
        heading = [_title(line, view) for line in wrap(printable(chart.title, view), width)]
        yield [*heading, *(f"  {line}" for line in lines[:-1]), *caption]


def _legible(chart: Chart, view: View) -> Chart:
    """Return a chart whose text cannot control a terminal."""
    ends = {name: getattr(chart, name) for name in ("least", "greatest", "last")}
    return replace(
        chart,
        labels=[printable(label, view) for label in chart.labels],
        remarks=[printable(remark, view) for remark in chart.remarks],
        **{name: point and replace(point, label=printable(point.label, view)) for name, point in ends.items()},
    )


def _state(report: Report, view: View, width: int) -> list[str]:
    """Return the latest values, in as many columns as fit."""
    if not report.state:
        return []
    cells = [(printable(name, view), words.number(value)) for name, value in report.state.items()]
    widest, longest = max(columns(name) for name, _ in cells), max(len(value) for _, value in cells)
    across = max(1, (width - 2) // (widest + longest + 5))
    drawn = [f"{pad(name, widest)}  {value:>{longest}}" for name, value in cells]
    rows = ["  " + "   ".join(drawn[start : start + across]) for start in range(0, len(drawn), across)]
    step = "State" if report.step is None else f"State at step {report.step}"
    return [_title(step, view), *rows]


def _derived(report: Report, view: View, width: int) -> list[str]:
    """Return the derived numbers, one per line."""
    rows = derived_numbers(report, missing=view.verbose)
    if not rows:
        return []
    widest = max(len(name) for name, _ in rows)
    lines = [line for name, value in rows for line in paragraph(printable(value, view), width, first=f"{name:<{widest}}  ")]
    return [_title("Derived", view), *lines]


def _notes(report: Report, view: View, width: int) -> list[str]:
    """Return notes on how the audit was made."""
    notes = [*policy_sentences(report), *report.notes]
    if not notes:
        return []
    return [_title("Notes", view), *(line for note in notes for line in paragraph(printable(note, view), width, first="- "))]


def _coverage(report: Report, view: View, width: int) -> list[str]:
    """Return the checks that broke, then what was skipped: a line per reason, and what would be worth recording."""
    lines = _trouble(report, view, width)
    groups = words.skipped(report)
    if not groups:
        return lines
    count = sum(len(checks) for _, checks in groups)
    lines.append(_title(f"Not judged: {count} of {plural(len(report.checks), 'check')}", view))
    widest = max(len(reason) for reason, _ in groups)
    for reason, checks in groups:
        lines.append(f"  {reason:<{widest}}  {plural(len(checks), 'check')}")
        if view.verbose:
            for check in checks:
                text = f"{check.code}  {check.name}" + (f": {check.detail}" if check.detail else "")
                lines += paragraph(printable(text, view), width, indent="    ")
    if report.command == "triage" and (missed := most_missed(report.checks)):
        several = [f"{printable(thing, view)} ({plural(waiting, 'check')})" for thing, waiting in missed if waiting > 1]
        waits = f"most wait for {', '.join(several)}; " if several else ""
        lines += paragraph(f"{waits}ckaudit coverage says which line to add first", width)
    return lines


def _trouble(report: Report, view: View, width: int) -> list[str]:
    """Return the checks that broke."""
    return [
        paint(line, "sev1", view)
        for check in words.broken_checks(report.checks)
        for line in paragraph(printable(f"{check.code} broke: {check.detail}", view), width)
    ]


# The resume checkpoints on a screen: one line each, the newest last, followed by what it lacks.
def window(report: Report, view: View, width: int) -> list[str]:
    """Return the table of resume checkpoints; empty if the command does not look for any."""
    checkpoints = resume_checkpoints(report)
    listed = checkpoints if view.verbose else checkpoints[-MAX_CHECKPOINTS:]
    if not listed:
        return []
    lines = [paint("Resume checkpoints", "bold", view), *_table(listed, view, width)]
    if together := _lacked_by_all(listed):
        lines += [paint(line, "dim", view) for line in paragraph(f"all lack {together}", width)]
    if hidden := len(checkpoints) - len(listed):
        lines.append(paint(f"  {hidden:,} older ones are not shown (-v shows all)", "dim", view))
    return lines


def _table(listed: Sequence[ResumeCheckpoint], view: View, width: int) -> Iterator[str]:
    cells = [
        tuple(printable(cell, view) for index, cell in enumerate(row) if index != MISSING_COLUMN)
        for row in (CHECKPOINT_HEAD, *checkpoint_rows(listed))
    ]
    widths = [max(columns(row[index]) for row in cells) for index in range(len(cells[0]) - 1)]
    yield from (paint(line, "dim", view) for line in _line(cells[0], widths, width))
    together = _lacked_by_all(listed)
    for checkpoint, row in zip(listed, cells[1:], strict=True):
        lines = _line(row, widths, width)
        yield from (paint(line, "sev0", view) for line in lines) if checkpoint.ok is False else lines
        if checkpoint.absent and checkpoint.form and not together:
            yield from (
                paint(line, "dim", view) for line in paragraph(f"lacks {missing_parts(checkpoint)}", width, indent="      ")
            )


def _lacked_by_all(listed: Sequence[ResumeCheckpoint]) -> str:
    """Return what every one of several checkpoints lacks, if they all lack the same."""
    same = len(listed) > 1 and all(checkpoint.form and checkpoint.absent == listed[0].absent for checkpoint in listed)
    return missing_parts(listed[0]) if same and listed[0].absent else ""


def _line(row: tuple[str, ...], widths: list[int], width: int) -> list[str]:
    """Return one row: numbers right-aligned, words left-aligned, the name at the end or, if it does not fit, below."""
    cells = [
        " " * (widths[index] - columns(cell)) + cell if index in NUMBER_COLUMNS else pad(cell, widths[index])
        for index, cell in enumerate(row[:-1])
    ]
    line = "  " + "  ".join(cells)
    if columns(line) > width:
        line = "  ".join(cell.strip() for cell in cells)
        return [*(f"  {part}" for part in wrap(line, width - 2)), *(f"      {part}" for part in wrap(row[-1], width - 6))]
    if columns(line) + 2 + columns(row[-1]) <= width:
        return [f"{line}  {row[-1]}"]
    return [line.rstrip(), *(f"      {part}" for part in wrap(row[-1], width - 6))]


# The ranked causes: a table of four columns on a wide screen, paragraphs on a narrow one.
def causes(report: Report, view: View, width: int, *, narrow: int = 80) -> list[str]:
    """Return the diagnoses of `report`, likeliest first; below `narrow` columns as paragraphs."""
    if not report.diagnoses:
        return []
    lines = [] if width < narrow else _heads(view, width)
    for rank, diagnosis in enumerate(report.diagnoses, start=1):
        if rank > 1:
            lines.append("")
        lines += _stacked(rank, diagnosis, view, width) if width < narrow else _row(rank, diagnosis, view, width)
        lines += _reasons(rank, diagnosis, view, width)
    return lines


def _widths(width: int) -> tuple[int, int, int, int]:
    """Return the widths of the four columns: the symptoms get most, because they hold the numbers."""
    room = width - len(GAP) * 3
    cause = room * 24 // 100
    see = room * 28 // 100
    knob = room * 24 // 100
    return see, cause, knob, room - see - cause - knob


def _heads(view: View, width: int) -> list[str]:
    """Return the heads of the table and the line below them."""
    heads = GAP.join(pad(head, column) for head, column in zip(HEADS, _widths(width), strict=True))
    return [paint(heads.rstrip(), "bold", view), paint(("─" if view.unicode else "-") * width, "dim", view)]


def _row(rank: int, diagnosis: Diagnosis, view: View, width: int) -> Iterator[str]:
    """Yield the lines of one cause across the four columns."""
    widths = _widths(width)
    title: list[tuple[str, str]] = [(line, diagnosis.severity) for line in wrap(printable(diagnosis.title, view), widths[1])]
    title += [(line, "dim") for line in wrap(words.standing(diagnosis), widths[1])]
    sees = paragraph(printable(diagnosis.symptom, view), widths[0], first=f"{rank}. ", indent="")
    knobs, places = (
        wrap(printable(text, view), widths[column]) for text, column in ((diagnosis.knob, 2), (diagnosis.inspect, 3))
    )
    for line in range(max(len(sees), len(title), len(knobs), len(places))):
        cause, colour = title[line] if line < len(title) else ("", "dim")
        plain = [column[line] if line < len(column) else "" for column in (sees, knobs, places)]
        cells = [pad(plain[0], widths[0]), _painted(cause, colour, widths[1], view), pad(plain[1], widths[2]), plain[2]]
        yield GAP.join(cells).rstrip()


def _painted(text: str, colour: str, width: int, view: View) -> str:
    """Return `text` coloured, then padded to `width`: colour codes take no columns."""
    return paint(text, colour, view) + pad(text, width)[len(text) :]


def _stacked(rank: int, diagnosis: Diagnosis, view: View, width: int) -> Iterator[str]:
    """Yield one cause as a title, its confidence and three labelled paragraphs."""
    title = wrap(f"{rank}. {printable(diagnosis.title, view)}", width)
    yield from (paint(line, diagnosis.severity, view) for line in title)
    yield paint(f"   {words.standing(diagnosis)}", "dim", view)
    for head, text in (("see", diagnosis.symptom), ("try", diagnosis.knob), ("inspect", diagnosis.inspect)):
        yield from paragraph(printable(text, view), width, first=f"{head:<7}  ", indent="   ")


def _reasons(rank: int, diagnosis: Diagnosis, view: View, width: int) -> Iterator[str]:
    """Yield the evidence and the path to a kernel; the runbook follows for the most important cause, or if verbose for all."""
    for evidence in diagnosis.evidence:
        sign, colour = ("+", "ok") if evidence.weight >= 0 else ("-", "sev1")
        lines = wrap(printable(_reason(evidence), view), width - 5)
        yield f"   {paint(sign, colour, view)} {lines[0]}"
        yield from (f"     {line}" for line in lines[1:])
    details = [f"{diagnosis.cause} explains {', '.join(diagnosis.explains)}"]
    if diagnosis.path:
        details.append(words.path_line(diagnosis.path, unicode=view.unicode))
    if view.verbose or (rank == 1 and diagnosis.severity in ("sev0", "sev1")):
        details.append(f"runbook: {diagnosis.runbook}")
    for text in details:
        yield from (paint(line, "dim", view) for line in paragraph(printable(text, view), width, indent="     "))


def _reason(evidence: Evidence) -> str:
    """Return a reason with its weight in nats and its reference.

    >>> _reason(Evidence(sentence="the rate doubled", weight=1.5, reference="LOSS002"))
    'the rate doubled (+1.5, LOSS002)'
    """
    reference = f", {evidence.reference}" if evidence.reference else ""
    return f"{evidence.sentence} ({evidence.weight:+.1f}{reference})"
