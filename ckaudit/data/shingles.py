"""A text as the set of its five-word runs: what near duplicates are compared by."""

import hashlib
import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Hashes: TypeAlias = NDArray[np.int64]

# Chinese and Japanese write no blanks: each character counts as a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")


SIZE = 5  # words of a run (Lee et al. 2022, appendix A)


def words(text: str) -> list[str]:
    """Return the words of a text, in small letters, without what stands between them.

    >>> words("It's 3,5 km.")
    ['it', 's', '3', '5', 'km']
    """
    return _WORD.findall(text.casefold())


def shingles(found: list[str], *, size: int = SIZE) -> set[str]:
    """Return every run of `size` words; a shorter text is one run.

    >>> sorted(shingles(["a", "b", "c"], size=2))
    ['a b', 'b c']
    """
    return {" ".join(found[start : start + size]) for start in range(max(1, len(found) - size + 1))}


def fingerprint(found: list[str]) -> bytes:
    """Return what two texts share only if they are the same words in the same order."""
    return hashlib.blake2b(" ".join(found).encode(errors="surrogatepass"), digest_size=16).digest()


def hashes(found: set[str]) -> "Hashes":
    """Return shingles as sorted numbers, which take an eighth of the memory."""
    import numpy as np

    return np.unique(np.fromiter(map(hash, found), np.int64, len(found)))


def jaccard(one: "Hashes", other: "Hashes") -> float:
    """Return the size of what two sets share over the size of both together."""
    import numpy as np

    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / (len(one) + len(other) - shared)
