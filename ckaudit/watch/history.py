"""The history of one growing run: every new line and file is read once, and a run for the rules is made of them."""

from collections.abc import Iterable
from itertools import islice

import numpy as np

from ckaudit.contract.io.fast_jsonl import LineTable, Tabulator
from ckaudit.contract.io.folder import CheckpointFile, RunFolder
from ckaudit.contract.io.jsonl import MAX_EXPLAINED, Lines, parse_lines
from ckaudit.run.builder import RunBuilder
from ckaudit.run.read import RunReader
from ckaudit.run.run import Run
from ckaudit.run.scalars import ColumnJoiner, ScalarLog, SessionLogs
from ckaudit.run.series import Floats, Mask, Steps
from ckaudit.run.units import in_catalogue_units
from ckaudit.watch.tail import AppendedLines

MANY_LINES = 2**16  # bytes from which lines are read by columns

MANY_PARTS = 64

MANY_CHECKPOINTS = 1024

NEAR = 4096
"""Values kept in full; many times the longest `memory` that a rule and its metrics have together."""

FAR = 4096
"""Values kept of all that came before."""

MOST = 16384
"""Values at which a column is thinned, so that thinning costs a constant per value."""


class History:
    """The run as far as it was read, in bounded memory.

    Attributes:
        reader: Gathers lines and checkpoints.
        in_full: The first step from which on nothing was thinned; 0: nothing was.
        lines: Lines taken.
    """

    def __init__(self, folder: RunFolder, paths: frozenset[str]) -> None:
        """Begin with nothing."""
        self._paths = paths
        self._files: list[CheckpointFile] = []
        self.reader = RunReader(folder, paths, SessionLogs())
        self.in_full = 0
        self.lines = 0
        self._tabulator = Tabulator()
        self._faulty: dict[str, int] = {}
        self._due = MOST
        self._judged = False

    def take_piece(self, piece: AppendedLines) -> Lines:
        """Add lines of a log, and return them."""
        shown, faulty = piece.path.name, self._faulty.get(piece.path.name, 0)
        tabulate = self._table if len(piece.data) >= MANY_LINES else None
        lines = parse_lines(piece.data, shown, first_line=piece.first, explained=faulty, tabulate=tabulate)
        self._faulty[shown] = faulty + lines.faulty
        lines.findings = lines.findings[: MAX_EXPLAINED + 1 - min(faulty, MAX_EXPLAINED)]
        self.reader.take_lines(lines)
        if tabulate:
            self._tabulator.learn(lines.rows)
        self.lines += len(lines.rows) + (0 if lines.table is None else len(lines.table.steps))
        if self._judged and self.lines >= self._due:
            self._thin()
        return lines

    def take_checkpoints(self, files: Iterable[CheckpointFile]) -> None:
        """Read new checkpoints and new facts of ranks; of very many every second older one is let go."""
        for file in files:
            if file.rank is None:
                self.reader.take_checkpoint(file)
                self._files.append(file)
            else:
                self.reader.take_rank(file)
        if len(self._files) >= MANY_CHECKPOINTS:
            older, newest = self._files[: -MANY_CHECKPOINTS // 2], self._files[-MANY_CHECKPOINTS // 2 :]
            self._files = []
            self.reader.gatherer = RunBuilder(self._paths)
            self.in_full = max(self.in_full, newest[0].step or 0)
            self.take_checkpoints([*older[::2], *newest])

    def run(self, name: str, folder: RunFolder) -> Run:
        """Return what is known as a run: the first time all that there was, from then on what is kept of it."""
        self.reader.folder = folder
        if not self._judged:
            self._judged, self._due = True, 0  # thinned with the next line
            return in_catalogue_units(self.reader.run(name), {})
        if any(stretches(log) > MANY_PARTS for log in self.reader.log.sessions.values()):
            self._thin()
        return in_catalogue_units(self.reader.run(name), {})

    def _thin(self) -> None:
        sessions = self.reader.log.sessions
        first_steps = [thin_log(log) for log in sessions.values()]
        self.in_full = max([self.in_full, *(step for step in first_steps if step is not None)])
        self._due = self.lines + max(MOST // 4, MOST - max(map(size, sessions.values()), default=0))

    def _table(self, body: bytes) -> LineTable | None:
        table = self._tabulator.read(body)
        return table if table is not None and self.reader.log.takes(table) else None


# The history that is kept: the newest values of every name in full, the older ones thinned, so that memory is bounded.
def thin_log(log: ScalarLog) -> int | None:
    """Thin every column that grew too long, in place.

    Of what is older than the newest `NEAR` values the first of each of `FAR` equal stretches of steps stays, the same ones in
    all columns of the same steps, and each that is not finite. A name that is logged now and then stays whole.

    Returns:
        The first step that is now kept in full; None: nothing was thinned.
    """
    joiner, firsts = ColumnJoiner(), []
    for column in log.numbers.values():
        joined = joiner.join(column)
        if len(joined.steps) >= MOST:
            rows = _kept(joined.steps, joined.values)
            column.parts = [(joined.steps[rows], joined.values[rows])]
            firsts.append(int(joined.steps[-NEAR]))
        elif len(column.parts) > 1:
            column.parts = [(joined.steps, joined.values)]
    for name, words in log.words.items():
        if len(words) >= MOST:
            older = len(words) - NEAR
            log.words[name] = dict(islice(words.items(), 0, older, -(-older // FAR))) | dict(islice(words.items(), older, None))
    return max(firsts, default=None)


def size(log: ScalarLog) -> int:
    """Return how many values the longest column holds."""
    return max((sum(len(steps) for steps, _ in number.parts) + len(number.steps) for number in log.numbers.values()), default=0)


def stretches(log: ScalarLog) -> int:
    """Return in how many pieces the columns lie at most."""
    return max((len(number.parts) for number in log.numbers.values()), default=0)


def _kept(steps: Steps, values: Floats) -> Mask:
    older = len(values) - NEAR
    rows = ~np.isfinite(values)
    if rows.sum() > FAR:  # a name that is not a number for most of the run
        rows[:] = False
    # By steps, not by rows: what was thinned before must not be thinned again and again until the beginning is gone.
    turn = (steps[:older] - steps[0]) * FAR // max(1, int(steps[older] - steps[0]))
    rows[:older] |= np.diff(turn, prepend=-1) != 0
    rows[older:] = True
    return rows
