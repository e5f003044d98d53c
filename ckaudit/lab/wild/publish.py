"""The wild score on paper: `docs/wild.md`, and the ledger of every look at a drawing."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from ckaudit.errors import UsageError
from ckaudit.lab.score.publish import BEGIN, END, commit, today
from ckaudit.lab.score.scoreboard import Share
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
        lines.writerows((today(), commit(), score.split, score.seed, score.draws, row.name, *_shares(row)) for row in score.forms)
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
