"""The sentences that a screen and Markdown say alike of coverage."""

import re
from collections import Counter
from collections.abc import Sequence
from shlex import quote

from ckaudit.audit.coverage.table import Coverage, Line, Remedy, Row, Young
from ckaudit.material.counts import plural
from ckaudit.metrics.catalogue import RANKS

LEVELS = "must, should, nice: how much a {scale} run in its {stage} stage needs a number, read by a rule or by you"
HAVE = {"must": "that it must have", "should": "that it should have", "nice": "nice to have"}
MORE = "-v tells all of it; ckaudit explain NAME says what a name means."


def headline(coverage: Coverage, *, max_names: int | None = 3) -> str:
    """Return how many rules cannot judge, and what helps most; `max_names` names at most of those that are told by name."""
    if coverage.part_of:
        return part_sentence(coverage)
    if coverage.waiting:
        text = f"{len(coverage.waiting)} of {plural(coverage.checks, 'check')} cannot judge this run, for want of numbers"
        best, freed = _best(coverage)
        which = f"{freed} of them" if freed < len(coverage.waiting) else "it" if freed == 1 else "them"
        return f"{text}; number {best} below lets {which}." if freed else f"{text}; what follows brings them."
    if coverage.young:
        judged = f"{coverage.checks - len(coverage.young)} of {coverage.checks} checks can judge this run"
        return f"{judged}; too few points yet for {first_of([young.name for young in coverage.young], max_names=max_names)}."
    if coverage.remedies and coverage.remedies[0].readers:
        readers = first_of([_name(reader) for reader in coverage.remedies[0].readers], max_names=max_names)
        return f"Every check has the numbers that it needs; number 1 below adds evidence for {readers}."
    if coverage.remedies:
        return "Every check has the numbers that it needs. What follows is for those who read the run, the most needed first."
    return "Nothing that a run like this needs is missing."


def part_sentence(coverage: Coverage) -> str:
    """Return that only one file of a run was looked at."""
    what = "These are the scalars" if "scalars.jsonl" in coverage.subject else "This is one checkpoint"
    return f"{what} of a run; name its folder, for what is missing here may stand there:"


def whole_command(coverage: Coverage) -> str:
    """Return the command that looks at the whole run."""
    return f"ckaudit coverage {quote(coverage.part_of)}"


def levels_sentence(coverage: Coverage) -> str:
    """Return what the three levels mean."""
    return LEVELS.format(scale=coverage.scale, stage=coverage.stage)


def title_of(place: int, remedy: Remedy, coverage: Coverage, *, max_names: int | None = 6) -> str:
    """Return the number of a remedy and why it comes where it does: whom it lets judge or adds to, or who would read it."""
    freed = [waiting.name for waiting in coverage.waiting if waiting.place == place]
    if freed:
        named, joined = first_of(freed, max_names=max_names), _joined(place, coverage, "; with")
        return f"{place}. Lets {plural(len(freed), 'check')} judge: {named}{joined}"
    if joined := _joined(place, coverage, "With"):
        return f"{place}. {joined}"
    if remedy.readers:
        return f"{place}. Adds evidence for {first_of([*map(_name, remedy.readers)], max_names=max_names)}"
    levels = {row.name: row.level for row in coverage.rows}
    counts = Counter(levels[name] for name in remedy.names)
    told = ", ".join(f"{plural(counts[level], 'number')} {HAVE[level]}" for level in RANKS if counts[level])
    return f"{place}. For your own reading: {told}"


def over_sentence(coverage: Coverage) -> str:
    """Return for which run the steps are meant, or an empty string where they are for this one."""
    if not coverage.over:
        return ""
    if not any("--into " in remedy.code for remedy in coverage.remedies):
        return "This run is over: the lines are for the next one."
    return "This run is over: lines of code are for the next one, commands with --into can still add to this one."


def partial_sentence(row: Row) -> str:
    """Return why a number that has values does not count, or an empty string."""
    others = ", ".join(name for name in row.evidence if name != row.name)
    return f"has values, which say little without {others}: the lines above bring these" if row.partial else ""


def side_sentence(row: Row) -> str:
    """Return which side of a number that is recorded is not."""
    return f"is recorded, but not {', '.join(row.lacks)}: the lines above bring that"


def rows_of(remedy: Remedy, coverage: Coverage) -> list[Row]:
    """Return what a remedy records, the most needed first, then in its own order."""
    rows = [row for row in coverage.rows if row.name in remedy.names]
    return sorted(rows, key=lambda row: (RANKS.index(row.level), remedy.names.index(row.name)))


def leftover(coverage: Coverage) -> tuple[list[str], list[str]]:
    """Return the checks that several remedies let judge together, each with their numbers, and those that none does."""
    several = [waiting for waiting in coverage.waiting if waiting.place is None and waiting.places]
    none = [waiting for waiting in coverage.waiting if not waiting.places]
    joined = [f"{each.name}: numbers {' and '.join(map(str, each.places))}" for each in several]
    return joined, [f"{each.name}: {each.detail}" for each in none]


def young_sentence(young: Young) -> str:
    """Return which check has too few numbers, and how many it has.

    >>> young_sentence(Young(code="A1", name="a", detail="step 200; b is judged after step 200"))
    'a: step 200 is the last so far; b is judged after step 200'
    """
    detail = re.sub(r"^(step \d+);", r"\1 is the last so far;", young.detail)
    return f"{young.name}: {detail}"


def said_of(line: Line, *, max_names: int | None = 3) -> str:
    """Return when a line of the program comes, and the first of what it records."""
    return f"{line.when}: {first_of(line.brings, max_names=max_names)}" if line.brings else line.when


def first_of(names: Sequence[str], *, max_names: int | None = 3) -> str:
    """Return the first names, and how many more there are; None: all of them.

    >>> first_of(["val_loss", "val_ppl"]), first_of("abcdef")
    ('val_loss, val_ppl', 'a, b, c and 3 more')
    """
    more = f" and {len(names) - max_names} more" if max_names is not None and len(names) > max_names else ""
    return ", ".join(names[:max_names]) + more


def _joined(place: int, coverage: Coverage, start: str) -> str:
    """Return whom a remedy lets judge together with those before it, or an empty string where it is not the last of them."""
    several = [
        waiting for waiting in coverage.waiting if waiting.place is None and waiting.places and waiting.places[-1] == place
    ]
    others = sorted({other for waiting in several for other in waiting.places} - {place})
    if not others:
        return ""
    numbers = f"number{'s' if len(others) > 1 else ''} {' and '.join(map(str, others))}"
    return f"{start} {numbers} lets {plural(len(several), 'check')} judge: {', '.join(waiting.name for waiting in several)}"


def _name(reader: str) -> str:
    """Return the name of a rule, without its code, or of a cause."""
    return reader.rpartition(" ")[2]


def _best(coverage: Coverage) -> tuple[int, int]:
    """Return the number of the remedy that lets most rules judge, and how many."""
    freed = {place: sum(waiting.place == place for waiting in coverage.waiting) for place in range(1, len(coverage.remedies) + 1)}
    return max(freed.items(), key=lambda pair: pair[1], default=(0, 0))
