"""Reading of one run, file by file: the violations of each file, and the few facts for the checks of the run."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from ckaudit.contract import contradictions, violations
from ckaudit.contract.check import CheckedCheckpoint, check_checkpoint
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.contract.io.folder import CheckpointFile, shown_name
from ckaudit.contract.schema.report import Finding
from ckaudit.remote.arrivals import wait_for
from ckaudit.validate.file_facts import CheckpointFacts, Layouts, RunFacts, facts_of
from ckaudit.validate.outcomes import recorded_paths
from ckaudit.wording import plural

if TYPE_CHECKING:
    from ckaudit.contract.bulk import BulkChecker

UNFINISHED = frozenset(kind.code for kind in (violations.EMPTY, violations.TRUNCATED, violations.BAD_COMPRESSION))

BytesCheck = Callable[[bytes], list[Finding]]

_Stamp = tuple[int, int, int]


class ReadPatience(Struct):
    """Total time that a validation may wait for writers, over all files.

    Attributes:
        left: Seconds left to wait. A writer without a rename needs milliseconds; two seconds suffice for a slow network disk.
        young: Seconds since the last change within which a file may still be written.
        pause: Seconds between two attempts.
        quiet: Attempts without a change after which a file counts as final.
    """

    left: float = 2.0
    young: float = 2.0
    pause: float = 0.1
    quiet: int = 3


class RunReader(Struct):
    """State of reading one run.

    Attributes:
        run: Its facts.
        prefix: Prefix of file names in findings, if there are several folders.
        tick: Called after each file.
        patience: Time to wait for files that are being written.
        findings: Violations of single files.
        notes: Notes that are not problems.
        many: Number of checkpoints from which they are proved in bulk: loading numpy takes the time of a hundred.
    """

    run: RunFacts
    prefix: str
    tick: Callable[[], None]
    patience: ReadPatience
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    many: int = 150
    _check: Callable[[bytes, str], CheckedCheckpoint] = check_checkpoint
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
            self.notes.append(f"{plural(len(folder.history), 'history file')} of replaced sessions, each judged by itself")
        self._read_logs(folder.scalars)
        if folder.manifest is not None:  # last, so that in a running training it knows the session of every other file
            self._read_manifest(folder.manifest)
        if self.run.manifest is not None and self.run.manifest.loss_kind == "other":  # may rightly be negative
            self.findings = [finding for finding in self.findings if finding.code != contradictions.NEGATIVE_LOSS.code]
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
        checked = CheckedCheckpoint(None, {}, [])

        def check_bytes(data: bytes) -> list[Finding]:
            nonlocal checked
            checked = self._check(data, named.shown)
            return checked.findings

        if not self._settle(named.path, named.shown, check_bytes):
            return None
        self.findings += checked.findings
        for finding in checked.findings:
            if finding.code == violations.UNKNOWN_VERSION.code:
                self.run.versions.setdefault((finding.found or "").strip('"'), []).append(named.shown)
        if checked.document is not None:
            for section, table in checked.tables.items():
                self._columns.setdefault(section, set()).update(table.columns)
            self.run.recorded |= recorded_paths(checked.document, checked.tables)
        return facts_of(named, checked, self._layouts)

    def _settle(self, path: Path, shown: str, check_bytes: Callable[[bytes], list[Finding]]) -> bool:
        """Read one file to its end, and tell whether the result counts."""
        try:
            note = read_settled(path, shown, check_bytes, self.patience, root=self.run.folder.root)
        except BrokenFile as broken:
            self.findings.append(broken.finding)
            return False
        if note is not None:
            self.notes.append(note)
        return note is None

    def _read_manifest(self, path: Path) -> None:
        from ckaudit.validate.manifest import check_manifest

        shown = self.run.manifest_file = self.shown(path)
        findings: list[Finding] = []

        def check_bytes(data: bytes) -> list[Finding]:
            nonlocal findings
            self.run.manifest, findings = check_manifest(data, shown)
            return findings

        if self._settle(path, shown, check_bytes):
            self.findings += findings
        self.tick()

    def _read_logs(self, paths: list[Path]) -> None:
        if not paths:
            return
        from ckaudit.validate.logs import read_logs  # imported only for a run with logs

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


def _bulk() -> "BulkChecker":
    """Return the bulk checker; it is imported here so that only a run that needs it loads numpy."""
    from ckaudit.contract.bulk import BulkChecker

    return BulkChecker()


# Files that may still be written: a recent broken file is read again before it is reported.
def read_settled(path: Path, shown: str, check_bytes: BytesCheck, patience: ReadPatience, *, root: Path | None) -> str | None:
    """Read and check a file until it is complete or stops changing.

    Args:
        path: The file.
        shown: Its name in notes.
        check_bytes: Takes the bytes, keeps its result and returns the findings; the last call counts.
        patience: Time to wait, shared by all files.
        root: Folder that the file must not leave through a link.

    Returns:
        None, or a note on why the file was not checked.

    Raises:
        BrokenFile: With the finding that explains why there are no bytes.
    """
    wait_for(path)
    quiet, changing = 0, False
    before = _stamp(path)
    while True:
        broken = _read_once(path, shown, check_bytes, root)
        if not broken:
            return None
        stamp = _stamp(path)
        if stamp is None and not path.is_symlink():
            return f"{shown}: went away while the folder was read"
        changing = stamp != before
        quiet = 0 if changing else quiet + 1
        if quiet > patience.quiet or not _may_be_growing(broken, stamp, patience):
            break
        before = stamp
        time.sleep(patience.pause)
        patience.left -= patience.pause
    if changing:
        return f"{shown}: still being written, so it was not judged"
    if isinstance(broken, BrokenFile):
        raise broken
    return None


def _read_once(path: Path, shown: str, check_bytes: BytesCheck, root: Path | None) -> BrokenFile | list[Finding]:
    """Return signs that a file is incomplete; an empty list if there are none."""
    try:
        findings = check_bytes(read_bytes(path, shown, root=root))
    except BrokenFile as broken:
        return broken
    return [finding for finding in findings if finding.code in UNFINISHED]


def _may_be_growing(broken: BrokenFile | list[Finding], stamp: _Stamp | None, patience: ReadPatience) -> bool:
    if stamp is None or (isinstance(broken, BrokenFile) and broken.finding.code not in UNFINISHED):
        return False
    return patience.left > 0 and time.time() - stamp[1] / 1e9 < patience.young


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino
