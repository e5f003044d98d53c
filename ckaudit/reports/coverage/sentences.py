"""The sentences that a screen and Markdown say alike of coverage."""

from collections import Counter
from collections.abc import Sequence

from ckaudit.audit.coverage import Coverage, Row
from ckaudit.audit.program import Line
from ckaudit.audit.remedies import INTO, Remedy
from ckaudit.material.counts import plural
from ckaudit.metrics.catalogue import RANKS

LEVELS = (
    "must, should and nice say how much a {scale} run in its {stage} stage needs a number on record, "
    "whether or not a rule reads it"
)


def headline(found: Coverage) -> str:
    """Return how many rules cannot judge, and what helps most."""
    if found.waiting:
        text = f"{len(found.waiting)} of {plural(found.judges, 'rule')} cannot judge this run, for want of numbers"
        best, freed = _best(found)
        return f"{text}; number {best} below lets {freed} of them." if freed else f"{text}; what follows brings them."
    if found.remedies and found.remedies[0].readers:
        readers = ", ".join(_code(each) for each in found.remedies[0].readers)
        return f"Every rule can judge this run; number 1 below would tell more to {readers}."
    if found.remedies:
        return "Every rule and cause has what it needs. What follows is for those who read the run, the most needed first."
    return "Nothing that a run like this needs is missing."


def levels_sentence(found: Coverage) -> str:
    """Return what the three levels mean."""
    return LEVELS.format(scale=found.scale, stage=found.stage)


def title_of(place: int, remedy: Remedy, found: Coverage) -> str:
    """Return the number of a remedy and why it comes where it does: whom it lets judge, tells more, or what it brings."""
    freed = [each.code for each in found.waiting if each.place == place]
    if freed:
        return f"{place}. Lets {plural(len(freed), 'rule')} judge: {', '.join(freed)}"
    if remedy.readers:
        return f"{place}. Tells more to {', '.join(map(_code, remedy.readers))}"
    levels = {row.name: row.level for row in found.rows}
    if "must" in map(levels.get, remedy.names):
        counts = Counter(levels[name] for name in remedy.names)
        return f"{place}. Brings {', '.join(f'{counts[level]} {level}' for level in RANKS if counts[level])}"
    return f"{place}. {', '.join(f'{name} ({levels[name]})' for name in remedy.names)}"


def over_sentence(found: Coverage) -> str:
    """Return for which run the steps are meant, or an empty string where they are for this one."""
    if not found.over:
        return ""
    if not any(INTO in each.code for each in found.remedies):
        return "This run is over: the lines are for the next one."
    return "This run is over: the lines are for the next one. Only commands with --into can still add to this one."


def partial_sentence(row: Row) -> str:
    """Return why a number that has values does not count, or an empty string."""
    others = ", ".join(name for name in row.evidence if name != row.name)
    return f"has values, but none of {others} is recorded, so that they say little" if row.partial else ""


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


def _code(reader: str) -> str:
    """Return what a rule or cause is called in short."""
    return reader.partition(" ")[0]


def _best(found: Coverage) -> tuple[int, int]:
    """Return the number of the remedy that lets most rules judge, and how many."""
    freed = {place: sum(each.place == place for each in found.waiting) for place in range(1, len(found.remedies) + 1)}
    return max(freed.items(), key=lambda pair: pair[1], default=(0, 0))
