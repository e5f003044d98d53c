"""What to record next: the sentences shared by all formats, and the report in Markdown and JSON."""

import re
from collections import Counter
from collections.abc import Iterator
from shlex import quote
from typing import Any

import msgspec

from ckaudit.audit.coverage.table import Coverage, Line, Remedy, Row, Young
from ckaudit.metrics.catalogue import RANKS
from ckaudit.reports.escape import backticks, escaped, prose, visible
from ckaudit.reports.json import dumps, with_head
from ckaudit.reports.view import View
from ckaudit.wording import first_names, plural

LEVELS = "must, should, nice: how much a {scale} run in its {stage} stage needs a number, read by a rule or by you"
NEEDED = {"must": "that it must have", "should": "that it should have", "nice": "nice to have"}
MORE = "-v tells all of it; ckaudit explain NAME says what a name means."
VERSION = "ck.coverage.v1"


def markdown(coverage: Coverage, view: View) -> str:
    """Return what to log next, counts, tables, and what no line can record."""
    about = f"scale {coverage.scale} ({coverage.scale_reason}), stage {coverage.stage} ({coverage.stage_reason})"
    counts = [f"{level} {len(coverage.of(level)) - len(coverage.missing(level))} of {len(coverage.of(level))}" for level in RANKS]
    blocks = [
        f"### ckaudit coverage: {', '.join(counts)} recorded",
        prose(headline(coverage, max_names=None)),
        *(["\n".join(["```text", visible(whole_command(coverage)), "```"])] if coverage.part_of else []),
        prose(levels_sentence(coverage)) + ".",
    ]
    blocks.append(escaped(f"{coverage.subject}: {about}"))
    blocks += [
        escaped(f"Note: {note}")
        for note in coverage.notes
        if view.verbose or "ckaudit validate says" in note or "cut off" in note
    ]
    if view.verbose and (recorded := [row.name for row in coverage.rows if row.recorded]):
        blocks.append(f"Recorded: {', '.join(map(backticks, recorded))}")
    if coverage.part_of:
        return "\n\n".join(blocks) + "\n"
    if coverage.remedies:
        blocks.append("### What to record next, the most telling first")
    if sentence := over_sentence(coverage):
        blocks.append(sentence)
    blocks += [_step(place, remedy, coverage) for place, remedy in enumerate(coverage.remedies, start=1)]
    return "\n\n".join([*blocks, *_without_a_line(coverage)]) + "\n"


def _step(place: int, remedy: Remedy, coverage: Coverage) -> str:
    """Return why this step comes here, lines to copy, where they go, and the table of what they record."""
    waited = {name for waiting in coverage.waiting for name in waiting.needs}
    lines = [f"{line.code}  # {line_text(line, max_names=None)}" if line.when else line.code for line in remedy.lines]
    table = [
        "| | not recorded | what it is | lets judge | read by |",
        "|---|---|---|---|---|",
        *(_line(row, waited) for row in rows_of(remedy, coverage)),
    ]
    blocks = [f"#### {prose(title_of(place, remedy, coverage, max_names=None))}"]
    blocks.append(prose(remedy.where))
    blocks += ["\n".join(["```text", *map(visible, lines), "```"])] if lines else []
    blocks += [prose(remedy.besides)] if remedy.besides else []
    blocks += ["\n".join(table)] if remedy.names else []
    extras = [f"- {', '.join(map(backticks, extra.names))} {prose(extra.what)}" for extra in remedy.extras]
    return "\n\n".join([*blocks, *(["\n".join(extras)] if extras else [])])


def _line(row: Row, waited: set[str]) -> str:
    names = [row.name, *(name for name in row.lacks if name in waited)]
    missing = f"It {side_sentence(row)}." if row.recorded else row.title
    description = f"{missing} It {sentence}." if (sentence := partial_sentence(row)) else missing
    readers = [", ".join(map(backticks, group)) or "-" for group in (row.waiting, (*row.rules, *row.causes))]
    return f"| {row.level} | {', '.join(map(backticks, names))} | {prose(description)} | {' | '.join(readers)} |"


def _without_a_line(coverage: Coverage) -> Iterator[str]:
    """Yield what is missing but has no line, and what is not required, each with the reason."""
    titles = ("Judged with several of these together:", "Not judged, and no line above changes that:")
    for title, rest in zip(titles, leftover(coverage), strict=True):
        if rest:
            yield "\n".join([title, "", *(f"- {prose(sentence)}" for sentence in rest)])
    if coverage.young:
        details = [young_sentence(young).removeprefix(f"{young.name}: ") for young in coverage.young]
        lines = [f"- {backticks(young.name)}: {prose(detail)}" for young, detail in zip(coverage.young, details, strict=True)]
        yield "\n".join(["Not judged yet, for too few points:", "", *lines])
    if rows := [row for row in coverage.rows if row.unusable and not row.not_applicable]:
        yield "\n".join(["Not computed, though what it is made of is recorded:", "", *(_item(row, row.unusable) for row in rows)])
    if rows := [row for row in coverage.rows if row.not_applicable and not row.recorded]:
        yield "\n".join(["Not asked for:", "", *(_item(row, row.not_applicable) for row in rows)])


def _item(row: Row, reason: str) -> str:
    return f"- {backticks(row.name)}: {prose(reason)}"


def headline(coverage: Coverage, *, max_names: int | None = 3) -> str:
    """Return how many rules cannot judge, and what helps most, naming at most `max_names`."""
    if coverage.part_of:
        return part_sentence(coverage)
    if coverage.waiting:
        text = f"{len(coverage.waiting)} of {plural(coverage.checks, 'check')} cannot judge this run, for want of numbers"
        best, freed = _best(coverage)
        which = f"{freed} of them" if freed < len(coverage.waiting) else "it" if freed == 1 else "them"
        return f"{text}; number {best} below lets {which}." if freed else f"{text}; what follows brings them."
    if coverage.young:
        judged = f"{coverage.checks - len(coverage.young)} of {coverage.checks} checks can judge this run"
        return f"{judged}; too few points yet for {first_names([young.name for young in coverage.young], max_names)}."
    if coverage.remedies and coverage.remedies[0].readers:
        readers = first_names([_name(reader) for reader in coverage.remedies[0].readers], max_names)
        return f"Every check has the numbers that it needs; number 1 below adds evidence for {readers}."
    if coverage.remedies:
        return "Every check has the numbers that it needs. What follows is for those who read the run, the most needed first."
    return "Nothing that a run like this needs is missing."


def part_sentence(coverage: Coverage) -> str:
    """Return the sentence that only one file of a run was examined."""
    what = "These are the scalars" if "scalars.jsonl" in coverage.subject else "This is one checkpoint"
    return f"{what} of a run; name its folder, for what is missing here may stand there:"


def whole_command(coverage: Coverage) -> str:
    """Return the command that examines the whole run."""
    return f"ckaudit coverage {quote(coverage.part_of)}"


def levels_sentence(coverage: Coverage) -> str:
    """Return what the three levels mean."""
    return LEVELS.format(scale=coverage.scale, stage=coverage.stage)


def title_of(place: int, remedy: Remedy, coverage: Coverage, *, max_names: int | None = 6) -> str:
    """Return the number of a remedy and its benefit: which checks it enables or improves, or who would read its numbers."""
    freed = [waiting.name for waiting in coverage.waiting if waiting.place == place]
    if freed:
        named, joined = first_names(freed, max_names), _joined(place, coverage, "; with")
        return f"{place}. Lets {plural(len(freed), 'check')} judge: {named}{joined}"
    if joined := _joined(place, coverage, "With"):
        return f"{place}. {joined}"
    if remedy.readers:
        return f"{place}. Adds evidence for {first_names([*map(_name, remedy.readers)], max_names)}"
    levels = {row.name: row.level for row in coverage.rows}
    counts = Counter(levels[name] for name in remedy.names)
    counted = ", ".join(f"{plural(counts[level], 'number')} {NEEDED[level]}" for level in RANKS if counts[level])
    return f"{place}. For your own reading: {counted}"


def over_sentence(coverage: Coverage) -> str:
    """Return which run the steps are meant for, or an empty string if it is this one."""
    if not coverage.over:
        return ""
    if not any("--into " in remedy.code for remedy in coverage.remedies):
        return "This run is over: the lines are for the next one."
    return "This run is over: lines of code are for the next one, commands with --into can still add to this one."


def partial_sentence(row: Row) -> str:
    """Return why a number that has values does not count as recorded, or an empty string."""
    others = ", ".join(name for name in row.evidence if name != row.name)
    return f"has values, which say little without {others}: the lines above bring these" if row.partial else ""


def side_sentence(row: Row) -> str:
    """Return which side of a partly recorded number is missing."""
    return f"is recorded, but not {', '.join(row.lacks)}: the lines above bring that"


def rows_of(remedy: Remedy, coverage: Coverage) -> list[Row]:
    """Return what a remedy records, the most needed first, otherwise in its own order."""
    rows = [row for row in coverage.rows if row.name in remedy.names]
    return sorted(rows, key=lambda row: (RANKS.index(row.level), remedy.names.index(row.name)))


def leftover(coverage: Coverage) -> tuple[list[str], list[str]]:
    """Return the checks that only several remedies together enable, with their numbers, and those that no remedy enables."""
    several = [waiting for waiting in coverage.waiting if waiting.place is None and waiting.places]
    none = [waiting for waiting in coverage.waiting if not waiting.places]
    joined = [f"{waiting.name}: numbers {' and '.join(map(str, waiting.places))}" for waiting in several]
    return joined, [f"{waiting.name}: {waiting.detail}" for waiting in none]


def young_sentence(young: Young) -> str:
    """Return which check has too few numbers so far, and how many it has.

    >>> young_sentence(Young(code="A1", name="a", detail="step 200; b is judged after step 200"))
    'a: step 200 is the last so far; b is judged after step 200'
    """
    detail = re.sub(r"^(step \d+);", r"\1 is the last so far;", young.detail)
    return f"{young.name}: {detail}"


def line_text(line: Line, *, max_names: int | None = 3) -> str:
    """Return when a line of the program is added, and the first numbers that it records."""
    return f"{line.when}: {first_names(line.brings, max_names)}" if line.brings else line.when


def _joined(place: int, coverage: Coverage, start: str) -> str:
    """Return which checks a remedy completes together with earlier ones, or an empty string if it is not the last of them."""
    several = [
        waiting for waiting in coverage.waiting if waiting.place is None and waiting.places and waiting.places[-1] == place
    ]
    others = sorted({other for waiting in several for other in waiting.places} - {place})
    if not others:
        return ""
    numbers = f"number{'s' if len(others) > 1 else ''} {' and '.join(map(str, others))}"
    return f"{start} {numbers} lets {plural(len(several), 'check')} judge: {', '.join(waiting.name for waiting in several)}"


def _name(reader: str) -> str:
    """Return the name of a rule without its code, or the name of a cause."""
    return reader.rpartition(" ")[2]


def _best(coverage: Coverage) -> tuple[int, int]:
    """Return the number of the remedy that enables the most rules, and how many."""
    freed = {place: sum(waiting.place == place for waiting in coverage.waiting) for place in range(1, len(coverage.remedies) + 1)}
    return max(freed.items(), key=lambda pair: pair[1], default=(0, 0))


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many entries of one level the run has recorded.

    Attributes:
        recorded: Number of entries recorded.
        of: Number of entries that make sense for the run.
    """

    recorded: int
    of: int


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many entries the run has, by importance.

    Attributes:
        must: What the run cannot do without.
        should: What it should have.
        nice: What is nice to have.
    """

    must: Counted
    should: Counted
    nice: Counted


def as_json(coverage: Coverage, view: View) -> str:  # noqa: ARG001  programs get everything
    """Return the whole document, with the counts by level."""
    whole: dict[str, Any] = msgspec.to_builtins(coverage)
    wanted = {level: len(coverage.of(level)) for level in RANKS}
    counts = Counts(
        **{level: Counted(recorded=count - len(coverage.missing(level)), of=count) for level, count in wanted.items()}
    )
    rows = whole.pop("rows")
    return dumps(with_head(VERSION, {**whole, "counts": counts, "rows": rows}))
