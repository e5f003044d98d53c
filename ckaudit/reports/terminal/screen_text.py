"""Text on a screen: terminal capabilities, colours, lines cut to a width, and abbreviated names of tensors."""

import re
import shutil
from collections.abc import Mapping
from typing import TextIO

from ckaudit.contract.schema.report import Report
from ckaudit.reports.escape import visible
from ckaudit.reports.view import View
from ckaudit.reports.words import is_limited

MAX_COLUMNS = 132  # longer lines are hard to read

# Only the sixteen colours that every terminal's theme defines (ECMA-48, select graphic rendition).
COLOURS = {"sev0": "1;37;41", "sev1": "1;31", "sev2": "33", "note": "36", "ok": "32", "bold": "1", "dim": "2"}
PIECE = re.compile(r"[^./_:\-]*[./_:\-]+|[^./_:\-]+")
PART = re.compile(r"[./]|[^./]+")
WORD = re.compile(r"[A-Za-z]\D+")


def terminal_view(view: View, stream: TextIO, environ: Mapping[str, str]) -> View:
    """Return `view` with the width, colours and characters of `stream`.

    `NO_COLOR` (no-color.org) overrides `FORCE_COLOR` (force-color.org); both count if set and not empty.
    """
    terminal = stream.isatty()
    colour = (terminal and environ.get("TERM") != "dumb") or bool(environ.get("FORCE_COLOR"))
    encoding = (stream.encoding or "").lower().replace("-", "").replace("_", "")
    return view._replace(
        width=_width(terminal, environ), colour=colour and not environ.get("NO_COLOR"), unicode=encoding == "utf8"
    )


def _width(terminal: bool, environ: Mapping[str, str]) -> int | None:
    """Return the number of columns given by `COLUMNS` or the terminal, or None in a pipe."""
    if environ.get("COLUMNS", "").isdecimal() and int(environ["COLUMNS"]) > 0:
        return int(environ["COLUMNS"])
    return shutil.get_terminal_size().columns if terminal else None


def paint(text: str, colour: str, view: View) -> str:
    """Return `text` in one of `COLOURS`, or unchanged if colours are not wanted."""
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if view.colour and text else text


def printable(text: str, view: View) -> str:
    """Return `text` with everything unsafe, and on an ASCII screen every other character, written as numbers."""
    return visible(text, ascii_only=not view.unicode)


def badge(report: Report) -> tuple[str, str]:
    """Return the word that summarizes a report, and its colour; a report that judged nothing is never OK."""
    if report.is_ill and report.severity:
        return report.severity.upper(), report.severity
    if any(check.outcome == "error" for check in report.checks):
        return "BROKEN", "sev1"
    if report.judged == "nothing" or not any(check.outcome in ("passed", "failed") for check in report.checks):
        return ("NOTE", "note") if report.severity else ("NOT JUDGED", "sev2")
    if is_limited(report):
        return "LIMITED", "sev2"
    return ("NOTE", "note") if report.severity else ("OK", "ok")


# Text cut to a width in screen columns: names break after their dots, wide letters count twice.
def wrap(text: str, width: int) -> list[str]:
    """Return `text` as lines of at most `width` columns, at least one line.

    >>> wrap("see blocks.31.attention.query", 16)
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
    """Add a word wider than a line to `lines`, piece by piece, breaking after separators if possible."""
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
    """Return how many screen columns `text` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def paragraph(text: str, width: int, *, first: str = "", indent: str = "  ") -> list[str]:
    """Return `text` wrapped and indented, the first line preceded by `first`."""
    lines = wrap(text, width - len(indent) - len(first))
    return [indent + first + lines[0], *(indent + " " * len(first) + line for line in lines[1:])]


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return `text` padded with spaces to `width` columns, in front if it is right-aligned."""
    spaces = " " * (width - columns(text))
    return spaces + text if right else text + spaces


# Abbreviated names of tensors: numbers and ends stay, because they distinguish tensors; words before them become letters.
def abbreviate(name: str, room: int, *, unicode: bool = True) -> str:
    """Return a name in at most `room` columns: words are reduced to letters from the left, and if needed only the end is kept.

    >>> abbreviate("model.layers.12.self_attn.q_proj.weight", 24)
    'm.l.12.s.q_proj.weight'
    >>> abbreviate("embedding_of_everything", 9)
    '…erything'
    """
    parts = PART.findall(name)
    for index, part in enumerate(parts[:-1]):
        if columns("".join(parts)) <= room:
            break
        if WORD.fullmatch(part):
            parts[index] = part[0]
    short = "".join(parts)
    if columns(short) <= room:
        return short
    dots = "\N{HORIZONTAL ELLIPSIS}" if unicode else "..."
    while columns(short) > room - len(dots):
        short = short[1:]
    return dots + short
