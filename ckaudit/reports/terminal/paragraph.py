"""Text cut to a width in columns of the screen: names break after their dots, wide letters count twice."""

import re

PIECE = re.compile(r"[^./_:\-]*[./_:\-]+|[^./_:\-]+")


def fit(text: str, width: int) -> list[str]:
    """Return `text` as lines of at most `width` columns, at least one line.

    >>> fit("see blocks.31.attention.query", 16)
    ['see blocks.31.', 'attention.query']
    """
    lines = [""]
    for word in text.split():
        gap = " " if lines[-1] else ""
        if columns(lines[-1] + gap + word) <= width:
            lines[-1] += gap + word
        elif columns(word) <= width:
            lines.append(word)
        else:
            _break(lines, gap, word, width)
    return lines


def _break(lines: list[str], gap: str, word: str, width: int) -> None:
    """Add a word wider than a line to `lines`, piece by piece, breaking after separators where it can."""
    for piece in PIECE.findall(word):
        for part in _chop(piece, width):
            if columns(lines[-1] + gap + part) <= width:
                lines[-1] += gap + part
            else:
                lines.append(part)
            gap = ""


def _chop(piece: str, width: int) -> list[str]:
    """Return a piece without separators in parts of at most `width` columns."""
    if piece.isascii():
        return [piece[start : start + width] for start in range(0, len(piece), width)]
    from rich.cells import chop_cells

    return chop_cells(piece, width)


def columns(text: str) -> int:
    """Return how many columns of the screen `text` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def paragraph(text: str, width: int, *, first: str = "", indent: str = "  ") -> list[str]:
    """Return `text` cut and indented, the first line led by `first`."""
    lines = fit(text, width - len(indent) - len(first))
    return [indent + first + lines[0], *(indent + " " * len(first) + line for line in lines[1:])]


def pad(text: str, width: int) -> str:
    """Return `text` filled with spaces to `width` columns."""
    return text + " " * (width - columns(text))
