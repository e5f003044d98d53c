"""The score of a drawing of the wild split, on a screen and in Markdown."""

from collections.abc import Iterator, Sequence

from ckaudit.lab.score.scoreboard import Share
from ckaudit.lab.wild.foresight import LeadRow
from ckaudit.lab.wild.pair_score import PairScore
from ckaudit.lab.wild.score import FormRow, WildScore
from ckaudit.reports.lab.cells import Table, percent
from ckaudit.reports.lab.markdown import table as markdown_table
from ckaudit.reports.lab.terminal import room, table
from ckaudit.reports.terminal.screen_text import paint, printable, wrap
from ckaudit.reports.view import View
from ckaudit.wording import first_names

HEAD = ("", "found", "cause", "top 3", "sure, wrong", "place", "healthy: sev0-1", "sev0-2", "harmless, flagged")
LEGEND = (
    "found: a finding of sev0 to sev2, of draws whose fault made the training worse, or changed weights or code and the losses",
    "cause: the first one named is the truth, or as good; top 3: it is among three; sure, wrong: a wrong one of 70 % or more",
    "place: the part that the fault was done to is named, or something in it",
    "healthy: twins of the same seed with a finding; harmless, flagged: draws without effect that have one",
)
LEAD_HEAD = ("told", "ahead", "lead in steps", "of the steps to there", "twins told of")
LEAD_LEGEND = (
    "foresight: slow faults that made the training worse, each recording judged as it stood at 40 steps",
    "told: a finding that the true cause, or one as good, accounts for, and the twin has not, of those whose loss leaves it",
    "ahead: it is told before the loss has left; lead: median of the steps from the one to the other, of those that are told",
    "of the steps to there: the lead as a share of the steps from the fault to where the loss has left",
    "twins told of: healthy twins with any finding at any of those steps, in a line of a code with that one",
)
MAX_NAMES = 12  # names of a list


def cells(heading: str, rows: Sequence[FormRow], *, interval: bool = False) -> Table:
    """Return the heading and a line for each row."""

    def cell(share: Share) -> str:
        return percent(share, interval=interval) + (f" of {share.of}" if share.of else "")

    lines = [
        (
            row.name,
            cell(row.found),
            cell(row.right),
            cell(row.among_three),
            cell(row.sure_and_wrong),
            cell(row.placed),
            cell(row.grave),
            cell(row.flagged),
            cell(row.harmless_flagged),
        )
        for row in rows
    ]
    return [(heading, *HEAD[1:]), *lines]


def lead_cells(heading: str, rows: Sequence[LeadRow]) -> Table:
    """Return the heading and a line for each row with its lead times."""

    def cell(share: Share) -> str:
        return percent(share) + (f" of {share.of}" if share.of else "")

    def line(row: LeadRow) -> tuple[str, ...]:
        steps = "-" if row.steps is None else f"{row.steps:g}"
        part = "-" if row.share is None else f"{100 * row.share:.0f} %"
        return row.name, cell(row.warned), cell(row.ahead), steps, part, cell(row.alarms)

    return [(heading, *LEAD_HEAD), *map(line, rows)]


def on_screen(score: WildScore, view: View) -> str:
    """Return the tables of a drawing by form and, in verbose mode, by fault and family."""
    width = room(view)
    lines = [paint(f"{score.split}, seed {score.seed}: {score.draws} draws", "bold", view), ""]
    tables = [("form", score.forms)] + ([("fault", score.faults), ("family", score.families)] if view.verbose else [])
    for heading, rows in tables:
        lines += [*table(cells(heading, rows), width, view, min_widths={}), ""]
    foresight = [("foresight", score.leads), ("by code", score.lead_codes[: None if view.verbose else MAX_NAMES])]
    for heading, leads in [*foresight, *([("by fault", score.lead_faults)] if view.verbose else [])] if score.leads else []:
        lines += [*table(lead_cells(heading, leads), width, view, min_widths={}), ""]
    for text in (*_lists(score), *LEGEND, *(LEAD_LEGEND if score.leads else ())):
        lines += wrap(printable(text, view), width)
    return "\n".join(lines) + "\n"


def on_paper(score: WildScore, _view: View) -> str:
    """Return all tables as Markdown."""
    parts = [
        markdown_table(cells("form", score.forms, interval=True)),
        markdown_table(cells("fault", score.faults)),
        markdown_table(cells("family", score.families)),
        *_lists(score),
        "\n".join(f"- {line}" for line in LEGEND),
    ]
    if score.leads:
        named = (("foresight", score.leads), ("fault", score.lead_faults), ("code", score.lead_codes))
        parts += [markdown_table(lead_cells(heading, rows)) for heading, rows in named]
        parts.append("\n".join(f"- {line}" for line in LEAD_LEGEND))
    return "\n\n".join(parts) + "\n"


def _lists(score: WildScore) -> Iterator[str]:
    for what, counts in (("wrong causes named with confidence", score.wrong), ("findings of healthy twins", score.alarms)):
        if counts:
            yield f"{what}: {first_names([f'{name} {count}' for name, count in counts.items()], MAX_NAMES)}"
    for name, error in list(score.broken.items())[:MAX_NAMES]:
        yield f"broke the audit: {name}: {error}"


PAIR_HEAD = ("good runs", "alike: worse", "failed", "told", "harmful: worse", "failed", "known", "helpful: better", "failed")
PAIR_LEGEND = (
    "alike: runs that differ from the good ones by seed, order, rounding or a resume alone; told: not called within noise",
    "harmful, helpful: changes of 3 standard deviations of the good runs and more; worse, better: by diff; failed: by gate",
    "known: found by one who knew that standard deviation and were wrong as seldom as a question of diff may be, 1 in 100",
)


def pair_cells(score: PairScore, *, interval: bool = False) -> Table:
    """Return the heading and a line for each number of good runs."""

    def cell(share: Share) -> str:
        return f"{share.hits} of {share.of}" + (f", {percent(share, interval=True)}" if interval and share.of else "")

    lines = [
        (
            str(row.good),
            *map(cell, (row.worse, row.failed, row.told)),
            *map(cell, (row.found, row.stopped, row.by_one_who_knows, row.helped, row.held_up)),
        )
        for row in score.rows
    ]
    return [PAIR_HEAD, *lines]


def _partings(score: PairScore) -> Iterator[str]:
    for name, share in score.partings.items():
        yield f"first step of a strong change, {name}: {share.hits} of {share.of}"


def pairs_on_screen(score: PairScore, view: View) -> str:
    """Return the table of a drawing of groups and, in verbose mode, what was judged wrongly."""
    width = room(view)
    lines = [paint(f"{score.split}, seed {score.seed}: {score.groups} groups", "bold", view), ""]
    lines += [*table(pair_cells(score), width, view, min_widths={}), ""]
    for text in (*_partings(score), *PAIR_LEGEND, *(score.wrong if view.verbose else ())):
        lines += wrap(printable(text, view), width)
    return "\n".join(lines) + "\n"


def pairs_on_paper(score: PairScore, _view: View) -> str:
    """Return the table as Markdown."""
    legend = "\n".join(f"- {line}" for line in (*_partings(score), *PAIR_LEGEND))
    return "\n\n".join([markdown_table(pair_cells(score, interval=True)), legend]) + "\n"
