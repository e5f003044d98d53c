"""What grew in a run folder since the last look: lines of its logs, new files, and whether old ones changed."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from ckaudit.contract.folder import CheckpointFile, RunFolder, list_folder
from ckaudit.errors import UnreadableError
from ckaudit.watch.file_stat import GONE, Stamp, stamp_of
from ckaudit.watch.logs import AppendedLines, Logs

RELIST = 30.0  # seconds: how long a network file system may go on showing the old time of a folder
AT_REST = 2_000_000_000  # ns since a file was last written: whoever writes it is done
AT_HAND = 8  # newest checkpoints that are looked at at every look; the others when the folder is listed


class Growth(Struct):
    """What one look found.

    Attributes:
        checkpoints: Files that are new and at rest, by step; those of ranks among them.
        manifest: Whether `run.json` was written anew.
        anew: Why what was read before no longer holds, so that everything is to be read again; empty: it does.
    """

    checkpoints: list[CheckpointFile] = field(default_factory=list)
    manifest: bool = False
    anew: str = ""


class Follower:
    """Looks at one folder again and again; a look costs what is new, not what is there.

    Attributes:
        folder: The files there, as they were listed last.
        listed: Whether the last look listed them.
    """

    def __init__(self, root: Path) -> None:
        """Begin with nothing seen."""
        self.folder = RunFolder(root)
        self.listed = False
        self._root = root
        self._logs = Logs()
        self._time, self._listed = -1, float("-inf")
        self._waiting: dict[Path, Stamp] = {}
        self._taken: dict[Path, Stamp] = {}
        self._manifest = GONE

    def look(self, now: float, wall: float) -> Growth:
        """Return which files are new or changed.

        Args:
            now: Seconds on a clock that never goes back.
            wall: Unix time.
        """
        growth = Growth()
        self.listed = self._list(now)
        growth.anew = self._changed(all_of_them=self.listed)
        if growth.anew:
            return growth
        stamp = stamp_of(self.folder.manifest)
        growth.manifest, self._manifest = stamp not in (self._manifest, GONE), stamp
        growth.checkpoints = self._at_rest(int(wall * 1e9) - AT_REST)
        return growth

    def pieces(self) -> Iterator[AppendedLines]:
        """Yield what was added to the logs, log by log in the order of names.

        Raises:
            ShrunkError: Where a log no longer holds what was read from it.
        """
        for path in self.folder.scalars:
            yield from self._logs.added(path)

    def _list(self, now: float) -> bool:
        """List the folder where its time or the clock asks for it, and tell whether that was done."""
        time = stamp_of(self._root).time
        if time == self._time and now - self._listed < RELIST:
            return False
        try:
            self.folder = list_folder(self._root)
        except UnreadableError:  # a folder that is away for a moment, as on a network, is no reason to forget it
            return False
        self._time, self._listed = time, now
        return True

    def _changed(self, *, all_of_them: bool) -> str:
        """Return why what was read before no longer holds; empty: it does."""
        if all_of_them:
            gone = self._taken.keys() - {file.path for file in self.folder.checkpoints}
            if gone:
                return f"{min(gone).name} was renamed or deleted"
        taken = list(self._taken) if all_of_them else list(self._taken)[-AT_HAND:]
        changed = (path.name for path in taken if stamp_of(path) not in (self._taken[path], GONE))
        return next((f"{name} was written anew" for name in changed), "")

    def _at_rest(self, old: int) -> list[CheckpointFile]:
        """Return new checkpoints that did not change for one look, or since `old`, so that a slow writer is waited for."""
        found = []
        for file in self.folder.checkpoints:
            if file.path in self._taken:
                continue
            stamp = stamp_of(file.path)
            if stamp != GONE and (stamp.time < old or self._waiting.get(file.path) == stamp):
                self._taken[file.path] = stamp
                self._waiting.pop(file.path, None)
                found.append(file)
            else:
                self._waiting[file.path] = stamp
        return sorted(found, key=lambda file: -1 if file.step is None else file.step)
