"""Watching of one log, or of another program's folder: it is read again completely when it has grown, within a cost limit."""

from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Unpack

from ckaudit.audit.engine import triage_reads
from ckaudit.audit.load_run import open_run
from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.watch import WatchEvent
from ckaudit.errors import CkauditError, UsageError
from ckaudit.watch.announcer import Announcer, AnnouncerOptions, ClockReading
from ckaudit.watch.growing_run import GONE, Stamp, stamp_of

CORE_SHARE = 0.03  # share of one core, for reading and judging

MAX_FIRST_SECONDS = 0.1  # seconds of CPU time that count for the first reading at most

MIN_SECONDS_BETWEEN = 1.0  # minimum seconds between two readings

RELIST_SECONDS = 5.0  # seconds between two listings of a folder

MOST_FILES = 1_000


class ForeignWatcher(Announcer):
    """Follows one log or another program's folder, and reads the same records as `triage`.

    When it has grown it is read again completely, within a cost limit.
    """

    def __init__(
        self, path: Path, *, import_options: ImportOptions = NO_IMPORT_OPTIONS, **options: Unpack[AnnouncerOptions]
    ) -> None:
        """Begin without records.

        Args:
            path: The log.
            import_options: Facts that the log lacks.
            **options: Options of the announcements.
        """
        super().__init__(str(path), **options)
        self._path, self._import_options = path, import_options
        self._files: list[Path] = []
        self._listed = self._due = float("-inf")
        self._seen: dict[Path, Stamp] = {}
        self._is_new, self._failed = False, ""
        self._facts: Manifest | None = None

    @property
    def manifest(self) -> Manifest | None:
        """The manifest from the log."""
        return self._facts

    def poll(self, moment: ClockReading) -> Iterator[WatchEvent]:
        """Read the log again if it has grown and enough time has passed, and yield the new events."""
        self._is_new |= self._has_grown(moment)
        if self._is_new and moment.now >= self._due:
            began = process_time()
            yield from self._read(moment)
            cost = process_time() - began
            # The first reading imports modules, and costs more than any later one.
            if self._due == float("-inf"):
                cost = min(cost, MAX_FIRST_SECONDS)
            self._due = moment.now + max(MIN_SECONDS_BETWEEN, cost / CORE_SHARE)
        yield from self._silences(moment)
        if self._has_ended() and not self._is_new and not self.ended:
            yield self._end(moment)

    def _has_grown(self, moment: ClockReading) -> bool:
        """Tell whether any file has changed since the last poll."""
        if moment.now - self._listed >= RELIST_SECONDS:
            self._files, self._listed = _files(self._path), moment.now
        seen = {path: stamp for path in self._files if (stamp := stamp_of(path)) != GONE}
        if seen == self._seen:
            return False
        self._seen = seen
        # A write to the file counts as a line, whether or not it can be read yet.
        self.silence.note_lines(moment.now, [max((stamp.time for stamp in seen.values()), default=0) / 1e9], moment.wall)
        return True

    def _read(self, moment: ClockReading) -> Iterator[WatchEvent]:
        try:
            run = open_run(self._path, reads=triage_reads(), import_options=self._import_options)
        except CkauditError as error:
            if (
                isinstance(error, UsageError) and not self._has_announced
            ):  # the user who started the watch has to make a choice first
                raise
            # A new log may have no whole line yet: a permanent fault will show at the next reading too.
            if self._failed == str(error):
                self._is_new = False
                yield self._say("error", f"{error}: it is read again when it changes", moment)
            self._failed = str(error)
            return
        self._is_new, self._failed = False, ""
        self._facts = run.manifest
        self.ended = self.ended and self._has_ended()
        yield from self._weigh(run, moment)


def _files(path: Path) -> list[Path]:
    """Return the files whose growth is checked; of a folder, a limited number."""
    if not path.is_dir():
        return [path]
    paths = sorted(file for file in path.rglob("*") if file.is_file())
    return paths[-MOST_FILES:]
