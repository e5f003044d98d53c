"""Lines of a text log that report an error: its kind, rank, node and time."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ckaudit.importers.names import writable
from ckaudit.importers.text.prefix import LinePrefix, blocks, parse_prefix, prefix_end

# Every line that one of the patterns below matches holds one of these; a plain search for them is fast.
NEEDLES = (
    "rror",
    "xception",
    "out of memory",
    "OOM",
    "oom-kill",
    "oom_kill",
    "Killed",
    "killed",
    "Traceback",
    "annot allocate",
    "bad_alloc",
    "NCCL",
    "nccl",
    "atchdog",
    "eartbeat",
    "o space left",
    "quota exceeded",
    "tale file handle",
    "nterrupt",
    "-only file system",
    "Xid",
    "CUBLAS_",
    "CUDNN_",
    "ECC",
    "fallen off the bus",
    "egmentation fault",
    "exitcode",
    "SIG",
    "imed out",
    "onnection closed",
    "onnection reset",
    "core dumped",
    "NODE_FAIL",
    "ode failure",
    "device-side assert",
    "illegal memory",
)
MAX_QUOTED = 120
MAX_SIGHTINGS = 100_000

WORDS = {
    "oom": "out of memory",
    "nccl": "collectives",
    "io": "input and output",
    "cuda": "the accelerator",
    "killed": "killed processes",
    "python": "other exceptions",
    "heartbeat": "lost heartbeats",
}

_KINDS = {
    "heartbeat": r"heartbeat monitor timed out|watchdog got stuck|(?:no|lost|missing|missed) heartbeat"
    r"|heartbeat (?:\w+ )?(?:lost|missing|missed|timeout|timed out)|NODE_FAIL|\bnode failure\b",
    "oom": r"out of memory|OutOfMemoryError|\bMemoryError\b|oom[-_]kill|\bOOM\b(?!_)|cannot allocate memory|std::bad_alloc"
    r"|can't allocate memory|memory cgroup out",
    "nccl": r"nccl (?:error|failure)|nccl(?:System|UnhandledCuda|Internal|Remote)Error|ncclInvalid\w+|NCCL WARN\b"
    r"|watchdog caught collective|DistBackendError|NCCL[^|]{0,80}(?:timeout|timed out|abort)|collective operation timeout"
    r"|(?:gloo|rendezvous)[^|]{0,80}(?:timeout|timed out|error|connection closed)|Rendezvous\w*Error|DistNetworkError"
    r"|DistStoreError|connection closed by (?:remote )?peer",
    "io": r"no space left on device|input/output error|stale file handle|disk quota exceeded|read-only file system"
    r"|\bOSError: |\bIOError: |\bFileNotFoundError: |\bPermissionError: |\bConnectionError: |\bBlockingIOError: "
    r"|\bTimeoutError: |\bReadTimeout(?:Error)?\b|botocore\.exceptions|\bConnectionResetError|\bBrokenPipeError|\bEOFError\b"
    r"|PytorchStream(?:Reader|Writer) failed|connection reset by peer",
    "cuda": r"\bCUDA error|\bcudaError\w*|device-side assert|illegal memory access|CUBLAS_STATUS_(?!SUCCESS)|NVRM: Xid|\bXid \("
    r"|CUDNN_STATUS_(?!SUCCESS)|uncorrectable ECC|fallen off the bus|cuda runtime error|\bHIP error|AcceleratorError",
    "killed": r"segmentation fault|core dumped|\bSIG(?:KILL|SEGV|ABRT|BUS)\b|exitcode: -\d+|killed by signal|: Killed\b|^Killed\b"
    r"|received signal (?:9|11|6)\b",
}
_KNOWN = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _KINDS.items()}
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|KeyboardInterrupt)(?:: .*|\s*)\Z|KeyboardInterrupt\s*\Z")
_CONSEQUENCE = re.compile(
    r"Traceback \(most recent call last\)|ChildFailedError|SignalException|exitcode: [1-9]\d*\)|Killing subprocess"
)
_HARMLESS = re.compile(r"\b[A-Z]+(?:_[A-Z]+)*_ERROR_[A-Z]+|[Ww]arning:|DeprecationWarning|retries left: |\bno errors?\b")
_CODE = re.compile(
    r"\s*(?:#|//|\*|[\"']|(?:raise|except|if|elif|while|for|assert|return|def|class|import|from|with|try|print\d?)\b[ (:]"
    r"|\w+\s*=\s|log\w*\.)"
)


class ErrorLine(Struct, frozen=True):
    """A line that reports an error.

    Attributes:
        line: Its number.
        kind: A key of `WORDS`.
        mark: Who wrote it and when.
        quoted: Its text, shortened.
        consequence: Whether the line only reports a consequence, such as the end of a process; other lines give the cause.
    """

    line: int
    kind: str
    mark: LinePrefix
    quoted: str
    consequence: bool = False


def error_line(number: int, line: str) -> ErrorLine | None:
    """Return the error that a line reports, or None where it reports none, as in lines of source code.

    >>> error_line(3, "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB").kind
    'oom'
    >>> error_line(4, '    raise RuntimeError("CUDA out of memory")') is None
    True
    """
    if "NCCL INFO" in line:
        return None
    start = prefix_end(line)
    text = line[start : start + 2000]
    if _CODE.match(text) or _HARMLESS.search(text):
        return None
    consequence = _CONSEQUENCE.search(text) is not None
    kind = None if consequence else next((kind for kind, pattern in _KNOWN.items() if pattern.search(text)), None)
    if kind is None and (consequence or _EXCEPTION.match(text)):
        kind = "python"
    if kind is None:
        return None
    return ErrorLine(number, kind, parse_prefix(line[:start]), shortened(text), consequence)


def shortened(text: str) -> str:
    """Return the text of a line, shortened to fit a sentence and without control characters."""
    plain = "".join(character if character.isprintable() else " " for character in text.strip())
    return writable(plain if len(plain) <= MAX_QUOTED else f"{plain[: MAX_QUOTED - 3]}...")


def error_lines(data: bytes, *, max_lines: int = 10_000) -> list[ErrorLine]:
    """Return the lines that report errors in a log of no known format.

    Args:
        data: The whole file.
        max_lines: Number of such lines after which the search ends.
    """
    sightings: list[ErrorLine] = []
    for block in blocks(data):
        lines = [*block.lines, block.torn] if block.torn else block.lines
        candidates = (error_line(number, line) for number, line in lines_with(list(enumerate(lines, block.first)), NEEDLES))
        sightings += [seen for seen in candidates if seen is not None]
        if len(sightings) >= max_lines:
            break
    return sightings[:max_lines]


def lines_with(lines: Sequence[tuple[int, str]], needles: Iterable[str]) -> list[tuple[int, str]]:
    """Return the lines that hold one of the needles; a search over the joined text first discards needles that do not occur."""
    text = "\n".join([line for _, line in lines])
    present = [needle for needle in needles if needle in text]
    return [(number, line) for number, line in lines if any(needle in line for needle in present)] if present else []
