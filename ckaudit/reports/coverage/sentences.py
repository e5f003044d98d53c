"""The sentences that a screen and Markdown say alike of coverage."""

from collections.abc import Sequence

from ckaudit.audit.coverage import Coverage
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
    read = [row.name for row in found.rows if not row.recorded and not row.not_applicable and (row.rules or row.causes)]
    if read:
        return f"Every rule has what it needs; {', '.join(read)} would tell rules and causes more."
    if found.remedies:
        return "Every rule and cause has what it needs; what follows is for the eye."
    return "Nothing that a run like this needs is missing."


def _by(name: str, found: Coverage) -> str:
    """Return the call or command that records a metric, in short; empty: nothing below does."""
    owner = entry_of(name)
    line = next((each.line for each in found.remedies if owner in each.names), "")
    call, bracket, _ = line.partition(" = ")[2].partition("(") if " = " in line else line.partition("(")
    return f", with {call}{'(...)' if bracket else ''}" if line else ""


def over_sentence(found: Coverage) -> str:
    """Return for which run the lines are meant, or an empty string where they are for this one."""
    if not found.over:
        return ""
    if not any(INTO in each.line for each in found.remedies):
        return "This run is over: the lines are for the next one."
    return "This run is over: the lines are for the next one. Only those that begin with ckaudit can still add to this one."


def brings(names: Sequence[str], *, most: int = 4) -> str:
    """Return the first of what a line records, and how many more.

    >>> brings(["val_loss", "val_ppl"]), brings("abcdefg")
    ('val_loss, val_ppl', 'a, b, c, d and 3 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
