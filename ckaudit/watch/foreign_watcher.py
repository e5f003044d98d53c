"""One log, or the folder of another program, under watch: read again as a whole when it grew, as often as that may cost."""

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

CORE_SHARE = 0.03  # of one core, for reading again and judging

MAX_FIRST_SECONDS = 0.1  # seconds of processor time that the first reading counts at most

MIN_SECONDS_BETWEEN = 1.0  # seconds between two readings, however little they cost

RELIST_SECONDS = 5.0  # seconds between two lists of a folder

MOST_FILES = 1_000


class ForeignWatcher(Announcer):
    """Follows one log or the folder of another program, and reads of it what `triage` would read.

    When it grew it is read again as a whole, as often as that may cost.
    """

    def __init__(
        self, path: Path, *, import_options: ImportOptions = NO_IMPORT_OPTIONS, **options: Unpack[AnnouncerOptions]
    ) -> None:
        """Begin with nothing read.

        Args:
            path: The log.
            import_options: What the log does not say itself.
            **options: What is told of it.
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
        """What the log says of the run as a whole."""
        return self._facts

    def poll(self, moment: ClockReading) -> Iterator[WatchEvent]:
        """Read the log again where it grew and enough time went by, and yield what there is to say."""
        self._is_new |= self._has_grown(moment)
        if self._is_new and moment.now >= self._due:
            began = process_time()
            yield from self._read(moment)
            cost = process_time() - began
            # The first reading loads what it needs, and costs more than any later one.
            if self._due == float("-inf"):
                cost = min(cost, MAX_FIRST_SECONDS)
            self._due = moment.now + max(MIN_SECONDS_BETWEEN, cost / CORE_SHARE)
        yield from self._silences(moment)
        if self._has_ended() and not self._is_new and not self.ended:
            yield self._end(moment)

    def _has_grown(self, moment: ClockReading) -> bool:
        """Tell whether any file is not as it was at the last look."""
        if moment.now - self._listed >= RELIST_SECONDS:
            self._files, self._listed = _files(self._path), moment.now
        seen = {path: stamp for path in self._files if (stamp := stamp_of(path)) != GONE}
        if seen == self._seen:
            return False
        self._seen = seen
        # That a file was written is heard as lines are, whether or not they can be read yet.
        self.silence.note_lines(moment.now, [max((stamp.time for stamp in seen.values()), default=0) / 1e9], moment.wall)
        return True

    def _read(self, moment: ClockReading) -> Iterator[WatchEvent]:
        try:
            run = open_run(self._path, reads=triage_reads(), import_options=self._import_options)
        except CkauditError as error:
            if (
                isinstance(error, UsageError) and not self._has_announced
            ):  # there is a choice to be made, by whoever began the watch
                raise
            # A log that only begins may have no whole line yet: what is wrong for good is so at the next reading too.
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
    """Return the files whose growth is looked for, at most so many of a folder."""
    if not path.is_dir():
        return [path]
    paths = sorted(file for file in path.rglob("*") if file.is_file())
    return paths[-MOST_FILES:]
