"""Wording that many sentences share: a count with its noun, the first of many names, and a duration."""

from collections.abc import Sequence


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "file"), plural(1200, "file"), plural(2, "hash")
    ('1 file', '1,200 files', '2 hashes')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith(('sh', 'ch')) else 's'}"


def first_names(names: Sequence[str], limit: int | None) -> str:
    """Return the first names as a list for a sentence, and how many more there are; without a limit, all of them.

    >>> first_names(["a", "b", "c", "d"], 2), first_names(["a", "b"], 2)
    ('a, b and 2 more', 'a, b')
    """
    hidden = 0 if limit is None else len(names) - limit
    return ", ".join(names[:limit]) + (f" and {hidden:,} more" if hidden > 0 else "")


def duration(seconds: float) -> str:
    """Return a duration in the unit that makes it a small number.

    >>> duration(4.2), duration(119), duration(3600), duration(10_800)
    ('4.2 s', '119 s', '60 min', '3 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
