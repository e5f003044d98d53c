"""Forms of log lines: patterns of the lines that a program prints, each learned from the first line of its kind."""

import re
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from ckaudit.importers.tables.growing_column import GrowingColumn
from ckaudit.importers.tables.numbers import Numbers, number
from ckaudit.importers.text.prefix import EVALUATIONS, parse_prefix, time_span, unix_times

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

NO_RANK = -1
# Only numbers: a form that was learned from a broken line must not match good lines with their fields in its values.
_PLAIN_NUMBER = re.compile(r"[-+.0-9eEnaifNAIF]+")
_NUMBER, _WORD = r"[-+.0-9eEnaifNAIF]++", r"[^\s|,/:=]++"
_NUMBER_WITH_COMMAS = rf"{_NUMBER}(?:,{_NUMBER})*+"  # a comma behind it is not a part of it

_NOT_BEHIND_EVALUATION = "".join(rf"(?<!(?i:\[{word}\]{gap}))" for word in EVALUATIONS for gap in ("", " ", ":", ": "))


class Cell(NamedTuple):
    """One value of a line: its key, and where its text begins and ends."""

    key: str
    start: int
    end: int


class LineOrigin(NamedTuple):
    """Origin of lines, shape (N,) each: their numbers, ranks (-1: unknown) and times (NaN: unknown)."""

    lines: Ints
    ranks: Ints
    times: Floats

    def at(self, places: Ints | Mask) -> "LineOrigin":
        """Return the origin of the selected lines."""
        return LineOrigin(self.lines[places], self.ranks[places], self.times[places])


class GrowingOrigin:
    """Origin of lines while they are read."""

    def __init__(self) -> None:
        """Start without lines."""
        self._lines, self._ranks, self._times = array("q"), array("q"), array("d")

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._lines)

    def add(self, origin: LineOrigin) -> None:
        """Append lines."""
        self._lines.frombytes(origin.lines.tobytes())
        self._ranks.frombytes(origin.ranks.tobytes())
        self._times.frombytes(origin.times.tobytes())

    def whole(self) -> LineOrigin:
        """Return all lines without copying them; they must not grow any more."""
        return LineOrigin(
            np.frombuffer(self._lines, np.int64), np.frombuffer(self._ranks, np.int64), np.frombuffer(self._times, np.float64)
        )


class LinePattern(Struct):
    """A pattern of lines that differ only in their values, and the lines that matched it.

    Attributes:
        keys: Keys of the values that are taken, in order.
        others: Keys of the values that are not wanted.
        start: Where the form began in the line that it was learned from.
        match: Matches the values in a line, from a position on, where the line has this form.
        closed: Whether text follows the last value, so that a truncated line cannot have this form.
        texts: Texts of the values of each line since the last `flush`.
        numbers: Numbers of these lines.
        prefixes: The text before the form in each of these lines.
        origins: Origin of the lines.
        columns: Values by key.
        last: Text of the last value that was flushed.
        head: The text before the first value, without trailing blanks.
        is_fused: Whether each of these lines is several fused lines.
    """

    keys: tuple[str, ...]
    others: tuple[str, ...]
    start: int
    match: Callable[[str, int], "re.Match[str] | None"]
    closed: bool
    texts: list[tuple[str, ...]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    origins: GrowingOrigin = field(default_factory=GrowingOrigin)
    columns: dict[str, GrowingColumn] = field(default_factory=dict)
    last: str = ""
    head: str = ""
    is_fused: bool = False

    def take(self, number: int, prefix: str, texts: tuple[str, ...]) -> None:
        """Add a line."""
        self.texts.append(texts)
        self.numbers.append(number)
        self.prefixes.append(prefix)

    def take_all(self, numbers: Sequence[int], lines: Sequence[str]) -> tuple[Sequence[int], Sequence[str]]:
        """Add the lines that match this form at its usual start, and return the others."""
        matches = list(map(self.match, lines, repeat(self.start)))
        missing = matches.count(None)
        if missing == len(matches):
            return numbers, lines
        self.texts += [match.groups() for match in matches if match is not None]
        matched = list(zip(numbers, lines, matches, strict=True)) if missing else []
        self.numbers += [number for number, _, match in matched if match is not None] if missing else numbers
        taken = [line for _, line, match in matched if match is not None] if missing else lines
        self.prefixes += [line[: self.start] for line in taken] if self.start else [""] * len(taken)
        rest = [(number, line) for number, line, match in matched if match is None]
        return [number for number, _ in rest], [line for _, line in rest]

    def flush(self) -> None:
        """Convert the lines added so far to numbers."""
        if not self.texts:
            return
        self.last = self.texts[-1][-1]
        self.origins.add(_origin(self.numbers, self.prefixes))
        pairs = [*zip(self.keys, zip(*self.texts, strict=True), strict=True)]
        for key, column in dict(reversed(pairs)).items():  # of a key that occurs twice in a line the first value counts
            self.columns.setdefault(key, GrowingColumn()).add(_column(column))
        for pending in (self.texts, self.numbers, self.prefixes):
            pending.clear()


def learn_pattern(line: str, start: int, cells: Sequence[Cell], wanted: Callable[[str], bool]) -> LinePattern:
    """Return the form of a line from `start` on, given its values.

    Args:
        line: The line.
        start: Where its form begins.
        cells: Its values, in order of position.
        wanted: Tells which keys are taken. The last value is also taken if no text follows it.

    >>> form = learn_pattern("step 1: loss 2.5", 0, [Cell("step", 5, 6), Cell("loss", 13, 16)], lambda key: True)
    >>> form.match("step 20: loss nan", 0).groups()
    ('20', 'nan')
    """
    rest = line[cells[-1].end :].rstrip()
    taken = [wanted(cell.key) or (cell is cells[-1] and not rest) for cell in cells]
    # "[train] " and "[valid] " are equally long: a form that was learned behind the former must not match behind the latter.
    parts, at = [_NOT_BEHIND_EVALUATION if "]" in line[:start] else ""], start
    for cell, is_taken in zip(cells, taken, strict=True):
        value = _value(line[cell.start : cell.end])
        parts += [_between(line[at : cell.start], first=at == start), f"({value})" if is_taken else value]
        at = cell.end
    pattern = re.compile("".join([*parts, _between(rest, first=False), r"\s*\Z"]))
    keys = tuple(cell.key for cell, is_taken in zip(cells, taken, strict=True) if is_taken)
    others = tuple(cell.key for cell in cells if not wanted(cell.key))
    head = line[start : cells[0].start].rstrip(" ")
    is_fused = len({cell.key for cell in cells}) < len(cells) or (bool(head) and head in rest)
    return LinePattern(keys, others, start, pattern.match, bool(rest), head=head, is_fused=is_fused)


def _value(text: str) -> str:
    """Return a pattern for values that are written like this one."""
    if _PLAIN_NUMBER.fullmatch(text):
        return _NUMBER
    return _NUMBER_WITH_COMMAS if _PLAIN_NUMBER.fullmatch(text.replace(",", "")) else _WORD


def concatenated(origins: Sequence[LineOrigin]) -> LineOrigin:
    """Return the origins in sequence as one."""
    if len(origins) == 1:
        return origins[0]
    nowhere = LineOrigin(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    lines, ranks, times = zip(nowhere, *origins, strict=True)
    return LineOrigin(np.concatenate(lines), np.concatenate(ranks), np.concatenate(times))


def unmatchable_pattern(keys: tuple[str, ...]) -> LinePattern:
    """Return a form that no line matches, for values that were found without a pattern."""
    return LinePattern(keys, (), 0, re.compile(r"(?!)").match, closed=False)


def _between(text: str, *, first: bool) -> str:
    """Return a pattern for the text between two values; values may be padded with blanks for alignment."""
    inner = re.escape(text.strip(" "))
    if not inner:
        return " *+" if text else ""
    before = "" if first or not text.startswith(" ") else " *+"
    return f"{before}{inner} *+" if text.endswith(" ") else f"{before}{inner}"


def _column(texts: Sequence[str]) -> Numbers:
    size = len(texts)
    with suppress(ValueError):
        if "_" in "".join(texts):
            raise ValueError  # Python's own float accepts underscores
        if texts.count(texts[0]) == size:
            return Numbers(np.full(size, float(texts[0])), np.ones(size, bool))
        return Numbers(np.fromiter(map(float, texts), np.float64, size), np.ones(size, bool))
    values = [number(text.replace(",", "")) for text in texts]
    known = np.array([value is not None for value in values], bool)
    return Numbers(np.array([np.nan if value is None else value for value in values], np.float64), known)


def _origin(numbers: Sequence[int], prefixes: Sequence[str]) -> LineOrigin:
    size = len(numbers)
    lines = np.fromiter(numbers, np.int64, size)
    begin, end = time_span(prefixes[0])
    same = {prefix[:begin] + prefix[end:] for prefix in prefixes} if end else set(prefixes)
    if len(same) == 1:
        mark = parse_prefix(prefixes[0])
        times = unix_times([prefix[begin:end] for prefix in prefixes]) if end else np.full(size, np.nan)
        return LineOrigin(lines, np.full(size, NO_RANK if mark.rank is None else mark.rank, np.int64), times)
    marks = [parse_prefix(prefix) for prefix in prefixes]
    ranks = np.array([NO_RANK if mark.rank is None else mark.rank for mark in marks], np.int64)
    return LineOrigin(lines, ranks, np.array([np.nan if mark.time is None else mark.time for mark in marks], np.float64))
