"""Reading one run, a file at a time: what each file violates by itself, and the few facts that the run is judged by."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from ckaudit.contract import violations
from ckaudit.contract.check import Checked, check_checkpoint
from ckaudit.contract.io.files import BrokenFile
from ckaudit.contract.io.folder import CheckpointFile, shown_name
from ckaudit.contract.schema.report import Finding
from ckaudit.validate.file_facts import CheckpointFacts, RunFacts, facts_of
from ckaudit.validate.outcomes import recorded_paths
from ckaudit.validate.retry_unfinished import Patience, read_settled
from ckaudit.validate.tensor_layout import Layouts

if TYPE_CHECKING:
    from ckaudit.contract.bulk import Bulk


class Survey(Struct):
    """One run as it was read.

    Attributes:
        run: Its facts.
        prefix: What stands before a file's name in findings, where several folders are judged.
        tick: Called after each file.
        patience: How long files that are being written are waited for.
        findings: What single files violate.
        notes: What a reader must know though nobody did wrong.
        many: From how many checkpoints on they are proved in bulk: loading numpy takes the time of a hundred.
    """

    run: RunFacts
    prefix: str
    tick: Callable[[], None]
    patience: Patience
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    many: int = 150
    _check: Callable[[bytes, str], Checked] = check_checkpoint
    _layouts: Layouts = field(default_factory=Layouts)
    _columns: dict[str, set[str]] = field(default_factory=dict)

    def read(self) -> None:
        """Read every file of the run."""
        folder = self.run.folder
        bulk = _bulk() if len(folder.checkpoints) >= self.many else None
        self._check = bulk.check if bulk else check_checkpoint
        self.run.checkpoints = self._read_all(folder.checkpoints)
        self.findings += bulk.close() if bulk else []
        self._check = check_checkpoint
        self.run.checkpoints.sort(
            key=lambda checkpoint: (checkpoint.step, -1 if checkpoint.rank is None else checkpoint.rank, checkpoint.shown)
        )
        self.run.history = self._read_all(folder.history)
        if folder.history:
            self.notes.append(f"{_files(len(folder.history))} of replaced sessions, each judged by itself")
        if folder.manifest is not None:
            self._read_manifest(folder.manifest)
        self._read_logs(folder.scalars)
        self.run.recorded |= {f"{section}.*.{name}" for section, names in self._columns.items() for name in names}

    def shown(self, path: Path) -> str:
        """Return the name of a file in findings."""
        return shown_name(self.prefix + path.name if self.run.whole else str(path))

    def _read_all(self, files: list[CheckpointFile]) -> list[CheckpointFacts]:
        facts = []
        for named in files:
            if (fact := self._read_checkpoint(named)) is not None:
                facts.append(fact)
            self.tick()
        return facts

    def _read_checkpoint(self, named: CheckpointFile) -> CheckpointFacts | None:
        checked = Checked(None, {}, [])

        def judge(data: bytes) -> list[Finding]:
            nonlocal checked
            checked = self._check(data, named.shown)
            return checked.findings

        if not self._settle(named.path, named.shown, judge):
            return None
        self.findings += checked.findings
        self._note_version(checked, named.shown)
        if checked.document is not None:
            for section, table in checked.tables.items():
                self._columns.setdefault(section, set()).update(table.columns)
            self.run.recorded |= recorded_paths(checked.document, checked.tables)
        return facts_of(named, checked, self._layouts)

    def _settle(self, path: Path, shown: str, judge: Callable[[bytes], list[Finding]]) -> bool:
        """Read one file to its end, and say whether its judgement counts."""
        try:
            note = read_settled(path, shown, judge, self.patience, root=self.run.folder.root)
        except BrokenFile as broken:
            self.findings.append(broken.finding)
            return False
        if note is not None:
            self.notes.append(note)
        return note is None

    def _note_version(self, checked: Checked, shown: str) -> None:
        for finding in checked.findings:
            if finding.code == violations.UNKNOWN_VERSION.code:
                self.run.versions.setdefault((finding.found or "").strip('"'), []).append(shown)

    def _read_manifest(self, path: Path) -> None:
        from ckaudit.validate.manifest import check_manifest

        shown = self.run.manifest_file = self.shown(path)
        findings: list[Finding] = []

        def judge(data: bytes) -> list[Finding]:
            nonlocal findings
            self.run.manifest, findings = check_manifest(data, shown)
            return findings

        if self._settle(path, shown, judge):
            self.findings += findings
        self.tick()

    def _read_logs(self, paths: list[Path]) -> None:
        if not paths:
            return
        from ckaudit.validate.logs import read_logs  # only a run with logs loads what reads them

        read = read_logs([(path, self.shown(path)) for path in paths], self.run, self.tick)
        self.run.logs += read.facts
        self.notes += read.notes
        self.findings += read.findings
        known = {(finding.file, finding.line, finding.where) for finding in self.findings}
        self.findings += [
            conflict
            for conflict in read.conflicts
            if conflict.line is None or (conflict.file, conflict.line, conflict.where) not in known
        ]


def _bulk() -> "Bulk":
    """Return what proves many files at once; only a run that has them loads numpy."""
    from ckaudit.contract.bulk import Bulk

    return Bulk()


def _files(count: int) -> str:
    return "1 history file" if count == 1 else f"{count} history files"
