"""Locations in a JSON text: the line of a value, repeated keys, numbers that overflow.

It is a plain scanner, because it only reads documents that are known to be faulty; it never recurses, at any depth.
"""

import re
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from ckaudit.contract.schema.report import Finding

# Possessive repeats, and a token for unterminated text, avoid backtracking: otherwise a broken document takes hours.
_TOKEN = re.compile(r'[ \t\n\r]*+(?:([{}\[\],:])|("(?:[^"\\]++|\\.)*+(?:"|\\?\Z))|([^\s{}\[\],:"]++)|[^ \t\n\r]|\Z)', re.DOTALL)


class Spot(Struct, frozen=True):
    """A value: its JSON pointer, its offset, its text if it is a plain token, and whether its key is repeated."""

    pointer: str
    offset: int
    token: str
    repeated: bool


class _Level(Struct):
    """An open object or array, and the scanner's position in it."""

    pointer: str
    is_object: bool
    index: int = 0
    key: str | None = None
    repeated: bool = False
    seen: set[str] = field(default_factory=set)

    def child(self) -> str:
        return f"{self.pointer}/{escape(self.key or '') if self.is_object else self.index}"


def escape(key: str) -> str:
    """Return `key` as one reference token of a JSON pointer (RFC 6901).

    >>> escape("a/b~c")
    'a~1b~0c'
    """
    return key.replace("~", "~0").replace("/", "~1")


def pointer_of(path: Iterator[str | int]) -> str:
    """Return the JSON pointer of keys and indices."""
    return "".join(f"/{escape(str(part))}" for part in path)


def line_at(text: str, offset: int) -> int:
    """Return the line, from 1, that holds the character at `offset`."""
    return text.count("\n", 0, offset) + 1


def walk(text: str, *, max_depth: int = 1000) -> Iterator[Spot]:
    """Yield every value of a JSON text in order, as far as the text is well-formed.

    Args:
        text: The JSON text.
        max_depth: Depth to stop at: no parser goes deeper, and pointers would grow with the square of the depth.
    """
    stack: list[_Level] = []
    for match in _TOKEN.finditer(text):
        mark, quoted, plain = match.groups()
        level = stack[-1] if stack else None
        if mark in ("{", "["):
            yield Spot(level.child() if level else "", match.end() - 1, mark, level.repeated if level else False)
            if len(stack) == max_depth:
                return
            stack.append(_Level(level.child() if level else "", mark == "{"))
        elif mark in ("}", "]"):
            if not stack:
                return
            stack.pop()
        elif mark == ",":
            if level:
                level.index, level.key = level.index + 1, None
        elif quoted is not None and level and level.is_object and level.key is None:
            level.key = _unquoted(quoted)
            level.repeated = level.key in level.seen
            level.seen.add(level.key)
        elif mark is None and (token := quoted if quoted is not None else plain) is not None:
            yield Spot(level.child() if level else "", match.end() - len(token), token, level.repeated if level else False)


def _unquoted(quoted: str) -> str:
    if "\\" not in quoted:
        return quoted[1:-1]
    import json  # only faulty files are scanned

    try:
        return str(json.loads(quoted, strict=False))
    except ValueError:
        return quoted[1:-1]


def lines_of(text: str, pointers: set[str]) -> dict[str, int]:
    """Return the line of each pointer that exists in the text."""
    lines: dict[str, int] = {}
    for spot in walk(text):
        if spot.pointer in pointers and spot.pointer not in lines:
            lines[spot.pointer] = line_at(text, spot.offset)
            if len(lines) == len(pointers):
                break
    return lines


def with_lines(findings: list[Finding], text: bytes) -> list[Finding]:
    """Return findings with the line of their pointer, if they have one."""
    if b"\n" not in text.strip():
        return [replace(finding, line=1) for finding in findings]
    lines = lines_of(text.decode(), {finding.pointer for finding in findings if finding.pointer is not None})
    return [replace(finding, line=lines.get(finding.pointer or "")) for finding in findings]
