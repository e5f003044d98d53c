"""One run under watch: what grew is read, judged when that is due, and what is new is said."""

from collections.abc import Iterator
from pathlib import Path
from time import process_time

from msgspec import UNSET, Struct
from msgspec.structs import replace

from ckaudit.audit.diagnose import diagnose
from ckaudit.audit.gated import clauses_of, settle_run
from ckaudit.audit.newest import contradictions_of_newest
from ckaudit.audit.report import triage_reads
from ckaudit.causes import causes
from ckaudit.contract.manifest import Manifest
from ckaudit.contract.report import Finding
from ckaudit.contract.watch import RANK_LOST, STALLED, VERSION, Event, Likely, State, WatchEvent
from ckaudit.policy.gate import OPEN, Gate
from ckaudit.run.run import Run
from ckaudit.watch.alarm import Alarm
from ckaudit.watch.follow import Follower, Growth
from ckaudit.watch.history import History
from ckaudit.watch.known import Known
from ckaudit.watch.logs import Piece, ShrunkError
from ckaudit.watch.pace import Pace
from ckaudit.watch.stall import Ranks, Silence
from ckaudit.watch.vitals import Vitals


class Moment(Struct, frozen=True):
    """One look: seconds on a clock that never goes back, and Unix time."""

    now: float
    wall: float


class Watcher:
    """Follows one run folder.

    Attributes:
        name: The run, as the user named it.
        step: Last step recorded; None: none yet.
        silence: The pauses between its lines.
        vitals: What the panel shows.
        ended: Whether its last session has ended, and all of it was judged.
        stalled: Whether it is silent for too long.
    """

    def __init__(self, path: Path, *, gate: Gate = OPEN, stall_after: float | None = None, notes: bool = False) -> None:
        """Begin with nothing read.

        Args:
            path: The run folder; it may still be empty.
            gate: Policy and baseline.
            stall_after: Seconds without a line that are a stall; None: learned.
            notes: Whether notes are told too.
        """
        self.name, self._path, self._gate, self._notes = str(path), path, gate, notes
        self.silence, self.vitals, self._ranks = Silence(stall_after), Vitals(), Ranks()
        self.step: int | None = None
        self.ended = self.stalled = self._told_any = False
        self._known, self._pace, self._alarm = Known(), Pace(), Alarm()
        self._begin()

    def _begin(self) -> None:
        self._follower = Follower(self._path)
        self._history = History(self._follower.folder, triage_reads())
        self._contradictions: list[Finding] = []
        self._new, self._lines_judged = False, 0

    def look(self, moment: Moment) -> Iterator[WatchEvent]:
        """Read what is new, and yield what there is to say."""
        growth = self._follower.look(moment.now, moment.wall)
        why = growth.anew or self._take(growth, moment)
        if why:
            yield self._say("anew", f"{why}: the folder is read again", moment)
            self._again()
            return
        ending = self._has_ended() and not self.ended
        if self._new and (self._pace.is_due(moment.now) or ending):
            yield from self._judge(moment)
        yield from self._silences(moment)
        if ending and not self._new:
            self.ended = True
            yield self._say("ended", "the run has ended", moment)

    @property
    def state(self) -> State:
        """What the run does, in one word."""
        if self.ended:
            return "ended"
        if self.stalled:
            return "stalled"
        return "waiting" if self.step is None else "running"

    @property
    def manifest(self) -> Manifest | None:
        """What `run.json` says; None: it is not there."""
        return self._history.reader.manifest

    def _again(self) -> None:
        """Forget what was read; what was told stays told, unless the run began anew."""
        self._begin()
        self._pace.urgent = True

    def _take(self, growth: Growth, moment: Moment) -> str:
        """Read what grew; return why the folder is to be read again, empty: it is not."""
        reader = self._history.reader
        reader.folder = self._follower.folder
        if growth.manifest:
            reader.take_manifest()
            self.ended = self.ended and self._has_ended()
        for path in growth.packed:
            reader.take_log(path)
        if growth.checkpoints:
            self._history.take_checkpoints(growth.checkpoints)
            self._ranks.take(growth.checkpoints, moment.now)
            # A writer that is wrong is so in every file: of each kind the first counts.
            known = {each.code for each in self._contradictions}
            self._contradictions += [each for each in contradictions_of_newest(self._path) if each.code not in known]
        self._new |= bool(growth.manifest or growth.packed or growth.checkpoints)
        self._pace.urgent |= bool(growth.packed or growth.checkpoints)
        try:
            for piece in self._follower.pieces():
                self._take_piece(piece, moment)
        except ShrunkError as why:
            return str(why)
        return ""

    def _take_piece(self, piece: Piece, moment: Moment) -> None:
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
        self.silence.heard(moment.now, times, moment.wall)
        self._new = True
        self._pace.urgent |= self._history.lines >= 1.25 * self._lines_judged

    def _judge(self, moment: Moment) -> Iterator[WatchEvent]:
        began = process_time()
        run = self._history.run(self.name, self._follower.folder)
        run = replace(run, findings=(*run.findings, *self._contradictions))
        clauses, _ = clauses_of(run, self._gate)
        settled = settle_run(run, clauses, self._gate)
        told = [each for each in settled.findings if self._notes or each.severity != "note"]
        news = list(self._known.news(told, in_full=self._history.in_full))
        self.step = run.last_step if run.last_step is not None else self.step
        self.vitals.judged(run)
        for check in settled.checks if not self._told_any else ():
            if check.outcome == "error":
                yield self._say("error", f"{check.code} broke: {check.detail}", moment)
        self._told_any = True
        likely = _likely(run, settled.findings) if news else {}
        for finding, before in news:
            yield self._say("graver" if before else "finding", finding.message, moment, finding, likely.get(finding.code))
        self._new, self._lines_judged = False, self._history.lines
        self._pace.judged(moment.now, process_time() - began)

    def _silences(self, moment: Moment) -> Iterator[WatchEvent]:
        too_long = self.silence.is_too_long(moment.now) and not self._has_ended()
        if too_long and not self.stalled:
            yield self._stall(moment)
        elif self.stalled and not too_long:
            yield self._say("resumed", "lines come again", moment)
        self.stalled = too_long
        for rank in self._ranks.missing(moment.now) if not self._has_ended() else ():
            message = f"rank {rank} wrote no file for the newest checkpoint"
            yield self._say("heartbeat", message, moment, RANK_LOST.at(None, message, where=f"rank.{rank}"))

    def _stall(self, moment: Moment) -> WatchEvent:
        lasts, limit = self.silence.lasts(moment.now) or 0.0, self.silence.limit or 0.0
        message = f"no new line for {lasts:.0f} s after step {self.step}; {limit:.0f} s are too long"
        step = {} if self.step is None else {"first_step": self.step, "last_step": self.step}
        finding = STALLED.at(None, message, where="log", value=round(lasts, 1), limit=round(limit, 1), unit="s", **step)
        return self._say("stall", message, moment, finding)

    def _has_ended(self) -> bool:
        manifest = self.manifest
        sessions = (manifest.sessions or []) if manifest is not None else []
        return bool(sessions) and sessions[-1].end is not UNSET

    def _say(
        self, event: Event, message: str, moment: Moment, finding: Finding | None = None, likely: Likely | None = None
    ) -> WatchEvent:
        return WatchEvent(
            schema_version=VERSION, event=event, time=round(moment.wall, 3), run=self.name, message=message, step=self.step,
            severity=finding.severity if finding else None, finding=finding, likely=likely,
        )  # fmt: skip


def _likely(run: Run, findings: list[Finding]) -> dict[str, Likely]:
    """Return by code of a finding the likeliest cause that explains it."""
    found: dict[str, Likely] = {}
    for each in diagnose(run, findings, causes().values()):
        likely = Likely(cause=each.cause, title=each.title, knob=each.knob, confidence=each.confidence)
        for code in each.explains:
            found.setdefault(code, likely)
    return found
