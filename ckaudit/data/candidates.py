"""Pairs of documents that may be near duplicates: MinHash signatures, of which a band of five values agrees (LSH).

With 25 bands of 5 values (Leskovec, Rajaraman & Ullman, Mining of Massive Datasets, chapter 3) two documents that share a
fraction s of their shingles meet with probability 1 - (1 - s^5)^25: 0.99995 at 0.8, half at 0.5. Every pair that met is
compared exactly afterwards, so that only misses remain, and they are rare.
"""

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ckaudit.errors import UsageError
from ckaudit.optional import install_command

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BANDS, ROWS = 25, 5
VALUES = 128  # a power of two is hashed fastest; three values are not used
NEIGHBOURS = 8  # of each document in a band: a thousand copies of a page make 8,000 pairs, not half a million


class Candidates:
    """Signatures of documents, numbered in the order they came."""

    def __init__(self) -> None:
        self._keys = array("Q")
        self._signature = _signatures()

    def __len__(self) -> int:
        return len(self._keys) // BANDS

    def add(self, shingles: set[str]) -> None:
        """Add the next document."""
        import numpy as np

        values = np.array(self._signature(shingles)[: BANDS * ROWS], np.uint64).reshape(BANDS, ROWS)
        with np.errstate(over="ignore"):
            self._keys.frombytes((values * _multipliers()).sum(axis=1, dtype=np.uint64).tobytes())

    def pairs(self) -> "NDArray[np.int64]":
        """Return each pair that agrees in a band once, smaller number first: shape (N, 2)."""
        import numpy as np

        count = len(self)
        keys = np.frombuffer(self._keys, np.uint64).reshape(count, BANDS)  # (D, B)
        found = [np.empty(0, np.int64)]
        for band in range(BANDS):
            order = np.argsort(keys[:, band], kind="stable")
            ordered = keys[order, band]
            for distance in range(1, min(NEIGHBOURS, count - 1) + 1):
                same = np.flatnonzero(ordered[distance:] == ordered[:-distance])
                if not len(same):
                    break
                found.append(order[same] * count + order[same + distance])  # a stable sort keeps the smaller first
        codes = np.unique(np.concatenate(found))
        return np.stack(np.divmod(codes, max(count, 1)), axis=1)


def _multipliers() -> "NDArray[np.uint64]":
    import numpy as np

    # Odd numbers with bits all over, for multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4).
    return np.array([2 * (0x9E3779B97F4A7C15 >> shift) + 1 for shift in (1, 3, 5, 7, 9)], np.uint64)


def _signatures() -> Callable[[set[str]], Any]:
    try:
        from rensa import RMinHash
    except ImportError:
        raise UsageError("looking for near duplicates needs rensa", hint=install_command("data")) from None

    def signature(shingles: set[str]) -> Any:
        sketch = RMinHash(num_perm=VALUES, seed=1)
        sketch.update(list(shingles))
        return sketch.digest()

    return signature
