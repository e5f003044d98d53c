"""A word that is not known, refused with the words it may have meant."""

from collections.abc import Collection
from difflib import get_close_matches

from ckaudit.errors import UsageError


def refuse(message: str, word: str, known: Collection[str], *, listed: int = 12) -> UsageError:
    """Return the error for an unknown word; the hint has the nearest known ones, or all where they are few.

    Args:
        message: What is wrong, and where.
        word: What was written.
        known: What may be written.
        listed: So many words can still be read in a line.
    """
    by_key = {each.lower().replace("-", "_"): each for each in known}
    near = [by_key[key] for key in get_close_matches(word.lower().replace("-", "_"), by_key, n=3, cutoff=0.6)]
    if near:
        return UsageError(message, hint=f"did you mean {' or '.join(near)}?")
    if len(known) <= listed:
        return UsageError(message, hint=f"known are {', '.join(sorted(known))}" if known else "there is nothing to set here")
    return UsageError(message, hint="ckaudit explain lists every name")
