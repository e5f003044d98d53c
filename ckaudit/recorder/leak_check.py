"""Whether rows that are held out are trained on: hashes of whole rows, compared at the steps that are looked at."""

from typing import Any

from ckaudit.recorder.arrays import dtype_name
from ckaudit.recorder.batch import TOKEN_TYPES, pair
from ckaudit.recorder.fingerprint import row_fingerprints
from ckaudit.recorder.float32_rounding import shorten

NAME = "held_out_rows_trained_on"
MOST = 2**16  # rows that are remembered of either kind
LEAST = 24  # tokens of a row, padding aside: shorter ones come again by chance. Lee et al. (2022) count from 50 on


class HeldOut:
    """The rows that were told to be held out, and those of them that were met in a batch of the training.

    Rows are equal where all their elements are, padding included. Two that differ have the same hash once in 2^63.

    Args:
        most: Rows that are remembered of either kind; later ones are not.
    """

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._held, self._trained, self._met = set[int](), set[int](), set[int]()

    def tell(self, batch: Any) -> None:
        """Take the rows of a batch as held out."""
        rows = _rows(batch)
        if len(self._held) < self._most:
            self._held |= rows
            self._met |= rows & self._trained

    def look(self, batch: Any) -> dict[str, float]:
        """Compare a batch of the training, and return the value of its step; nothing where there is nothing to compare."""
        if not self._held or not (rows := _rows(batch)):
            return {}
        if len(self._trained) < self._most:
            self._trained |= rows
        self._met |= rows & self._held
        return {NAME: shorten(100 * len(self._met) / len(self._held))}


def _rows(batch: Any) -> set[int]:
    """Return the hashes of the rows of a batch's inputs that are long enough to be told apart; none where they are no rows."""
    inputs = pair(batch)[0]
    if inputs is None or len(inputs.shape) < 2 or 0 in inputs.shape:
        return set()
    hashes = row_fingerprints(inputs)
    if dtype_name(inputs) not in TOKEN_TYPES:
        return {*hashes.tolist()}
    tokens = inputs.reshape(len(inputs), -1)
    is_long = [(tokens != pad).sum(1) >= LEAST for pad in (tokens[:, :1], tokens[:, -1:])]  # it stands on one side or the other
    return {*hashes[is_long[0] & is_long[1]].tolist()}
