"""A text with a maximum length: sentences are cut, and only the first items of a list that fit are given."""

from collections.abc import Mapping, Sequence

from ckaudit.reports.escape import visible
from ckaudit.wording import first_names

MAX_CHARACTERS = 1_599
"""Just under 400 tokens, at four characters each."""
ROOM_OF_ITEMS = 500
"""Characters guaranteed to a list, whatever surrounds it, up to a third of the text."""
MAX_SUBJECT = 100
"""Maximum characters of a path; in a command a longer one becomes RUN."""
MIN_LINE = 40
DOTS = "..."


def clipped(text: str, limit: int) -> str:
    """Return a text on one line in at most `limit` characters; if cut, it ends after a word.

    >>> clipped("one two three", 11)
    'one two...'
    """
    line = visible(text)
    if len(line) <= limit:
        return line
    short = line[: limit - len(DOTS) + 1]
    return (short.rpartition(" ")[0] or short[:-1]).rstrip(" ,;:") + DOTS


def fitted(head: Sequence[str], items: Mapping[str, str], tail: Sequence[str], *, limit: int = MAX_CHARACTERS) -> str:
    """Join lines into a text of at most `limit` characters that ends in a newline.

    Args:
        head: Lines at the top.
        items: Lines in between, by a short name, the most important first; those that do not fit are only named.
        tail: Lines at the end.
        limit: Maximum number of characters in total.
    """
    wanted = sum(len(line) + 1 for line in items.values())
    around = _squeezed([line for line in (*head, *tail) if line], limit - min(wanted, ROOM_OF_ITEMS, limit // 3))
    above = sum(1 for line in head if line)
    shown = _first_that_fit(items, limit - sum(len(line) + 1 for line in around))
    return "\n".join([*around[:above], *shown, *around[above:]]) + "\n"


def _squeezed(lines: list[str], room: int) -> list[str]:
    """Return lines that fit `room` characters including line ends; the longest line is cut until they do."""
    while (excess := sum(len(line) + 1 for line in lines) - room) > 0:
        place, longest = max(enumerate(lines), key=lambda pair: len(pair[1]))
        if len(longest) <= MIN_LINE:
            break
        lines[place] = clipped(longest, max(MIN_LINE, len(longest) - max(excess, len(DOTS))))
    return lines


def _first_that_fit(items: Mapping[str, str], room: int) -> list[str]:
    shown: list[str] = []
    names = list(items)
    for place, line in enumerate(items.values()):
        rest = names[place + 1 :]
        left = room - len(line) - 1
        if left < (len(_and_more(rest)) + 1 if rest else 0):
            return [*shown, _and_more(names[place:])]
        shown.append(line)
        room = left
    return shown


def _and_more(names: Sequence[str]) -> str:
    return clipped(f"and {len(names):,} more: {first_names(names, 6)}", 100)
