"""Prefixes of log lines (time, rank, node and level before the text), and the lines of a file without colour codes."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ckaudit.importers.other_languages import lines_in_english
from ckaudit.importers.tables.table_header import UTF16_MARKS, text_of

BLOCK_BYTES = 2**22
MAX_LINE = 2**14  # no line with a step is longer

EVALUATIONS = ("val", "valid", "validation", "eval", "evaluation", "dev", "test")
"""Words that in brackets before a line say what its loss is of: they are no prefix."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_QUOTED_NAME = re.compile(r"""(?<=[{,\s])(['"])([A-Za-z][\w /.-]{0,60})\1(?=\s?:)""")
_WINDOW = re.compile(
    r" ?[(\[]?(?:(?:over|of|in|for) )?(?:the )?(?:last|past) \d{1,6}(?: [a-z]{1,20})?[)\]]?(?= ?[:=])"
    r"| per (?:training |evaluation )?episode(?= ?[:=])",
    re.IGNORECASE,
)
"""The number of values that a mean is taken of, between the name of the mean and its value."""

_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_PIECE = re.compile(
    rf"""\s*(?:
        \[?(?:default|rank[ ]?)(?P<rank>\d{{1,6}})\]?:?(?=\s|\[|$)     # torchrun, PyTorch and DeepSpeed
      | \[\d{{1,6}},(?P<mpi>\d{{1,6}})\]<std(?:out|err)>:              # mpirun --tag-output
      | srun:[ ]error:[ ](?P<host>[\w.-]{{1,64}}):(?:[ ]tasks?[ ](?P<task>\d{{1,6}})[-,\d]*:)?   # Slurm
      | \[[EWIF]\d{{3,4}}[ ]\d\d:\d\d:\d\d(?:\.\d+)?[ ][^\]]{{1,80}}\]                 # the logger of PyTorch's C++ part
      | (?P<srun>\d{{1,6}}):(?=\s)                                   # srun --label
      | [\[(]?(?P<time>{_TIME})[\])]?:?
      | \[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?(?=\s)
      | \d\d/\d\d/\d{{4}}[ ]\d\d:\d\d:\d\d
      | \[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\]?:?(?=\s|\[)
      | (?P<node>[a-z](?=[\w.-]{{0,62}}\d)[\w.-]{{1,63}}):(?:\d+:\d+[ ]\[(?P<card>\d{{1,4}})\])?(?=\s)  # pdsh, NCCL
      | (?:stdout|stderr)[ ][FP](?=\s)                               # Kubernetes
      | \[(?!(?:{"|".join(EVALUATIONS)})\])[\w./:<>@-]{{1,80}}\]:?
      | [\w.]{{1,80}}(?::[\w<>.]{{1,80}}:\d{{1,6}})?[ ]-(?=\s)          # the name of a Python logger; Loguru: name:function:line
      | [-|:](?=\s)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_DATE = re.compile(_TIME)
_ZONELESS = re.compile(r"[-\d]{10}[T ][:\d]{8}(?:[.,]\d{1,6})?")
_MAX_PIECES = 12


class LinePrefix(Struct, frozen=True):
    """Who wrote a line and when.

    Attributes:
        rank: Rank of the process, where the line gives it; torchrun counts the processes of one node.
        node: Name of the machine.
        time: Unix seconds; a time without a zone is read as UTC.
    """

    rank: int | None = None
    node: str = ""
    time: float | None = None

    @property
    def who(self) -> str:
        """Rank and node in words, empty where neither is known."""
        words = [f"rank {self.rank}"] if self.rank is not None else []
        return ", ".join([*words, self.node] if self.node else words)


NO_PREFIX = LinePrefix()


class LineBlock(NamedTuple):
    """Some lines of a file: the number of the first one, from 1, the lines, and a last line of the file without a line break."""

    first: int
    lines: list[str]
    torn: str | None


def prefix_end(line: str) -> int:
    """Return where the text of a line begins.

    >>> line = "[default7]: [2024-05-01 12:00:00] iteration 1/ 2 |"
    >>> line[prefix_end(line) :]
    'iteration 1/ 2 |'
    """
    end = 0
    for _ in range(_MAX_PIECES):
        if (piece := _PIECE.match(line, end)) is None:
            break
        end = piece.end()
    while end < len(line) and line[end] == " ":
        end += 1
    return end


def parse_prefix(prefix: str) -> LinePrefix:
    """Return who wrote a line and when, from its prefix.

    >>> parse_prefix("[default7]: "), parse_prefix("worker-3: 1970-01-01T00:01:00Z ")
    (LinePrefix(rank=7, node='', time=None), LinePrefix(rank=None, node='worker-3', time=60.0))
    """
    if not prefix or prefix.isspace():
        return NO_PREFIX
    rank, node, time = None, "", None
    end = 0
    while (piece := _PIECE.match(prefix, end)) is not None:
        end = piece.end()
        digits = piece["rank"] or piece["mpi"] or piece["srun"] or piece["card"] or piece["task"]
        rank = int(digits) if digits else rank
        node = piece["node"] or piece["host"] or node
        time = unix_time(piece["time"]) if piece["time"] else time
    return LinePrefix(rank, node, time)


def unix_time(text: str) -> float | None:
    """Return Unix seconds of a date and time, or None where there is no such day or hour.

    >>> unix_time("1970-01-02 00:00:00,500"), unix_time("2024-13-01 00:00:00")
    (86400.5, None)
    """
    try:
        moment = datetime.fromisoformat(text.replace(",", "."))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def time_span(prefix: str) -> tuple[int, int]:
    """Return the span of the date and time in a prefix, (0, 0) where there is none."""
    match = _DATE.search(prefix)
    return match.span() if match else (0, 0)


def unix_times(texts: Sequence[str]) -> NDArray[np.float64]:
    """Return Unix seconds of dates and times, NaN where there is no such day or hour."""
    if len(set(texts)) == 1:
        time = unix_time(texts[0])
        return np.full(len(texts), np.nan if time is None else time)
    if _ZONELESS.fullmatch(texts[0]):
        with suppress(ValueError):
            return np.array([text.replace(",", ".") for text in texts], "datetime64[us]").astype(np.int64) / 1e6
    times = [unix_time(text) for text in texts]
    return np.array([np.nan if time is None else time for time in times], np.float64)


def blocks(data: bytes, *, size: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """Yield the lines of a file, some megabytes at a time.

    Colour codes are removed, and the quotes around the names of a printed dictionary. Known Chinese and Japanese words are
    translated, and `Avg reward (last 100): 2.3` becomes `Avg reward: 2.3`. Of a line that a progress bar overwrote, the last
    version counts.

    Args:
        data: The whole file: UTF-16 with a byte order mark, else UTF-8.
        size: Bytes decoded at once.
    """
    if data.startswith(UTF16_MARKS):
        data = text_of(data).encode()
    number, begin = 1, 3 if data.startswith(b"\xef\xbb\xbf") else 0
    stop = len(data.rstrip(b"\0")) if data.endswith(b"\0") else len(data)  # zeros left by a power cut
    while begin < stop:
        end = stop if begin + size >= stop else data.rfind(b"\n", begin, begin + size) + 1
        if end <= begin:
            end = data.find(b"\n", begin, stop) + 1 or stop
        text = lines_in_english(data[begin:end].decode("utf-8", errors="replace"))
        if "\x1b" in text:
            text = _ESCAPES.sub("", text)
        if "': " in text or '": ' in text:
            text = _QUOTED_NAME.sub(itemgetter(2), text)  # four times as fast as a template
        if "last " in text or "past " in text or " per " in text:
            text = _WINDOW.sub("", text)
        if "\r" in text:
            text = "\n".join([_last_version(line) if "\r" in line else line for line in text.split("\n")])
        lines = text.split("\n")
        torn = lines.pop() or None
        yield LineBlock(number, lines, torn)
        number, begin = number + len(lines), end


def _last_version(line: str) -> str:
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def numbered_lines(data: bytes) -> Iterator[tuple[int, str]]:
    r"""Yield each line of a file with its number, from 1, including a last line that is not complete.

    >>> list(numbered_lines(b"loss 2.5\nloss 2"))
    [(1, 'loss 2.5'), (2, 'loss 2')]
    """
    for block in blocks(data):
        yield from enumerate([*block.lines, *([block.torn] if block.torn else [])], block.first)
