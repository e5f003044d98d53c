"""The autopsy of an event on a screen: a timeline of the black box, what happened step by step, and what came of it."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ckaudit.audit.autopsy.result import Autopsy, Track
from ckaudit.contract.schema.numbers import Number
from ckaudit.reports.autopsy.sentences import NAMES, afterwards, box_of, earlier, finding, lines_of, others, standing, title
from ckaudit.reports.terminal.pictures import sparkline, starts
from ckaudit.reports.terminal.text import fit, pad, paint, paragraph, shown
from ckaudit.reports.view import View
from ckaudit.reports.words import likelihood, number, plural

UNSEEN = 100  # columns where no screen says how many
NARROWEST, WIDEST = 50, 118
LABEL = 32  # columns of a label at most
ENDS = 12  # columns for the last value


def render(autopsy: Autopsy, view: View) -> str:
    """Return the whole, each part under its heading."""
    width = min(WIDEST, max(NARROWEST, view.width or UNSEEN))
    parts = [_head(autopsy, view, width), _timeline(autopsy, view, width), _story(autopsy, view, width)]
    if autopsy.returns:
        parts.append(_part("Afterwards", afterwards(autopsy), view, width))
    parts += [_judged(autopsy, view, width), [line for text in (others(autopsy),) if text for line in fit(text, width)]]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(autopsy: Autopsy, view: View, width: int) -> list[str]:
    head = fit(shown(f"autopsy {autopsy.subject}: {title(autopsy)}", view), width)
    return [*(paint(line, "bold", view) for line in head), *fit(shown(autopsy.verdict, view), width)]


def _part(heading: str, texts: Iterator[str] | Sequence[str], view: View, width: int) -> list[str]:
    return [paint(heading, "bold", view), *(line for text in texts for line in paragraph(shown(text, view), width))]


def _timeline(autopsy: Autopsy, view: View, width: int) -> list[str]:
    """Return a row for each track, its last value behind it, and marks below the steps out of range."""
    labels = [_label(track) for track in autopsy.tracks]
    column = min(LABEL, width // 3, max((len(label) for label in labels), default=0))
    room = width - column - ENDS - 6
    heading = (
        f"{box_of(autopsy).capitalize()}: steps {autopsy.steps[0]} to {autopsy.steps[-1]}, {plural(autopsy.tensors, 'tensor')}"
    )
    lines = [paint(heading, "bold", view)]
    for track, label in zip(autopsy.tracks, labels, strict=True):
        short = label if len(label) <= column else f"..{label[-column + 2 :]}"
        drawn = sparkline(track.values, width=room, unicode=view.unicode)
        lines.append(f"  {pad(shown(short, view), column)}  {drawn}  {_end(track.values)}".rstrip())
        if marks := _marks(track, autopsy.steps, room):
            lines.append(" " * (column + 4) + paint(marks, "sev1", view))
    return lines


def _label(track: Track) -> str:
    return f"{'grad' if track.kind == 'gradient' else NAMES[track.kind]} {track.name}".rstrip()


def _end(values: Sequence[Number | None]) -> str:
    last = next((value for value in reversed(values) if value is not None), None)
    return "" if last is None else number(last)


def _marks(track: Track, steps: Sequence[int], width: int) -> str:
    """Return a line with a mark under each column that holds a step out of range."""
    begins = starts(len(steps), width)
    line = [" "] * len(begins)
    for step in track.out:
        line[bisect_right(begins, steps.index(step)) - 1] = "!"
    return "".join(line).rstrip()


def _story(autopsy: Autopsy, view: View, width: int) -> list[str]:
    """Return step by step what left its range, then what does not belong to it."""
    lines = []
    for moment in autopsy.moments:
        for place, text in enumerate(lines_of(moment, verbose=view.verbose)):
            first = f"{moment.step if place == 0 else '':>8}  "
            lines += paragraph(shown(text, view), width, first=first, indent="")
    lines += [line for text in (standing(autopsy), earlier(autopsy)) if text for line in paragraph(shown(text, view), width)]
    return [paint("What left its range", "bold", view), *lines] if lines else []


def _judged(autopsy: Autopsy, view: View, width: int) -> list[str]:
    """Return the findings of triage in these steps, and the causes it sees behind them."""
    if not autopsy.findings:
        return [paint("Triage finds nothing in these steps", "bold", view)]
    lines = [paint("Triage finds in these steps", "bold", view)]
    for each in autopsy.findings if view.verbose else autopsy.findings[:5]:
        lines += [paint(line, each.severity, view) for line in paragraph(shown(finding(each), view), width)]
    if len(autopsy.findings) > 5 and not view.verbose:
        lines.append(f"  and {len(autopsy.findings) - 5} more")
    for each_cause in autopsy.diagnoses[:3]:
        text = f"{each_cause.title.rstrip('.')} ({likelihood(each_cause.confidence)}). {each_cause.knob}"
        lines += paragraph(shown(text, view), width, first="cause: ")
    return lines
