"""Names of tensors in little room: numbers and ends stay, for they tell tensors apart; the words before them become letters."""

import re

from ckaudit.reports.terminal.paragraph import columns

PART = re.compile(r"[./]|[^./]+")
WORD = re.compile(r"[A-Za-z]\D+")


def abbreviate(name: str, room: int, *, unicode: bool = True) -> str:
    """Return a name in at most `room` columns: its words as letters from the left, then only its end.

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
