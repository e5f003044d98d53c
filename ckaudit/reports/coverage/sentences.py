"""The sentences that a screen and Markdown say alike of coverage."""

from collections.abc import Sequence

from ckaudit.audit.coverage import Coverage
from ckaudit.audit.program import Line
from ckaudit.audit.remedies import INTO
from ckaudit.material.counts import plural
from ckaudit.metrics.catalogue import entry_of


def next_sentence(found: Coverage) -> str:
    """Return what to log next and why: what most checks cannot judge without, as triage counts it."""
    if found.next:
        first, *others = found.next
        text = f"Log {first.name} next{_by(first.name, found)}: {plural(first.checks, 'check')} cannot judge without it"
        rest = ", ".join(f"{each.name} ({plural(each.checks, 'check')})" for each in others)
        return f"{text}; then {rest}." if rest else f"{text}."
    waited = [row for row in found.rows if (row.rules or row.causes) and not (row.not_applicable or row.unusable)]
    if read := [name for row in waited for name in (row.lacks if row.recorded else (row.name,))]:
        return f"Every rule has what it needs; {first_of(read)} would tell rules and causes more."
    if found.remedies:
        return "Every rule and cause has what it needs; what follows is for the eye."
    return "Nothing that a run like this needs is missing."


def _by(name: str, found: Coverage) -> str:
    """Return the call or command that records a metric, in short; empty: nothing below does."""
    owner = entry_of(name)
    line = next((each.line for each in found.remedies if owner in each.names), "")
    call, bracket, rest = (line.partition(" = ")[2] or line).partition("(")
    return f", with {call}{'(...)' if rest != ')' else '()'}" if bracket else f", with {call}" if line else ""


def over_sentence(found: Coverage) -> str:
    """Return for which run the lines are meant, or an empty string where they are for this one."""
    if not found.over:
        return ""
    if not any(INTO in each.line for each in found.remedies):
        return "This run is over: the lines are for the next one."
    return "This run is over: the lines are for the next one. Only those that begin with ckaudit can still add to this one."


def said_of(line: Line) -> str:
    """Return when a line of the program comes, and the first of what it records."""
    return f"{line.when}: {first_of(line.brings)}" if line.brings else line.when


def first_of(names: Sequence[str], *, most: int = 3) -> str:
    """Return the first names, and how many more there are.

    >>> first_of(["val_loss", "val_ppl"]), first_of("abcdef")
    ('val_loss, val_ppl', 'a, b, c and 3 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
