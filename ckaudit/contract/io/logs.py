"""A whole scalar log from disk, a block of lines at a time: its length, the length of a line and the faults are bounded."""

from collections.abc import Iterator
from pathlib import Path

from ckaudit.contract import violations
from ckaudit.contract.explain import not_text
from ckaudit.contract.io.files import MAGIC, MAX_BYTES, BrokenFile, read_blocks
from ckaudit.contract.io.lines import MAX_EXPLAINED, MAX_FAULTY, Lines, Tabulate, parse_lines
from ckaudit.contract.schema.report import Finding

MAX_LINE_BYTES = 4 * 2**20  # a line with every per-tensor norm of 1,000 tensors has 0.1 MB

_NOT_TEXT = (b"\xff\xfe", b"\xfe\xff", *MAGIC)  # UTF-16, or packed


def read_lines(path: Path, shown: str, *, root: Path | None = None, tabulate: Tabulate | None = None) -> Iterator[Lines]:
    """Yield a scalar log a block at a time, `.gz` and `.zst` unpacked; memory does not grow with the file.

    A file that cannot be read, or not to its end, gives a last block whose only content is the finding that says why.

    Args:
        path: The log.
        shown: Its name in findings.
        root: The folder it must not leave by a link.
        tabulate: Makes a table of lines, or None where it cannot without loss.
    """
    faulty, number = 0, 1
    try:
        for block in _whole_lines(read_blocks(path, shown, root=root), shown):
            lines = _parse(block, shown, number, faulty, tabulate)
            number += block.count(b"\n") if lines.table is None else len(lines.table.steps)
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
    """Yield whole lines; the last one may be cut, or so long that nothing behind it is read."""
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


def _is_binary(head: bytes) -> bool:
    # A power cut leaves zeros behind the last line: they alone do not make a file binary.
    return head.startswith(_NOT_TEXT) or b"\0" in head.rstrip(b"\0")


def _parse(block: bytes, file: str, number: int, faulty: int, tabulate: Tabulate | None) -> Lines:
    if _has_short_lines(block):
        return parse_lines(block, file, first_line=number, explained=faulty, tabulate=tabulate)
    parts = block.split(b"\n")
    long = [index for index, part in enumerate(parts) if len(part) > MAX_LINE_BYTES]
    for index in long:
        parts[index] = b""
    body = b"\n".join(parts) if long else block
    lines = parse_lines(body, file, first_line=number, explained=faulty, tabulate=tabulate)
    lines.findings += [_too_long(file, number + index) for index in long]
    return lines


def _has_short_lines(block: bytes) -> bool:
    """Tell whether surely no line is too long, as none is where one ends in the stretch that each such line would cover."""
    beyond = len(block) - MAX_LINE_BYTES
    return beyond <= 0 or block.find(b"\n", beyond, MAX_LINE_BYTES) >= 0


def _too_long(file: str, number: int) -> Finding:
    message = f"line {number} is longer than {MAX_LINE_BYTES:,} bytes; it was not read"
    return violations.TOO_LARGE.at(file, message, line=number)
