"""Publishing of the wild score: `docs/wild.md`, and the ledger of every scoring of a drawing."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ckaudit.errors import UsageError
from ckaudit.lab.score.publish import BEGIN, END, commit, today
from ckaudit.lab.score.scoreboard import Share
from ckaudit.lab.wild.foresight import LeadRow
from ckaudit.lab.wild.pair_score import PairRow, PairScore
from ckaudit.lab.wild.score import FormRow, WildScore

DOCUMENT, LEDGER, PAIR_LEDGER = Path("docs/wild.md"), Path("docs/wild-ledger.csv"), Path("docs/pairs-ledger.csv")
PAIR_COLUMNS = (
    "date",
    "commit",
    "split",
    "seed",
    "groups",
    "good_runs",
    "alike_worse",
    "alike_failed",
    "alike_told",
    "harmful_found",
    "harmful_failed",
    "harmful_known",
    "helpful_found",
    "helpful_failed",
)
COLUMNS = (
    "date",
    "commit",
    "split",
    "seed",
    "draws",
    "form",
    "found",
    "cause",
    "top3",
    "sure_and_wrong",
    "place",
    "healthy_sev0_sev1",
    "healthy_flagged",
    "harmless_flagged",
    "slow_told",
    "slow_ahead",
    "lead_steps",
    "lead_share",
    "slow_twins_told",
)


def add_to_ledger(score: WildScore | PairScore, path: Path | None = None) -> str:
    """Add a line for each form, or each number of good runs, to the ledger, and return a message; only if its folder exists."""
    pairs = isinstance(score, PairScore)
    path = path or (PAIR_LEDGER if pairs else LEDGER)
    if not path.parent.is_dir():
        return ""
    if isinstance(score, PairScore):
        rows = [(score.groups, row.good, *_hits(_pair_shares(row))) for row in score.rows]
    else:
        leads = {row.name: _lead(row) for row in score.leads}
        rows = [(score.draws, row.name, *_hits(_shares(row)), *leads.get(row.name, [""] * 5)) for row in score.forms]
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as stream:
        lines = csv.writer(stream, lineterminator="\n")
        if is_new:
            lines.writerow(PAIR_COLUMNS if pairs else COLUMNS)
        lines.writerows((today(), commit(), score.split, score.seed, *row) for row in rows)
    return f"added {len(rows)} lines to {path}"


def _hits(shares: Sequence[Share]) -> list[str]:
    return [f"{share.hits}/{share.of}" for share in shares]


def _lead(row: LeadRow) -> Sequence[str]:
    warned, ahead, alarms = (f"{share.hits}/{share.of}" for share in (row.warned, row.ahead, row.alarms))
    steps, part = ("" if number is None else f"{number:.3g}" for number in (row.steps, row.share))
    return [warned, ahead, steps, part, alarms]


def _pair_shares(row: PairRow) -> Sequence[Share]:
    return row.worse, row.failed, row.told, row.found, row.stopped, row.by_one_who_knows, row.helped, row.held_up


def _shares(row: FormRow) -> Sequence[Share]:
    return (row.found, row.right, row.among_three, row.sure_and_wrong, row.placed, row.grave, row.flagged, row.harmless_flagged)


def write_document(score: WildScore | PairScore, draw: Callable[[Any], str], path: Path = DOCUMENT) -> str:
    """Write the tables of a split between its marks in the document, and return a message.

    Raises:
        UsageError: If the document does not exist, or has no marks for this split.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    part = f"{score.split} --pairs" if isinstance(score, PairScore) else score.split
    begin, end = BEGIN.format(part), END.format(part)
    before, begin_mark, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (begin_mark and closed):
        raise UsageError(f"{path} has no marks between which is written", hint="--write is for a clone of the repository")
    drawn = f"{score.groups} groups" if isinstance(score, PairScore) else f"{score.draws} draws"
    about = f"{today()}, commit {commit()}, {score.tool}: {drawn} of seed {score.seed}."
    path.write_text(f"{before}{begin}\n\n{about}\n\n{draw(score)}\n{end}{after}", encoding="utf-8")
    return f"wrote {path}"
