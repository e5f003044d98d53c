"""Location of a finding's numbers on disk: a line of a scalar log, a checkpoint, or the log of another program itself."""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from ckaudit.audit.load_run import is_ours
from ckaudit.contract.io.folder import RunFiles, list_folder, shown_name
from ckaudit.contract.io.jsonl import read_lines
from ckaudit.contract.schema.report import Finding, Place, PlaceKey, place_key
from ckaudit.errors import UnreadableError
from ckaudit.metrics import Metric
from ckaudit.rules import rules

MAX_LINES_OF_STEP = 100
"""Newest lines of a step that are looked through; a program that logs each value in a line of its own writes fewer."""


class _LoggedLine(Struct, frozen=True):
    """One line of a scalar log: its place, and the names that it holds."""

    place: Place
    names: Collection[str]


def evidence_files(path: Path, findings: Iterable[Finding]) -> dict[PlaceKey, Place]:
    """Return the file and line at which each finding begins; findings that no single file shows are left out.

    A finding on scalars begins at their line, one on tensors at the checkpoint of that step.

    Args:
        path: The audited path: a run folder, one of its files, or the log of another program.
        findings: The findings in it.
    """
    wanted = [finding for finding in findings if finding.file is None]
    if path.is_file():
        return {place_key(finding): (shown_name(str(path)), 1) for finding in wanted}
    if not path.is_dir() or not is_ours(path):
        return {}
    try:
        folder = list_folder(path)
    except UnreadableError:  # deleted since the audit; the report does without it
        return {}
    steps = {finding.first_step for finding in wanted if finding.first_step is not None}
    lines = _lines(folder, steps)
    checkpoints: dict[int | None, Place] = {
        file.step: (file.shown, 1) for file in folder.checkpoints if file.rank is None and file.step in steps
    }
    placed = ((finding, _place(finding, lines, checkpoints)) for finding in wanted)
    return {place_key(finding): place for finding, place in placed if place is not None}


def _place(finding: Finding, lines: Mapping[int, Sequence[_LoggedLine]], checkpoints: Mapping[int | None, Place]) -> Place | None:
    """Return the newest line of the step with the rule's inputs; for a part of the model the checkpoint takes precedence."""
    if finding.first_step is None:
        return None
    reads = _reads_of(finding.code)
    newest_first = [*lines.get(finding.first_step, ())][::-1]
    telling = [line.place for line in newest_first if not reads.isdisjoint(line.names)]
    of_checkpoint = [checkpoints[finding.first_step]] if finding.first_step in checkpoints else []
    is_of_a_part = any("." in read for read in reads) and any(sign in (finding.where or "") for sign in "./")
    likely = [*of_checkpoint, *telling] if is_of_a_part else [*telling, *of_checkpoint]
    return next(iter([*likely, *(line.place for line in newest_first)]), None)


def _reads_of(code: str) -> set[str]:
    """Return the required inputs of a rule, or its optional ones if it has none: scalars and paths into checkpoints."""
    rule = rules().get(code)
    if rule is None:
        return set()
    needed = [need for need in rule.needs if isinstance(need, Metric)] or rule.metrics
    return {read for metric in needed for read in metric.reads}


def _lines(folder: RunFiles, steps: Collection[int]) -> dict[int, deque[_LoggedLine]]:
    """Return the newest lines of some steps in writing order; for a compressed log the line number after decompression."""
    lines_by_step: dict[int, deque[_LoggedLine]] = defaultdict(lambda: deque(maxlen=MAX_LINES_OF_STEP))
    for log in folder.scalars if steps else ():
        for block in read_lines(log, shown_name(log.name), root=folder.root):
            for row, number in zip(block.rows, block.numbers, strict=True):
                step = row.get("step")
                if isinstance(step, int) and step in steps:
                    lines_by_step[step].append(
                        _LoggedLine((shown_name(log.name), number), {name.partition("/")[0] for name in row})
                    )
    return lines_by_step
