"""The result of a drill, on a screen and in Markdown: a line for each fault, and what to do about missed ones."""

from collections.abc import Iterator

import msgspec

from ckaudit.lab.drill.outcomes import DrillReport, FaultOutcome
from ckaudit.lab.drill.trainings import shown_command
from ckaudit.recorder.drill.settings import KINDS
from ckaudit.reports.escape import escaped, prose
from ckaudit.reports.json import dumps
from ckaudit.reports.lab.cells import Table
from ckaudit.reports.lab.markdown import table as markdown_table
from ckaudit.reports.lab.terminal import room, table
from ckaudit.reports.terminal.screen_text import paint, paragraph, printable, wrap
from ckaudit.reports.view import View
from ckaudit.wording import plural

HEAD = ("fault", "found at", "as", "cause named first")
LEGEND = "(+9): so many steps after the fault began, at the end of which an audit of the record tells it"
WORDS = {"missed": "missed", "harmless": "harmless here", "crashed": "it crashed", "not_done": "not done"}
NOT_SEEN = "no check waits for a line of yours: a gap of ckaudit, please report it (--bundle FILE)"


def on_screen(report: DrillReport, view: View) -> str:
    """Return the summary, the table, and remarks on what was not found."""
    width = room(view)
    colour = "ok" if report.is_clean else "sev1"
    blocks = [
        [paint(line, colour, view) for line in wrap(printable(summary(report), view), width)]
        + [paint(line, "dim", view) for line in wrap(printable(about(report), view), width)]
    ]
    if report.faults:
        lines = table(cells(report), width, view, min_widths={2: 24, 3: 24})
        blocks.append([*lines, *(paint(line, "dim", view) for line in wrap(LEGEND, width))])
    for title, sentences in sections(report):
        lines = [line for sentence in sentences for line in paragraph(printable(sentence, view), width)]
        blocks.append([*(paint(line, "bold", view) for line in wrap(title, width)), *lines])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def on_paper(report: DrillReport, _view: View) -> str:
    """Return the same as Markdown."""
    blocks = [f"### {prose(summary(report))}", escaped(about(report))]
    if report.faults:
        blocks += [markdown_table(cells(report)), prose(LEGEND)]
    for title, sentences in sections(report):
        blocks.append("\n".join([f"**{prose(title)}**", "", *(f"- {escaped(sentence)}" for sentence in sentences)]))
    return "\n\n".join(blocks) + "\n"


def summary(report: DrillReport) -> str:
    """Return how many of the faults with an effect were found, and whether the healthy trainings had no findings."""
    found_faults, missed = report.of("found"), report.of("missed")
    felt = len(found_faults) + len(missed)
    alarms = sum(bool(healthy.findings) for healthy in report.healthy)
    left = f"{plural(alarms, 'healthy training')} of {len(report.healthy)} flagged" if alarms else "healthy trainings left alone"
    return f"{len(found_faults)} of {plural(felt, 'fault')} with an effect found, {left}"


def about(report: DrillReport) -> str:
    """Return one sentence on what was trained."""
    trainings = len(report.healthy) + len(report.faults)
    return f"{trainings} trainings of {report.steps} steps, sudden faults at step {report.onset}: {shown_command(report.command)}"


def cells(report: DrillReport) -> Table:
    """Return the heading and a line for each fault."""
    return [HEAD, *((fault.fault, *_cells(fault)) for fault in report.faults)]


def _cells(fault: FaultOutcome) -> tuple[str, str, str]:
    if fault.finding is None or fault.seen_step is None:
        return WORDS[fault.outcome], "-", "-"
    cause = fault.cause or "none"
    after = f"step {fault.seen_step} (+{fault.delay})"
    named = f"{fault.finding.severity} {fault.finding.code} {fault.finding.name}"
    return after, named, cause if fault.is_cause_right else f"{cause} (it is {fault.truth})"


def sections(report: DrillReport) -> Iterator[tuple[str, list[str]]]:
    """Yield what there is to say besides the table, each part with its title."""
    if flagged := [healthy for healthy in report.healthy if healthy.findings]:
        yield (
            "Found in a healthy training: it is so, or it is a false alarm to be reported (--bundle FILE)",
            [
                f"{healthy.name}: {finding.severity} {finding.code} {finding.name}: {finding.message}"
                for healthy in flagged
                for finding in healthy.findings
            ],
        )
    if missed := report.of("missed"):
        yield "Missed, and what would show it", [f"{fault.fault}, {fault.title}: {fault.remedy or NOT_SEEN}" for fault in missed]
    if harmless := report.of("harmless"):
        yield (
            "Harmless here: the loss ends no worse than that of the healthy trainings",
            [", ".join(fault.fault for fault in harmless)],
        )
    if crashed := report.of("crashed"):
        yield (
            "The program itself stopped, and nothing was told before",
            [f"{fault.fault}: after {plural(fault.steps, 'step')}: {fault.reason}" for fault in crashed],
        )
    if not_done := report.of("not_done"):
        reasons: dict[str, list[str]] = {}
        for fault in not_done:
            reasons.setdefault(fault.reason, []).append(fault.fault)
        yield "Not done to this training", [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    if remarks := list(_remarks(report)):
        yield "Besides", remarks


def _remarks(report: DrillReport) -> Iterator[str]:
    if not report.learns:
        yield f"the loss of the healthy training hardly falls in {report.steps} steps, so that it shows few faults: try --steps"
    if not report.is_repeatable:
        yield "the two healthy trainings differ: seed the program, and smaller effects can be told from chance"
    for fault in report.of("found"):
        if fault.end == "crash":
            yield f"{fault.fault}: the program itself stopped after {plural(fault.steps, 'step')}"
    if early := [healthy.name for healthy in report.healthy if healthy.steps < report.steps]:
        yield f"{', '.join(early)} ended by itself before step {report.steps}"
    if report.to_judge_more:
        yield f"the one line that would let most of the open vital checks judge: {report.to_judge_more}"


# The available faults.
KINDS_HEAD = ("fault", "usual", "comes", "cause to be named", "what is done")


def catalogue(format: str, view: View) -> str:  # noqa: A002  what the option is called
    """Return the faults that a drill can inject as "terminal", "json" or "markdown"."""
    if format == "json":
        return dumps({"faults": [{"name": name, **msgspec.to_builtins(kind)} for name, kind in KINDS.items()]})
    rows = [
        (name, "yes" if kind.usual else "", "suddenly" if kind.sudden else "from the start", kind.truth, kind.title)
        for name, kind in KINDS.items()
    ]
    if format == "markdown":
        return markdown_table([KINDS_HEAD, *rows]) + "\n"
    return "\n".join(table([KINDS_HEAD, *rows], room(view), view, min_widths={3: 24, 4: 24})) + "\n"
