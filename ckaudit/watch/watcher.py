"""A watched run folder: new lines and files are read and judged when that is due, and new findings are announced."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Unpack

from msgspec import Struct, field
from msgspec.structs import replace

from ckaudit.audit.engine import contradictions_of_newest, triage_reads
from ckaudit.audit.load_run import is_ours
from ckaudit.contract.io.fast_jsonl import WORDS
from ckaudit.contract.io.folder import CheckpointFile, RunFiles, list_folder
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.schema.watch import RANK_LOST, WatchEvent
from ckaudit.errors import UnreadableError
from ckaudit.watch.announcer import Announcer, AnnouncerOptions, ClockReading
from ckaudit.watch.growing_run import GONE, AppendedLines, BoundedHistory, Logs, ShrunkError, Stamp, stamp_of
from ckaudit.watch.silence import Ranks

# When to judge: as often as the cost limit allows, and at once for an alarming change, from a budget that refills.
CORE_SHARE = 0.004  # share of one core for regular judgements

REFILL_SHARE = 0.002  # share of one core for urgent judgements

MAX_SAVED = 3.0  # maximum budget in seconds of CPU time: some sixty judgements of a run of 2,000 steps

MAX_FIRST_SECONDS = 0.1  # seconds of CPU time that count for the first judgement at most

MIN_SECONDS_BETWEEN = 0.4  # minimum seconds between two judgements, however urgent

LEAP_RATIOS = {"train_loss_raw": 1.5, "grad_global_norm": 5.0}
"""Ratio to the median of a value that is alarming: half of the recorder's trigger factors (2 and 10), so that no rule has to
wait."""

WINDOW_VALUES = 50

MIN_VALUES = 10

# Growth of a run folder since the last poll: new log lines, new files, and whether old ones changed.
RELIST_SECONDS = 30.0  # seconds for which a network file system may show an outdated folder time

MIN_REST_NANOSECONDS = 2_000_000_000  # ns since the last write to a file after which it counts as complete

NEWEST_CHECKPOINTS = 8  # newest checkpoints that are checked at every poll; the others when the folder is listed


class NewRecords(Struct):
    """The results of one poll.

    Attributes:
        checkpoints: New, complete files by step, including those of ranks.
        manifest: Whether `run.json` was written again.
        restart_reason: Why everything must be read again; empty: earlier records are still valid.
    """

    checkpoints: list[CheckpointFile] = field(default_factory=list)
    manifest: bool = False
    restart_reason: str = ""


class FolderPoller:
    """Polls one folder; the cost of a poll depends on what is new, not on all files.

    Attributes:
        folder: The files at the last listing.
        listed: Whether the last poll listed the folder.
    """

    def __init__(self, root: Path) -> None:
        """Begin without files."""
        self.folder = RunFiles(root)
        self.listed = False
        self._root = root
        self._logs = Logs()
        self._time, self._listed = -1, float("-inf")
        self._waiting: dict[Path, Stamp] = {}
        self._taken: dict[Path, Stamp] = {}
        self._manifest = GONE

    def poll(self, now: float, wall: float) -> NewRecords:
        """Return which files are new or changed.

        Args:
            now: Seconds of a monotonic clock.
            wall: Unix time.
        """
        new_records = NewRecords()
        self.listed = self._list(now)
        new_records.restart_reason = self._changed(all_of_them=self.listed)
        if new_records.restart_reason:
            return new_records
        stamp = stamp_of(self.folder.manifest)
        new_records.manifest, self._manifest = stamp not in (self._manifest, GONE), stamp
        new_records.checkpoints = self._at_rest(int(wall * 1e9) - MIN_REST_NANOSECONDS)
        return new_records

    @property
    def has_waiting(self) -> bool:
        """Whether there are files that were not complete at the last poll."""
        return bool(self._waiting)

    def pieces(self) -> Iterator[AppendedLines]:
        """Yield the lines added to the logs, log by log in the order of names.

        Raises:
            ShrunkError: If a log has lost content that was read before.
        """
        for path in self.folder.scalars:
            yield from self._logs.added(path)

    def _list(self, now: float) -> bool:
        """List the folder if its time or the clock requires it, and tell whether that was done."""
        time = stamp_of(self._root).time
        if time == self._time and now - self._listed < RELIST_SECONDS:
            return False
        try:
            self.folder = list_folder(self._root)
        except UnreadableError:  # a folder that vanishes for a moment, as on a network, is not forgotten
            return False
        self._time, self._listed = time, now
        return True

    def _changed(self, *, all_of_them: bool) -> str:
        """Return why earlier records are no longer valid; empty if they are."""
        if all_of_them:
            gone = self._taken.keys() - {file.path for file in self.folder.checkpoints}
            if gone:
                return f"{min(gone).name} was renamed or deleted"
        taken = list(self._taken) if all_of_them else list(self._taken)[-NEWEST_CHECKPOINTS:]
        changed = (path.name for path in taken if stamp_of(path) not in (self._taken[path], GONE))
        return next((f"{name} was written anew" for name in changed), "")

    def _at_rest(self, old: int) -> list[CheckpointFile]:
        """Return new checkpoints that did not change for one poll, or since `old`, so that a slow writer can finish."""
        at_rest = []
        for file in self.folder.checkpoints:
            if file.path in self._taken:
                continue
            stamp = stamp_of(file.path)
            if stamp != GONE and (stamp.time < old or self._waiting.get(file.path) == stamp):
                self._taken[file.path] = stamp
                self._waiting.pop(file.path, None)
                at_rest.append(file)
            else:
                self._waiting[file.path] = stamp
        return sorted(at_rest, key=lambda file: -1 if file.step is None else file.step)


class AlarmingChange:
    """Detects alarming changes in each new line: a new NaN or infinity, or a jump of the loss or the gradient norm.

    It only triggers a judgement, so it may be wrong.
    """

    def __init__(self) -> None:
        """Begin without lines."""
        self._recent: dict[str, deque[float]] = {name: deque(maxlen=WINDOW_VALUES) for name in LEAP_RATIOS}
        self._ill: set[str] = set()

    def rings(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a line requires a judgement at once."""
        ill = {name for name, value in row.items() if _is_nonfinite(value)}
        new = ill - self._ill
        self._ill = (self._ill - row.keys()) | ill
        return bool(new) | self._leaps(row)

    def _leaps(self, row: Mapping[str, Any]) -> bool:
        rang = False
        for name, times in LEAP_RATIOS.items():
            value, recent = row.get(name), self._recent[name]
            if isinstance(value, str) or value is None:
                continue
            rang |= len(recent) >= MIN_VALUES and value > times * median(recent) > 0
            recent.append(float(value))
        return rang


class JudgingSchedule(Struct):
    """Keeps the cost of judging under `CORE_SHARE` + `REFILL_SHARE` of a core in the long run.

    Attributes:
        last: Time of the last judgement.
        cost: CPU time of that, in seconds.
        saved: CPU time left in the budget, in seconds.
        urgent: Whether an alarming change requires a judgement at once.
    """

    last: float = float("-inf")
    cost: float = 0.0
    saved: float = MAX_SAVED
    urgent: bool = True

    def is_due(self, now: float) -> bool:
        """Tell whether to judge now, given that there is something new."""
        waited = now - self.last
        if waited >= self.cost / CORE_SHARE:
            return True
        return self.urgent and waited >= max(MIN_SECONDS_BETWEEN, self.cost) and self._saved(now) >= min(self.cost, MAX_SAVED)

    def judged(self, now: float, cost: float) -> None:
        """Note a judgement and its cost; the first, of a long history, costs more than any later one."""
        if self.last == float("-inf"):
            cost = min(cost, MAX_FIRST_SECONDS)
        paid_by_waiting = now - self.last >= self.cost / CORE_SHARE
        self.saved = self._saved(now) - (0.0 if paid_by_waiting else cost)
        self.last, self.cost, self.urgent = now, cost, False

    def _saved(self, now: float) -> float:
        waited = now - self.last
        return MAX_SAVED if waited == float("inf") else min(MAX_SAVED, self.saved + REFILL_SHARE * waited)


class Watcher(Announcer):
    """Follows one run folder."""

    def __init__(self, path: Path, *, at_every_look: bool = False, **options: Unpack[AnnouncerOptions]) -> None:
        """Begin without records.

        Args:
            path: The run folder; it may still be empty.
            at_every_look: Whether new records are judged at once, whatever the cost.
            **options: Options of the announcements.
        """
        super().__init__(str(path), **options)
        self._path, self._ranks, self._pace, self._alarm = path, Ranks(), JudgingSchedule(), AlarmingChange()
        self._at_every_look = at_every_look
        self._begin()

    def _begin(self) -> None:
        self._poller = FolderPoller(self._path)
        self._history = BoundedHistory(self._poller.folder, triage_reads())
        self._contradictions: list[Finding] = []
        self._new, self._lines_judged = False, 0

    def poll(self, moment: ClockReading) -> Iterator[WatchEvent]:
        """Read new records, and yield the new events."""
        new_records = self._poller.poll(moment.now, moment.wall)
        why = new_records.restart_reason or self._take(new_records, moment)
        if why:
            yield self._say("anew", f"{why}: the folder is read again", moment)
            self._begin()  # records are forgotten, announcements are not
            self._pace.urgent = True
            return
        ending = self._has_ended() and not self.ended
        if self._new and (self._at_every_look or self._pace.is_due(moment.now) or ending):
            began = process_time()
            run = self._history.run(self.name, self._poller.folder)
            run = replace(run, findings=(*run.findings, *self._contradictions))
            yield from self._weigh(run, moment, in_full=self._history.in_full)
            self._new, self._lines_judged = False, self._history.lines
            self._pace.judged(moment.now, process_time() - began)
        yield from self._silences(moment)
        for rank in self._ranks.missing(moment.now) if not self._has_ended() else ():
            message = f"rank {rank} wrote no file for the newest checkpoint"
            yield self._say("heartbeat", message, moment, RANK_LOST.at(None, message, where=f"rank.{rank}"))
        if ending and not self._new:
            yield self._end(moment)

    def rest(self) -> None:
        """Release the records and their memory; the next poll reads them again, and announcements are not repeated."""
        self._begin()

    @property
    def has_waiting(self) -> bool:
        """Whether the next poll finds more, even if nothing changes."""
        return self._new or self._poller.has_waiting

    def is_foreign(self) -> bool:
        """Tell whether the files in a folder that was empty are the log of another program."""
        if not self._poller.listed or not self._poller.folder.is_empty():
            return False
        with suppress(UnreadableError):
            return not is_ours(self._path)
        return False

    @property
    def manifest(self) -> Manifest | None:
        """The content of `run.json`; None if it does not exist."""
        return self._history.reader.manifest

    def _take(self, new_records: NewRecords, moment: ClockReading) -> str:
        """Read the new records; return why the folder must be read again, empty if not."""
        reader = self._history.reader
        reader.folder = self._poller.folder
        if new_records.manifest:
            reader.take_manifest()
            self.ended = self.ended and self._has_ended()
        if new_records.checkpoints:
            self._history.take_checkpoints(new_records.checkpoints)
            self._ranks.take(new_records.checkpoints, moment.now)
            # A faulty writer is faulty in every file: the first fault of each kind counts.
            known = {contradiction.code for contradiction in self._contradictions}
            self._contradictions += [
                contradiction for contradiction in contradictions_of_newest(self._path) if contradiction.code not in known
            ]
        self._new |= bool(new_records.manifest or new_records.checkpoints)
        self._pace.urgent |= bool(new_records.checkpoints)
        try:
            for piece in self._poller.pieces():
                self._take_piece(piece, moment)
        except ShrunkError as why:
            return str(why)
        return ""

    def _take_piece(self, piece: AppendedLines, moment: ClockReading) -> None:
        self._new = True
        if piece.broken:
            self._history.reader.findings.append(piece.broken)
            return
        lines = self._history.take_piece(piece)
        for row in lines.rows:
            self.vitals.add(row)
            self._pace.urgent |= self._alarm.rings(row)
        steps: list[int] = [step for row in lines.rows[-1:] if isinstance(step := row.get("step"), int)]
        times = [float(at) for row in lines.rows if isinstance(at := row.get("time"), (int, float))]
        if lines.table is not None:
            steps.append(int(lines.table.steps[-1]))
            if "time" in lines.table.names:
                times = lines.table.values[lines.table.names.index("time")][-256:].tolist() + times
        self.step = steps[0] if steps else self.step
        self.silence.note_lines(moment.now, times, moment.wall)
        self._pace.urgent |= self._history.lines >= 1.25 * self._lines_judged


def _is_nonfinite(value: Any) -> bool:
    if type(value) is float:
        return value - value != 0
    return isinstance(value, str) and value in WORDS
