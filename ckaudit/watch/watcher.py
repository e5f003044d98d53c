"""One run under watch: what grew is read, judged when that is due, and what is new is said."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.audit.latest_checkpoint import contradictions_of_newest
from ckaudit.audit.load_run import is_ours
from ckaudit.audit.report import triage_reads
from ckaudit.contract.fast_jsonl import WORDS
from ckaudit.contract.manifest import Manifest
from ckaudit.contract.report import Finding
from ckaudit.contract.watch import RANK_LOST, WatchEvent
from ckaudit.errors import UnreadableError
from ckaudit.policy.gate import OPEN, Gate
from ckaudit.watch.announcer import Look, Teller
from ckaudit.watch.history import History
from ckaudit.watch.logs import AppendedLines, ShrunkError
from ckaudit.watch.silence import Ranks
from ckaudit.watch.tail import Follower, Growth

# When to judge next: as often as its cost allows, and at once where something asks for it, out of a purse that refills.
SHARE = 0.004  # of one core, for judging as a matter of routine

REFILL = 0.002  # of one core, for what cannot wait

PURSE = 3.0  # seconds of processor time saved up at most: some sixty judgements of a run of 2,000 steps

FIRST = 0.1  # seconds of processor time that the first judgement counts at most

SOON = 0.4  # seconds between two judgements, however urgent

LEAPS = {"train_loss_raw": 1.5, "grad_global_norm": 5.0}
"""How many times its median a value is to be: half of what the recorder's triggers ask (2 and 10), so that no rule waits."""

WINDOW = 50

LEAST = 10


class Alarm:
    """Looks at each new line; it judges nothing itself, so that it may be wrong."""

    def __init__(self) -> None:
        """Begin without any line."""
        self._recent: dict[str, deque[float]] = {name: deque(maxlen=WINDOW) for name in LEAPS}
        self._ill: set[str] = set()

    def rings(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a line asks for a judgement at once."""
        return self._is_new_nonfinite(row) | self._leaps(row)

    def _is_new_nonfinite(self, row: Mapping[str, Any]) -> bool:
        ill = {name for name, value in row.items() if _is_nonfinite(value)}
        new = ill - self._ill
        self._ill = (self._ill - row.keys()) | ill
        return bool(new)

    def _leaps(self, row: Mapping[str, Any]) -> bool:
        rang = False
        for name, times in LEAPS.items():
            value, recent = row.get(name), self._recent[name]
            if isinstance(value, str) or value is None:
                continue
            rang |= len(recent) >= LEAST and value > times * median(recent) > 0
            recent.append(float(value))
        return rang


class Pace(Struct):
    """Keeps the cost of judging under `SHARE` + `REFILL` of a core in the long run.

    Attributes:
        last: When was judged last.
        cost: Processor time of that, in seconds.
        purse: Processor time that is saved up.
        urgent: Whether something asks to judge at once.
    """

    last: float = float("-inf")
    cost: float = 0.0
    purse: float = PURSE
    urgent: bool = True

    def is_due(self, now: float) -> bool:
        """Tell whether to judge now, given that there is something new."""
        waited = now - self.last
        if waited >= self.cost / SHARE:
            return True
        return self.urgent and waited >= max(SOON, self.cost) and self._saved(now) >= min(self.cost, PURSE)

    def judged(self, now: float, cost: float) -> None:
        """Take note of a judgement and its cost; the first, of a long history, costs more than any later one."""
        if self.last == float("-inf"):
            cost = min(cost, FIRST)
        paid_by_waiting = now - self.last >= self.cost / SHARE
        self.purse = self._saved(now) - (0.0 if paid_by_waiting else cost)
        self.last, self.cost, self.urgent = now, cost, False

    def _saved(self, now: float) -> float:
        waited = now - self.last
        return PURSE if waited == float("inf") else min(PURSE, self.purse + REFILL * waited)


class Watcher(Teller):
    """Follows one run folder."""

    def __init__(self, path: Path, *, gate: Gate = OPEN, stall_after: float | None = None, notes: bool = False) -> None:
        """Begin with nothing read.

        Args:
            path: The run folder; it may still be empty.
            gate: Policy and baseline.
            stall_after: Seconds without a line that are a stall; None: learned.
            notes: Whether notes are told too.
        """
        super().__init__(str(path), gate=gate, stall_after=stall_after, notes=notes)
        self._path, self._ranks, self._pace, self._alarm = path, Ranks(), Pace(), Alarm()
        self._begin()

    def _begin(self) -> None:
        self._follower = Follower(self._path)
        self._history = History(self._follower.folder, triage_reads())
        self._contradictions: list[Finding] = []
        self._new, self._lines_judged = False, 0

    def look(self, moment: Look) -> Iterator[WatchEvent]:
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
        for rank in self._ranks.missing(moment.now) if not self._has_ended() else ():
            message = f"rank {rank} wrote no file for the newest checkpoint"
            yield self._say("heartbeat", message, moment, RANK_LOST.at(None, message, where=f"rank.{rank}"))
        if ending and not self._new:
            yield self._end(moment)

    def is_foreign(self) -> bool:
        """Tell whether what came into a folder that was empty is the log of another program."""
        if not self._follower.listed or not self._follower.folder.is_empty():
            return False
        with suppress(UnreadableError):
            return not is_ours(self._path)
        return False

    @property
    def manifest(self) -> Manifest | None:
        """What `run.json` says; None: it is not there."""
        return self._history.reader.manifest

    def _again(self) -> None:
        """Forget what was read; what was told stays told, unless the run began anew."""
        self._begin()
        self._pace.urgent = True

    def _take(self, growth: Growth, moment: Look) -> str:
        """Read what grew; return why the folder is to be read again, empty: it is not."""
        reader = self._history.reader
        reader.folder = self._follower.folder
        if growth.manifest:
            reader.take_manifest()
            self.ended = self.ended and self._has_ended()
        if growth.checkpoints:
            self._history.take_checkpoints(growth.checkpoints)
            self._ranks.take(growth.checkpoints, moment.now)
            # A writer that is wrong is so in every file: of each kind the first counts.
            known = {each.code for each in self._contradictions}
            self._contradictions += [each for each in contradictions_of_newest(self._path) if each.code not in known]
        self._new |= bool(growth.manifest or growth.checkpoints)
        self._pace.urgent |= bool(growth.checkpoints)
        try:
            for piece in self._follower.pieces():
                self._take_piece(piece, moment)
        except ShrunkError as why:
            return str(why)
        return ""

    def _take_piece(self, piece: AppendedLines, moment: Look) -> None:
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
        self.silence.heard(moment.now, times, moment.wall)
        self._pace.urgent |= self._history.lines >= 1.25 * self._lines_judged

    def _judge(self, moment: Look) -> Iterator[WatchEvent]:
        began = process_time()
        run = self._history.run(self.name, self._follower.folder)
        run = replace(run, findings=(*run.findings, *self._contradictions))
        yield from self._weigh(run, moment, in_full=self._history.in_full)
        self._new, self._lines_judged = False, self._history.lines
        self._pace.judged(moment.now, process_time() - began)


# What in a new line asks for a judgement at once: a number that is none any more, or a leap of the loss or the gradient.
def _is_nonfinite(value: Any) -> bool:
    if type(value) is float:
        return value - value != 0
    return isinstance(value, str) and value in WORDS
