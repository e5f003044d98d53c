"""Renders the autopsy of an event: on a screen with a timeline of the black box, in Markdown as tables."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ckaudit.audit.autopsy import departure_text
from ckaudit.audit.autopsy.black_box import event_triggers
from ckaudit.audit.autopsy.result import Autopsy, Departure, EventName, Moment, Return, Track
from ckaudit.contract.schema.report import Finding
from ckaudit.reports.escape import escaped
from ckaudit.reports.terminal.charts import sparkline, starts
from ckaudit.reports.terminal.screen_text import pad, paint, paragraph, printable, wrap
from ckaudit.reports.view import View
from ckaudit.reports.words import interval, likelihood, number
from ckaudit.wording import first_names, plural

MAX_LABEL_COLUMNS = 32  # maximum columns of a label
LAST_VALUE_COLUMNS = 12  # columns for the last value

NAMES = {
    "loss": "loss",
    "gradient_norm": "gradient norm",
    "learning_rate": "learning rate",
    "batch": "batch seen, steps ago",
    "gradient": "gradient",
    "update": "update",
}


def terminal(autopsy: Autopsy, view: View) -> str:
    """Return the whole autopsy, each part under its heading."""
    width = view.columns(50, 118)
    parts = [_head(autopsy, view, width), _timeline(autopsy, view, width), _story(autopsy, view, width)]
    if autopsy.returns:
        parts.append(_part("Afterwards", recovery(autopsy), view, width))
    others = other_events(autopsy)
    parts += [_triage_lines(autopsy, view, width), wrap(others, width) if others else []]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(autopsy: Autopsy, view: View, width: int) -> list[str]:
    head = wrap(printable(f"autopsy {autopsy.subject}: {event_title(autopsy)}", view), width)
    return [*(paint(line, "bold", view) for line in head), *wrap(printable(autopsy.verdict, view), width)]


def _part(heading: str, texts: Iterator[str] | Sequence[str], view: View, width: int) -> list[str]:
    return [paint(heading, "bold", view), *(line for text in texts for line in paragraph(printable(text, view), width))]


def _timeline(autopsy: Autopsy, view: View, width: int) -> list[str]:
    """Return a row for each track, followed by its last value, with marks under the steps that are out of range."""
    labels = [f"{'grad' if track.kind == 'gradient' else NAMES[track.kind]} {track.name}".rstrip() for track in autopsy.tracks]
    column = min(MAX_LABEL_COLUMNS, width // 3, max((len(label) for label in labels), default=0))
    room = width - column - LAST_VALUE_COLUMNS - 6
    steps = f"steps {autopsy.steps[0]} to {autopsy.steps[-1]}"
    heading = f"{black_box_sentence(autopsy).capitalize()}: {steps}, {plural(autopsy.tensors, 'tensor')}"
    lines = [paint(heading, "bold", view)]
    for track, label in zip(autopsy.tracks, labels, strict=True):
        short = label if len(label) <= column else f"..{label[-column + 2 :]}"
        drawn = sparkline(track.values, width=room, unicode=view.unicode)
        last = next((value for value in reversed(track.values) if value is not None), None)
        end = "" if last is None else number(last)
        lines.append(f"  {pad(printable(short, view), column)}  {drawn}  {end}".rstrip())
        if marks := _marks(track, autopsy.steps, room):
            lines.append(" " * (column + 4) + paint(marks, "sev1", view))
    return lines


def _marks(track: Track, steps: Sequence[int], width: int) -> str:
    """Return a line with a mark under each column that holds a step out of range."""
    begins = starts(len(steps), width)
    line = [" "] * len(begins)
    for step in track.out:
        line[bisect_right(begins, steps.index(step)) - 1] = "!"
    return "".join(line).rstrip()


def _story(autopsy: Autopsy, view: View, width: int) -> list[str]:
    """Return, step by step, what left its range, then the departures that do not belong to the event."""
    lines = []
    for moment in autopsy.moments:
        for place, text in enumerate(departure_lines(moment, verbose=view.verbose)):
            first = f"{moment.step if place == 0 else '':>8}  "
            lines += paragraph(printable(text, view), width, first=first, indent="")
    besides = [sentence for sentence in (standing_sentence(autopsy), earlier_sentence(autopsy)) if sentence]
    lines += [line for sentence in besides for line in paragraph(printable(sentence, view), width)]
    return [paint("What left its range", "bold", view), *lines] if lines else []


def _triage_lines(autopsy: Autopsy, view: View, width: int) -> list[str]:
    """Return the triage findings in these steps, and their likely causes."""
    if not autopsy.findings:
        return [paint("Triage finds nothing in these steps", "bold", view)]
    lines = [paint("Triage finds in these steps", "bold", view)]
    for finding in autopsy.findings if view.verbose else autopsy.findings[:5]:
        lines += [paint(line, finding.severity, view) for line in paragraph(printable(finding_line(finding), view), width)]
    if len(autopsy.findings) > 5 and not view.verbose:
        lines.append(f"  and {len(autopsy.findings) - 5} more")
    for diagnosis in autopsy.diagnoses[:3]:
        text = f"{diagnosis.title.rstrip('.')} ({likelihood(diagnosis.confidence)}). {diagnosis.knob}"
        lines += paragraph(printable(text, view), width, first="cause: ")
    return lines


def markdown(autopsy: Autopsy, view: View) -> str:
    """Return the whole autopsy as GitHub-flavoured Markdown."""
    blocks = [f"### ckaudit autopsy: {escaped(event_title(autopsy))}", escaped(autopsy.verdict)]
    if autopsy.moments:
        rows = [
            f"| {moment.step} | {'<br>'.join(escaped(line) for line in departure_lines(moment, verbose=view.verbose))} |"
            for moment in autopsy.moments
        ]
        blocks.append("\n".join(["| step | what left its range |", "|---|---|", *rows]))
    blocks += [escaped(sentence) for sentence in (standing_sentence(autopsy), earlier_sentence(autopsy)) if sentence]
    if after := list(recovery(autopsy)):
        blocks += ["**Afterwards**", "\n".join(f"- {escaped(line)}" for line in after)]
    if autopsy.findings:
        lines = [finding_line(finding) for finding in autopsy.findings]
        lines += [
            f"cause: {diagnosis.title.rstrip('.')} ({likelihood(diagnosis.confidence)}). {diagnosis.knob}"
            for diagnosis in autopsy.diagnoses
        ]
        blocks += ["**Triage finds in these steps**", "\n".join(f"- {escaped(line)}" for line in lines)]
    if others := other_events(autopsy):
        blocks.append(others)
    box = f"{black_box_sentence(autopsy)} of steps {autopsy.steps[0]} to {autopsy.steps[-1]}, {autopsy.tensors} tensors"
    blocks.append(f"<sub>{escaped(autopsy.subject)}: {box}, {autopsy.files} files read</sub>")
    return "\n\n".join(blocks) + "\n"


def event_title(autopsy: Autopsy) -> str:
    """Return the title: which event, and where it was written."""
    return (
        f"event at step {autopsy.event.event_step} ({', '.join(event_triggers(autopsy.event))}), checkpoint {autopsy.event.step}"
    )


def departure_lines(moment: Moment, *, verbose: bool) -> Iterator[str]:
    """Yield what left its range at one step; from many of a kind, only the farthest."""
    groups: dict[tuple[str, str], list[Departure]] = {}
    for departure in moment.departures:
        groups.setdefault((departure.kind, departure.how), []).append(departure)
    for members in groups.values():
        if verbose:
            yield from map(departure_text, members)
            continue
        more = f" (and {len(members) - 1} more)" if len(members) > 1 else ""
        yield departure_text(members[0]) + more


def black_box_sentence(autopsy: Autopsy) -> str:
    """Return the sentence on where the steps before the event come from."""
    return "black box" if autopsy.boxed else "record without a black box"


def standing_sentence(autopsy: Autopsy) -> str:
    """Return one sentence on what was dead before the box begins and is not the event itself, or an empty string."""
    if not autopsy.standing or autopsy.onset == autopsy.steps[0]:
        return ""
    first = autopsy.standing[0]
    more = f" (and {len(autopsy.standing) - 1} more)" if len(autopsy.standing) > 1 else ""
    return f"Since the first step of the {black_box_sentence(autopsy)} {departure_text(first)}{more}."


def earlier_sentence(autopsy: Autopsy, *, max_steps: int = 6) -> str:
    """Return one sentence on earlier steps out of range that had no consequences, or an empty string."""
    if not autopsy.earlier:
        return ""
    steps = ", ".join(map(str, autopsy.earlier[-max_steps:]))
    return f"Out of range before, and back within a few steps: {plural(len(autopsy.earlier), 'step')}, the last {steps}."


def recovery(autopsy: Autopsy) -> Iterator[str]:
    """Yield what happened afterwards to each kind of number."""
    groups: dict[str, list[Return]] = {}
    for return_ in autopsy.returns:
        groups.setdefault(return_.kind, []).append(return_)
    for kind, members in groups.items():
        yield f"{NAMES[kind]}: {_single(members[0]) if len(members) == 1 and not members[0].name else _many(members)}"


def _single(return_: Return) -> str:
    if return_.seen_until is None:
        return "nothing is recorded after the event"
    return f"not back by step {return_.seen_until}" if return_.step is None else f"back from step {return_.step} on"


def _many(members: Sequence[Return], *, max_names: int = 3) -> str:
    """Return how many tensors have recovered and since when, and the names of those that have not."""
    unseen = [member.name for member in members if member.seen_until is None]
    back = [member.step for member in members if member.step is not None]
    away = [member.name for member in members if member.step is None and member.seen_until is not None]
    parts = [f"{len(back)} of {len(members)} back" + (f", from step {min(back)} to step {max(back)}" if back else "")]
    parts += [f"not back: {first_names(away, max_names)}"] if away else []
    parts += [f"never recorded again: {first_names(unseen, max_names)}"] if unseen else []
    return "; ".join(parts)


def finding_line(finding: Finding) -> str:
    """Return a finding on one line."""
    where = f" {interval(finding)}:" if interval(finding) else ""
    return f"{finding.severity} {finding.code}{where} {finding.message}"


def other_events(autopsy: Autopsy, *, max_names: int = 8) -> str:
    """Return the other events of the run, or an empty string."""
    events: list[EventName] = [other for other in autopsy.others if "last" not in other.triggers or len(other.triggers) > 2]
    if not events:
        return ""
    named = [f"{event.event_step} ({', '.join(event_triggers(event))})" for event in events]
    return f"Other events: {first_names(named, max_names)}."
