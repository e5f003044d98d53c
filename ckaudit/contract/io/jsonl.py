"""Reading of `scalars.jsonl` in blocks of lines: one JSON object per line, mostly valid, the last one perhaps cut off.

A block of lines is decoded in one pass. It is read line by line only if that fails, or if the pass would lose something in it (a
repeated key, two objects on a line). A faulty line costs only itself. File size, line length, and the number of lines, values and
faults are bounded.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

import msgspec
from msgspec import Struct, field

from ckaudit.contract import violations
from ckaudit.contract.explain import explain, not_text
from ckaudit.contract.io.codec import BOM, quote_bare_words
from ckaudit.contract.io.columns import holds_keys
from ckaudit.contract.io.files import MAGIC, MAX_BYTES, BrokenFile, read_blocks
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.schema.scalars import VERSION, ScalarLine
from ckaudit.wording import plural

if TYPE_CHECKING:
    from ckaudit.contract.io.fast_jsonl import LineTable


MAX_LINE_BYTES = 4 * 2**20  # a line with every per-tensor norm of 1,000 tensors has 0.1 MB

FIRST_BYTES = 2**14
"""Bytes that suffice to learn the fields of lines."""

MANY_BYTES = 2**17
"""Size from which a table is faster, including the time to learn the fields."""

MIN_LINES = 64
"""Lines of a block below which the next one is joined to it."""

MAX_JOINED = 2**25
"""Bytes of blocks from which no other is joined to them."""

_NOT_TEXT = (b"\xff\xfe", b"\xfe\xff", *MAGIC)  # UTF-16, or compressed

MAX_EXPLAINED = 20
MAX_FAULTY = 100_000
MAX_LINES = 10_000_000  # of 200 bytes, a common size, they are as much as a file may have
MAX_VALUES = 40_000_000  # 40 numbers at each of a million steps; read and joined, they take 0.8 GB

Row = dict[str, float | str | bool | None]
Tabulate = Callable[[bytes], "LineTable | None"]

_PYTHON_WORDS = [mark + word for mark in (b":", b": ") for word in (b"NaN", b"Infinity", b"-Infinity")]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Lines(Struct):
    """Contents of a block of lines.

    Attributes:
        first: The line of the file that the block begins with, from 1.
        table: Valid lines as columns, if a table was asked for and possible; those in `rows` come after them.
        rows: The valid lines, each a dictionary as written: a word such as "NaN" stays a word, null stays None.
        numbers: Line number in the file of each row, from 1.
        findings: Problems in the order of lines; only of the first `MAX_EXPLAINED` faulty lines.
        notes: Notes that are not problems.
        faulty: Number of faulty lines; all faults but repeated keys lose the line.
        bare: Number of bare NaN and infinities, which count as recorded.
        stopped: Whether reading must stop here, because of an unknown version or because the file is not a log.
    """

    first: int = 1
    table: "LineTable | None" = None
    rows: list[Row] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faulty: int = 0
    bare: int = 0
    stopped: bool = False


class LogBudget(Struct):
    """Lines and values that may still be read from the logs of one run; short lines pack so well that bytes do not bound them."""

    lines: int = field(default_factory=lambda: MAX_LINES)
    values: int = field(default_factory=lambda: MAX_VALUES)

    def spend(self, lines: int, values: int) -> None:
        """Take a block from what is left."""
        self.lines -= lines
        self.values -= values

    def excess(self) -> str | None:
        """Return what a run holds more of than is read, for a message; None if something is left."""
        if self.lines > 0 and self.values > 0:
            return None
        return f"{MAX_LINES:,} lines" if self.lines <= 0 else f"{MAX_VALUES:,} values"


def read_lines(
    path: Path, shown: str, *, root: Path | None = None, tabulate: Tabulate | None = None, budget: LogBudget | None = None
) -> Iterator[Lines]:
    """Yield a scalar log block by block, with `.gz` and `.zst` decompressed; memory does not grow with the file.

    If a file cannot be read to its end, the last block holds only the finding that explains it.

    Args:
        path: The log.
        shown: Its name in findings.
        root: Folder that it must not leave through a link.
        tabulate: Returns a table of lines, or None if something would be lost.
        budget: What may still be read from the logs of its run. Default: as much as from one run.
    """
    faulty, number, budget = 0, 1, budget or LogBudget()
    try:
        blocks = _many_lines(_whole_lines(read_blocks(path, shown, root=root), shown))
        for block in blocks if tabulate is None else _first_lines_apart(blocks):
            if (excess := budget.excess()) is not None:
                message = f"the scalar logs hold more than {excess}: of this one {plural(number - 1, 'line')} were read"
                yield Lines(findings=[violations.TOO_LARGE.at(shown, message, line=number)])
                break
            lines = _parse(block, shown, number, faulty, tabulate)
            count = block.count(b"\n") if lines.table is None else len(lines.table.steps)
            budget.spend(count, block.count(b":"))
            number += count
            faulty += lines.faulty
            yield lines
            if lines.stopped:
                break
    except BrokenFile as broken:
        yield Lines(findings=[broken.finding])
    if faulty > MAX_EXPLAINED:
        rest = "; the rest was not read" if faulty >= MAX_FAULTY else ""
        message = f"{faulty - MAX_EXPLAINED:,} more lines are faulty{rest}"
        yield Lines(findings=[violations.NOT_JSON.at(shown, message, line=number - 1)])


def _whole_lines(blocks: Iterator[bytes], shown: str) -> Iterator[bytes]:
    """Yield whole lines; the last one may be cut off, or so long that nothing after it is read."""
    rest, start = b"", True
    for block in blocks:
        if start and _is_binary(block[:4096]):
            raise BrokenFile(violations.NOT_TEXT.at(shown, not_text(block)))
        start = False
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join((rest, memoryview(block)[:cut]))
            rest = block[cut:]
        else:
            rest += block
        if len(rest) > MAX_BYTES:
            break
    if rest:
        yield rest


def _many_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Join blocks of few lines: a name costs time in each block, so that lines of ever more names would cost ever more."""
    held, lines, size = [], 0, 0
    try:
        for block in blocks:
            held.append(block)
            lines += block.count(b"\n")
            size += len(block)
            if lines >= MIN_LINES or size >= MAX_JOINED:
                yield held[0] if len(held) == 1 else b"".join(held)
                held, lines, size = [], 0, 0
    except BrokenFile:  # the bytes before are valid
        if held:
            yield b"".join(held)
        raise
    if held:
        yield b"".join(held)


def _first_lines_apart(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the start of the first block separately, so that a table's fields can be learned from it."""
    for number, block in enumerate(blocks):
        cut = block.find(b"\n", FIRST_BYTES) + 1 if number == 0 and len(block) > MANY_BYTES else 0
        if cut:
            yield block[:cut]
        yield block[cut:]


def _is_binary(head: bytes) -> bool:
    # A power failure leaves zeros after the last line, which alone do not make a file binary.
    return head.startswith(_NOT_TEXT) or b"\0" in head.rstrip(b"\0")


def _parse(block: bytes, file: str, number: int, faulty: int, tabulate: Tabulate | None) -> Lines:
    beyond = len(block) - MAX_LINE_BYTES
    # A line that is too long covers this stretch; a line end inside it excludes one.
    if beyond <= 0 or block.find(b"\n", beyond, MAX_LINE_BYTES) >= 0:
        return parse_lines(block, file, first_line=number, explained=faulty, tabulate=tabulate)
    parts = block.split(b"\n")
    long = [index for index, part in enumerate(parts) if len(part) > MAX_LINE_BYTES]
    for index in long:
        parts[index] = b""
    body = b"\n".join(parts) if long else block
    lines = parse_lines(body, file, first_line=number, explained=faulty, tabulate=tabulate)
    for line in (number + index for index in long):
        message = f"line {line} is longer than {MAX_LINE_BYTES:,} bytes; it was not read"
        lines.findings.append(violations.TOO_LARGE.at(file, message, line=line))
    return lines


def parse_lines(data: bytes, file: str, *, first_line: int = 1, explained: int = 0, tabulate: Tabulate | None = None) -> Lines:
    """Parse the lines of `data`; a last line without a newline counts if it is complete, and is left out if it is cut off.

    Args:
        data: Bytes of the file, from the start of a line.
        file: Its name in findings.
        first_line: The line of the file that `data` starts with.
        explained: Number of faulty lines already explained; beyond `MAX_EXPLAINED` they are only counted.
        tabulate: Returns a table of lines, or None if something would be lost.
    """
    lines = Lines(first_line)
    if first_line == 1 and data.startswith(BOM):
        data = data[len(BOM) :]
        lines.findings.append(violations.BYTE_ORDER_MARK.at(file, "starts with a byte order mark", line=1))
    cut = data.rfind(b"\n") + 1
    body, tail = (data, b"") if cut == len(data) else (data[:cut], data[cut:])
    if body and not body.isspace() and not _take_all(body, lines, file, first_line, tabulate):
        _take_each(body, lines, file, first_line, explained)
    if tail.strip() and not lines.stopped:
        _take_tail(tail, lines, file, first_line + body.count(b"\n"), explained)
    return lines


def _take_each(body: bytes, lines: Lines, file: str, first_line: int, explained: int) -> None:
    for number, text in enumerate(body.split(b"\n"), first_line):
        if text.strip():
            _take(text, lines, file, number, explained)
            if lines.stopped:
                return


@cache
def _decoders() -> tuple["msgspec.json.Decoder[Row]", "msgspec.json.Decoder[ScalarLine]"]:
    return msgspec.json.Decoder(dict[str, _Int64 | float | str | bool | None]), msgspec.json.Decoder(ScalarLine)


def _take_all(body: bytes, lines: Lines, file: str, first_line: int, tabulate: Tabulate | None) -> bool:
    """Read all lines in one pass, and tell whether nothing was lost."""
    taken = _taken(body, lines, first_line, tabulate)
    if not taken and (words := [word for word in _PYTHON_WORDS if word in body]):
        taken = _taken(_quote_python_words(body, words), lines, first_line, tabulate)
        if taken:
            first = min(map(body.find, words))
            _say_bare(lines, file, first_line + body.count(b"\n", 0, first), sum(map(body.count, words)))
    return taken


def _taken(body: bytes, lines: Lines, first_line: int, tabulate: Tabulate | None) -> bool:
    lines.table = tabulate(body) if tabulate else None
    if lines.table is not None:
        return True
    rows = _decode_all(body)
    if rows is None:
        return False
    lines.rows, lines.numbers = rows, list(range(first_line, first_line + len(rows)))
    return True


def _quote_python_words(body: bytes, words: list[bytes]) -> bytes:
    """Quote bare words; quoting one inside a string breaks the text and so never changes it unnoticed."""
    for pattern in words:
        word = pattern.lstrip(b": ")
        body = body.replace(pattern, pattern.removesuffix(word) + b'"' + word + b'"')
    return body


def _decode_all(body: bytes) -> list[Row] | None:
    values, fixed = _decoders()
    try:
        rows = values.decode_lines(body)
        fixed.decode_lines(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return rows if len(rows) == body.count(b"\n") and holds_keys(body, sum(map(len, rows)), body.count(b":")) else None


def _take(text: bytes, lines: Lines, file: str, number: int, explained: int) -> None:
    words = 0
    row = _decode_line(text)
    repeated: list[str] = []
    if row is None:
        text, words = quote_bare_words(text)
        row, repeated = _parse_line(text)
    if row is not None and row.get("schema_version") in (None, VERSION) and not repeated:
        lines.rows.append(row)
        lines.numbers.append(number)
        if words:
            _say_bare(lines, file, number, words)
        return
    _take_faulty(text, lines, file, number, explained=explained, row=row, repeated=repeated)


def _take_faulty(
    text: bytes, lines: Lines, file: str, number: int, *, explained: int, row: Row | None, repeated: list[str]
) -> None:
    lines.faulty += 1
    unknown = row is not None and not repeated
    if explained + lines.faulty <= MAX_EXPLAINED or unknown:
        lines.findings += [
            violations.DUPLICATE_KEY.at(file, f"{key} stands twice in line {number}", line=number, expected="each key once")
            for key in repeated
        ]
        lines.findings += _explain(text, file, number)
    lines.stopped = unknown or explained + lines.faulty >= MAX_FAULTY
    if repeated and row is not None:
        lines.rows.append(row)
        lines.numbers.append(number)


def _explain(text: bytes, file: str, number: int) -> list[Finding]:
    try:
        text.decode()
    except UnicodeDecodeError:
        return [violations.NOT_TEXT.at(file, f"line {number} is not UTF-8 text", line=number)]
    findings = explain(text, file, VERSION, first_line=number).findings
    return [finding if finding.line else msgspec.structs.replace(finding, line=number) for finding in findings]


def _decode_line(text: bytes) -> Row | None:
    values, fixed = _decoders()
    try:
        row = values.decode(text)
        fixed.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return row if holds_keys(text, len(row), text.count(b":")) else None


def _parse_line(text: bytes) -> tuple[Row | None, list[str]]:
    """Parse a line the slow way: return its values if possible, and its repeated keys.

    A whole step written as 3.0 and an integer beyond 64 bits are unusual but within the contract.
    """
    if not text.lstrip().startswith(b"{"):
        return None, []
    try:
        pairs = json.loads(text, object_pairs_hook=list)
        row = {key: _scalar(value) for key, value in pairs}
        row |= {name: int(value) for name in ("step", "session") if _whole(value := row.get(name))}
        json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair is not text
        msgspec.convert({name: row[name] for name in ("step", "time", "session") if name in row}, ScalarLine)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None, []
    return row, [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]


def _whole(value: Any) -> TypeGuard[float]:
    return isinstance(value, float) and value.is_integer()


def _scalar(value: Any) -> float | str | bool | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return float(value)
    if isinstance(value, list) or value in (float("inf"), float("-inf")):
        raise ValueError("not a number that JSON can hold, nor a word")
    return value  # type: ignore[no-any-return]


def _take_tail(tail: bytes, lines: Lines, file: str, number: int, explained: int) -> None:
    rest = tail.strip(b"\0 \t\r")
    if not rest or (rest.startswith(b"{") and _is_cut(rest)):
        lines.notes.append(f"{file}: the last line is cut off; it was left out")
        return
    _take(tail, lines, file, number, explained)


def _is_cut(text: bytes) -> bool:
    try:
        json.loads(quote_bare_words(text)[0])
    except (json.JSONDecodeError, UnicodeDecodeError):
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _say_bare(lines: Lines, file: str, number: int, words: int) -> None:
    """Count bare words, and report the line of the first one only."""
    lines.bare += words
    if lines.bare == words:
        message = f"holds a bare NaN or Infinity in line {number}; it was read as recorded"
        lines.findings.append(violations.BARE_NAN.at(file, message, line=number))
