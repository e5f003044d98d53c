"""Several pairs combined into one comparison: its word is the most severe, its verdict that of the one pair or a count."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from ckaudit import __version__
from ckaudit.contract.schema.diff import VERSION, Comparison, Pair, Word
from ckaudit.wording import plural

GRAVEST: tuple[Word, ...] = ("worse", "different", "incomparable", "not_recorded", "better", "within_noise", "same")
"""Words for a pair, in order of attention: findings come before unknown results."""


def combine_pairs(subjects: Sequence[str], pairs: Sequence[Pair], *, files: int = 0, notes: Sequence[str] = ()) -> Comparison:
    """Return pairs as one comparison, each under the names that the user gave.

    Args:
        subjects: The reference, then the subject of each pair.
        pairs: Pairs in the order of subjects.
        files: Number of files read; 0: not counted.
        notes: Notes on the whole comparison.
    """
    counts = Counter(pair.word for pair in pairs)
    word_counts = ", ".join(f"{counts[word]} {word.replace('_', ' ')}" for word in GRAVEST if counts[word])
    several = f"{plural(len(pairs), 'subject')} against {subjects[0]}: {word_counts}"
    named = [replace(pair, left=subjects[0], right=name) for pair, name in zip(pairs, subjects[1:], strict=True)]
    return Comparison(
        schema_version=VERSION,
        tool=f"ckaudit {__version__}",
        command="diff",
        subjects=list(subjects),
        word=min((pair.word for pair in named), key=GRAVEST.index),
        verdict=pairs[0].verdict if len(pairs) == 1 else several,
        pairs=named,
        notes=list(notes),
        files=files,
    )
