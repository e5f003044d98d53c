"""The scalar logs of one run, read in one pass each: what their lines violate, and what the run is judged by."""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from ckaudit.contract.logs import read_lines
from ckaudit.contract.report import Finding
from ckaudit.validate.duplicate_lines import conflicts
from ckaudit.validate.file_facts import LogFacts, RunFacts
from ckaudit.validate.finding_cap import Bounded
from ckaudit.validate.scalar_stream_checks import Walk, repeated_stretches


class LogsRead(Struct):
    """What the logs of a run held.

    Attributes:
        facts: What is kept of each log.
        findings: What lines and their order violate.
        conflicts: Values that one step and session has twice; some are among `findings` already.
        notes: What a reader must know though nobody did wrong.
    """

    facts: list[LogFacts] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    conflicts: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_logs(files: Sequence[tuple[Path, str]], run: RunFacts, tick: Callable[[], None]) -> LogsRead:
    """Read every scalar log of a run.

    Args:
        files: The logs, each with its name in findings.
        run: The run, its checkpoints read.
        tick: Called after each log.
    """
    root, read, walks = run.folder.root, LogsRead(), []
    wanted = {each.step for each in run.checkpoints}
    for path, shown in files:
        walk = Walk(Bounded(shown), wanted)
        for lines in read_lines(path, shown, root=root):
            walk.take(lines)
            read.findings += lines.findings
            read.notes += lines.notes
        facts, findings = walk.close()
        read.facts.append(facts)
        read.findings += findings
        walks.append(walk)
        tick()
    if ranges := repeated_stretches(walks):
        read.conflicts += conflicts(files, ranges, root=root)
    return read
