"""Lines of a file as bytes, however long they are: one that is too long costs itself, not the memory."""

from collections.abc import Iterable, Iterator

MAX_LINE = 16 * 2**20  # the longest documents of public corpora are books of about 5 MB


def split_lines(blocks: Iterable[bytes], *, longest: int = MAX_LINE) -> Iterator[tuple[int, bytes | None]]:
    r"""Yield each line with its number, from 1, without its LF or CR LF; None where it has more than `longest` bytes.

    >>> list(split_lines([b"a\r\nb", b"cd\n"], longest=2))
    [(1, b'a'), (2, None)]
    """
    number, rest, is_long = 1, b"", False
    for block in blocks:
        *whole, tail = block.split(b"\n")
        for line in whole:
            full = rest + line
            yield number, None if is_long or len(full) > longest else full.removesuffix(b"\r")
            number, rest, is_long = number + 1, b"", False
        rest += tail
        if len(rest) > longest:
            rest, is_long = b"", True
    if rest or is_long:
        yield number, None if is_long else rest.removesuffix(b"\r")
