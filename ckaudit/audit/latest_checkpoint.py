"""The newest checkpoint against the whole contract: what one file cannot truthfully say is worth a word in triage too."""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from msgspec.structs import replace

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.contradictions import ATTENTION_GRID_RANGE, ATTENTION_ROW_MASS
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.contract.io.folder import list_files, list_folder
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import UNKNOWN_FIELD, UNKNOWN_WORD

UNREAD = (UNKNOWN_WORD.code, UNKNOWN_FIELD.code)
"""What the reader passes over: it makes no number wrong."""

LOST = tuple(kind.code for kind in (ATTENTION_GRID_RANGE, ATTENTION_ROW_MASS))
"""Notes of maps that are lost, without which the training is judged."""


def contradictions_of_newest(path: Path, *, step: int | None = None, tried: int = 3) -> Iterator[Finding]:
    """Yield what contradicts itself in the newest checkpoint that can be read, one finding of a kind.

    A field or a word that the contract does not know is a note: the training is judged without it.

    A writer that is wrong is so in every file; all of them are judged by `validate`, and what cannot be read at all is found
    by the reader of the run.

    Args:
        path: A run folder or a checkpoint file.
        step: The newest until then; default: of all.
        tried: So many of the newest are tried: a writer whose files cannot be read writes none that can.
    """
    folder = list_folder(path) if path.is_dir() else list_files([path])
    files = [
        checkpoint
        for checkpoint in folder.checkpoints
        if checkpoint.rank is None and (step is None or (checkpoint.step or 0) <= step)
    ]
    for file in sorted(files, key=lambda file: file.step or 0, reverse=True)[:tried]:
        try:
            checked = check_checkpoint(read_bytes(file.path, file.shown, root=folder.root), file.shown)
        except BrokenFile:
            continue
        if checked.document is not None:
            yield from _folded([*_graded(checked.findings)])
            return


def _graded(findings: list[Finding]) -> Iterator[Finding]:
    """Yield what is worth a word; the reader tells of triggers itself, for every checkpoint has some."""
    for finding in findings:
        if finding.code not in UNREAD:
            yield from [finding] if finding.severity != "note" or finding.code in LOST else []
        elif not (finding.pointer or "").startswith("/triggers/"):
            yield replace(finding, severity="note")


def _folded(findings: list[Finding]) -> Iterator[Finding]:
    """Yield one finding of each code, that names the other places too."""
    code = attrgetter("code")
    for _, group in groupby(sorted(findings, key=code), key=code):
        first, *others = group
        places = [other.where for other in others if other.where]
        yield replace(first, message=first.message + (f" (and {len(others)} more)" if others else ""), also=places)
