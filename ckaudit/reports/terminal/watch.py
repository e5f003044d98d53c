"""The messages of a watch, line by line, and the panel that it shows on a terminal."""

import re
from collections.abc import Iterator, Sequence

from ckaudit.contract.schema.report import SEVERITIES
from ckaudit.contract.schema.watch import Gauge, Snapshot, WatchEvent
from ckaudit.reports.terminal.charts import sparkline
from ckaudit.reports.terminal.screen_text import abbreviate, columns, pad, paint, paragraph, printable, wrap
from ckaudit.reports.view import View
from ckaudit.reports.words import number
from ckaudit.wording import duration

COLOURS = {"stall": "sev1", "heartbeat": "sev1", "error": "sev1", "resumed": "ok", "ended": "ok"}
MIN_COLUMNS = 60  # minimum columns of a panel
WIDE_COLUMNS = 120  # columns from which on vital signs and pace are side by side
NAME_COLUMNS, VALUE_COLUMNS, UNIT_COLUMNS = 23, 10, 11
PAINT = re.compile("\x1b\\[[0-9;]*m")


def event_lines(event: WatchEvent, view: View, *, with_cause: bool = True) -> str:
    """Return an event as one line, and if a cause is likely, a second line that says what to do.

    It depends only on the run itself, not on the clock, so that the same run gives the same lines.
    """
    word = event.severity or event.event
    step = "-" if event.step is None else str(event.step)
    code = event.finding.code if event.finding else ""
    sentence = " ".join(filter(None, (code, "worse now:" if event.event == "graver" else "", event.message, _since(event))))
    text = f"{paint(pad(word, 8), COLOURS.get(word, word if word in SEVERITIES else 'dim'), view)} "
    text += printable(f"{event.run} step {step}: {sentence}", view)
    if event.likely is None or not with_cause:
        return text
    likely = printable(f"likely: {event.likely.title.rstrip('.')}. Try: {event.likely.knob}", view)
    return f"{text}\n{' ' * 9}{paint(likely, 'dim', view)}"


def _since(event: WatchEvent) -> str:
    finding = event.finding
    if finding is None or finding.first_step is None or event.event == "stall":
        return ""
    return f"(since step {finding.first_step}" + (f", {finding.where})" if finding.where else ")")


def panel(snapshots: Sequence[Snapshot], view: View, height: int) -> list[str]:
    """Return the panel of all runs as lines, at most as high as the screen.

    Args:
        snapshots: The runs.
        view: Width, colours and characters.
        height: Number of lines of the screen.
    """
    width = max(MIN_COLUMNS, view.width or 80)
    room = max(4, height // max(1, len(snapshots)))
    lines = [line for snapshot in snapshots for line in _one(snapshot, view, width, room)]
    return lines[:height]


def _one(snapshot: Snapshot, view: View, width: int, room: int) -> list[str]:
    head = _head(snapshot, view, width)
    if width >= WIDE_COLUMNS:
        half = (width - 3) // 2
        left = [_gauge(vital, view, half) for vital in snapshot.vitals]
        right = [_gauge(gauge, view, half) for gauge in snapshot.pace]
        right += [""] * (len(left) - len(right))
        body = [f"{_padded(left_line, half)}   {other}".rstrip() for left_line, other in zip(left, right, strict=False)]
    else:
        body = [_gauge(gauge, view, width) for gauge in (*snapshot.vitals, *snapshot.pace)]
    alerts = list(_alerts(snapshot, view, width)) or [[paint("nothing found", "ok", view)]]
    left_over = room - len(head) - 1  # a small screen shows vital signs first, and the most severe alerts
    body = body[: max(1, left_over - min(sum(map(len, alerts)), max(2, left_over // 3)))]
    shown_alerts: list[str] = []
    for alert in alerts:
        if len(shown_alerts) + len(alert) > left_over - len(body):
            break
        shown_alerts += alert
    return [*head, *body, *shown_alerts, ""]


def _head(snapshot: Snapshot, view: View, width: int) -> list[str]:
    step = "no step yet" if snapshot.step is None else f"step {snapshot.step:,}"
    planned = f" of {snapshot.planned:,}" if snapshot.planned and snapshot.step is not None else ""
    silence = "" if snapshot.silence is None else f", last line {duration(snapshot.silence)} ago"
    usual_silence = "" if snapshot.usual is None else f" (usual {duration(snapshot.usual)})"
    colour = {"stalled": "sev1", "running": "ok"}.get(snapshot.state, "bold")
    tail = f"{step}{planned}{silence}{usual_silence}"
    room = width - len(snapshot.state) - 1
    name = printable(snapshot.run, view)
    early = _early(snapshot, view, width)
    if columns(name) + 2 + len(tail) <= room:
        return [f"{paint(snapshot.state, colour, view)} {paint(name, 'bold', view)}  {tail}", *early]
    name = abbreviate(name, room, unicode=view.unicode)
    return [f"{paint(snapshot.state, colour, view)} {paint(name, 'bold', view)}", tail, *early]


def _early(snapshot: Snapshot, view: View, width: int) -> list[str]:
    """Return one or two lines on the signs that come before the loss leaves its course, those that are present first."""
    present = [f"{sign.name} since step {sign.since:,}" for sign in snapshot.early if sign.since is not None]
    quiet = [sign.name for sign in snapshot.early if sign.since is None and sign.judged]
    unjudged = [sign.name for sign in snapshot.early if sign.since is None and not sign.judged]
    parts = [*present, *(f"{word} {', '.join(names)}" for word, names in (("no", quiet), ("not judged:", unjudged)) if names)]
    if not parts:
        return []
    lines = wrap(f"early signs: {'; '.join(parts)}", width)
    return [paint(line, "sev2" if present else "dim", view) for line in lines[:2]]


def _gauge(gauge: Gauge, view: View, width: int) -> str:
    name = pad(gauge.name, NAME_COLUMNS)
    if gauge.value is None:
        return f"{name} {paint('not recorded', 'dim', view)}"
    value = number(gauge.value).rjust(VALUE_COLUMNS)
    unit = "" if gauge.unit == "1" else gauge.unit
    room = max(4, width - NAME_COLUMNS - VALUE_COLUMNS - UNIT_COLUMNS - 4)
    curve = sparkline(gauge.recent[-room:], width=room, unicode=view.unicode) if len(gauge.recent) > 1 else ""
    text = paint(value, "sev0", view) if isinstance(gauge.value, str) else value
    return f"{name} {text} {pad(unit[:UNIT_COLUMNS], UNIT_COLUMNS)} {curve}".rstrip()


def _alerts(snapshot: Snapshot, view: View, width: int) -> Iterator[list[str]]:
    """Yield the lines of each alert, the most severe first; among equals the newest first."""
    newest_first = [alert for alert in reversed(snapshot.alerts) if alert.tells_of_illness]
    for event in sorted(newest_first, key=lambda alert: SEVERITIES.index(alert.severity or "note")):
        word = event.severity or event.event
        first, *rest = paragraph(printable(f"{event.message} {_since(event)}".strip(), view), width - 11)
        cut = ("\N{HORIZONTAL ELLIPSIS}" if view.unicode else "...") if len(rest) > 1 else ""
        yield [
            f"{paint(pad(word, 8), COLOURS.get(word, word), view)} {first.strip()}",
            *(" " * 9 + line.strip() + cut for line in rest[:1]),
        ]


def _padded(text: str, width: int) -> str:
    """Return text, possibly with colour codes, padded to a width."""
    return text + " " * max(0, width - columns(PAINT.sub("", text)))
