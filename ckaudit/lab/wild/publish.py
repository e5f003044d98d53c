"""The wild score on paper: `docs/wild.md`, and the ledger of every look at a drawing."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from ckaudit.errors import UsageError
from ckaudit.lab.score.publish import BEGIN, END, commit, today
from ckaudit.lab.score.scoreboard import Share
from ckaudit.lab.wild.foresight import LeadRow
from ckaudit.lab.wild.score import Row, WildScore

DOCUMENT, LEDGER = Path("docs/wild.md"), Path("docs/wild-ledger.csv")
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


def add_to_ledger(score: WildScore, path: Path = LEDGER) -> str:
    """Add a line for each form to the ledger and say so; where there is no such folder, do nothing."""
    if not path.parent.is_dir():
        return ""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as stream:
        lines = csv.writer(stream, lineterminator="\n")
        if is_new:
            lines.writerow(COLUMNS)
        about = (today(), commit(), score.split, score.seed, score.draws)
        leads = {row.name: _lead(row) for row in score.leads}
        lines.writerows((*about, row.name, *_shares(row), *leads.get(row.name, [""] * 5)) for row in score.forms)
    return f"added {len(score.forms)} lines to {path}"


def _shares(row: Row) -> Sequence[str]:
    shares: Sequence[Share] = (
        row.found,
        row.right,
        row.among_three,
        row.sure_and_wrong,
        row.placed,
        row.grave,
        row.flagged,
        row.harmless_flagged,
    )
    return [f"{share.hits}/{share.of}" for share in shares]


def _lead(row: LeadRow) -> Sequence[str]:
    told, ahead, alarms = (f"{share.hits}/{share.of}" for share in (row.told, row.ahead, row.alarms))
    steps, part = ("" if number is None else f"{number:.3g}" for number in (row.steps, row.share))
    return [told, ahead, steps, part, alarms]


def write_document(score: WildScore, draw: Callable[[WildScore], str], path: Path = DOCUMENT) -> str:
    """Write the tables of a split between its marks in the document, and say so.

    Raises:
        UsageError: If the document is not there, or has no marks for this split.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    begin, end = BEGIN.format(score.split), END.format(score.split)
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise UsageError(f"{path} has no marks between which is written", hint="--write is for a clone of the repository")
    about = f"{today()}, commit {commit()}, {score.tool}: {score.draws} draws of seed {score.seed}."
    path.write_text(f"{before}{begin}\n\n{about}\n\n{draw(score)}\n{end}{after}", encoding="utf-8")
    return f"wrote {path}"
