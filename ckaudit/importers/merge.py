"""Entries of a foreign log joined to one line per step; a log that goes back and says something else is a resume."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from ckaudit.importers.imported import Row


class Merged(Struct, frozen=True):
    """Lines in the order of sessions, then of steps, and how they came together.

    Attributes:
        rows: One line per session and step.
        resumes: For each resume the last step before it and the first one after it.
        replaced: Values that stood twice at one step with different numbers, the later one held.
        disordered: Entries whose step is below the one before them though nothing was said again.
    """

    rows: list[Row]
    resumes: tuple[tuple[int, int], ...]
    replaced: int
    disordered: int


def merge(entries: Iterable[tuple[int, Mapping[str, float]]]) -> Merged:
    """Join entries by step.

    Entries of one step fill each other up. Where a step lies below those before it and holds another value than it had,
    the run went back and a new session begins: by the contract it replaces the older one from its first step on.

    Args:
        entries: Step and values by catalogue name, in the order of the log.

    >>> merge([(1, {"val_loss": 2.0}), (1, {"train_loss_raw": 3.0})]).rows
    [{'step': 1, 'val_loss': 2.0, 'train_loss_raw': 3.0}]
    """
    sessions: list[dict[int, Row]] = [{}]
    resumes: list[tuple[int, int]] = []
    replaced = disordered = 0
    last = -1
    for step, values in entries:
        row = sessions[-1].get(step)
        if row is None:
            sessions[-1][step] = {"step": step, **values}
            disordered += step < last
        elif not (changed := _changed(row, values)):
            row.update(values)
            disordered += step < last
        elif step < last:
            resumes.append((last, step))
            sessions.append({step: {"step": step, **values}})
        else:
            row.update(values)
            replaced += changed
        last = step
    return Merged(_in_order(sessions), tuple(resumes), replaced, disordered)


def _changed(row: Row, values: Mapping[str, float]) -> int:
    """Count the values that differ from those the row holds; a NaN equals a NaN."""
    return sum(name in row and repr(row[name]) != repr(value) for name, value in values.items())


def _in_order(sessions: list[dict[int, Row]]) -> list[Row]:
    if len(sessions) == 1:
        return [row for _, row in sorted(sessions[0].items())]
    return [
        {"step": step, "session": number, **row} for number, rows in enumerate(sessions) for step, row in sorted(rows.items())
    ]


def merge_notes(merged: Merged) -> list[str]:
    """Say how the entries came together, nothing where each step stood there once and in order."""
    notes = []
    if merged.resumes:
        before, after = merged.resumes[0]
        times = "once" if len(merged.resumes) == 1 else f"{len(merged.resumes):,} times"
        notes.append(
            f"steps go back {times}, first from {before:,} to {after:,}, and say something else: taken as a resume, what comes "
            "later holds from there on; if these are several runs, give each a file of its own"
        )
    if merged.replaced:
        notes.append(f"{merged.replaced:,} values stand twice at one step: the later one was taken")
    if merged.disordered:
        notes.append(f"{merged.disordered:,} entries stand below their place in the order of steps: they were sorted in")
    return notes
