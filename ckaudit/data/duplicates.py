"""Near duplicates inside the sample (M36), between sample and validation (M37), and the largest groups of them (M38).

Two documents are near duplicates if the Jaccard index of their five-word shingles is at least 0.8 (Lee et al. 2022,
"Deduplicating Training Data Makes Language Models Better", section 4.2). MinHash only proposes pairs. Each pair is compared
exactly, in a second pass over the sample. Documents with the same words in the same order need no comparison.
"""

import hashlib
import re
from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from ckaudit.contract.schema.raw_measurements import Cluster, Measure, Missing
from ckaudit.data.document import Document, Values, not_recorded, rate
from ckaudit.data.pii import mask_pii
from ckaudit.errors import UsageError
from ckaudit.optional import install_command
from ckaudit.wording import plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Hashes: TypeAlias = NDArray[np.int64]

THRESHOLD = 0.8

SHOWN, PLACES, EXCERPT, HEAD = 5, 3, 80, 2000

BANDS, ROWS = 25, 5

VALUES = 128  # a power of two is hashed fastest; three values are unused

NEIGHBOURS = 8  # per document in a band: a thousand copies of a page make 8,000 pairs, not half a million

# Chinese and Japanese have no spaces: each character counts as a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")

SIZE = 5  # words of a shingle (Lee et al. 2022, appendix A)


class Candidates:
    """Signatures of documents, numbered in the order of arrival."""

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
        """Return each pair that agrees in a band once, the smaller number first: shape (N, 2)."""
        import numpy as np

        count = len(self)
        keys = np.frombuffer(self._keys, np.uint64).reshape(count, BANDS)  # (D, B)
        parts = [np.empty(0, np.int64)]
        for band in range(BANDS):
            order = np.argsort(keys[:, band], kind="stable")
            ordered = keys[order, band]
            for distance in range(1, min(NEIGHBOURS, count - 1) + 1):
                same = np.flatnonzero(ordered[distance:] == ordered[:-distance])
                if not len(same):
                    break
                parts.append(order[same] * count + order[same + distance])  # a stable sort keeps the smaller number first
        codes = np.unique(np.concatenate(parts))
        return np.stack(np.divmod(codes, max(count, 1)), axis=1)


class Duplicates:
    """Reads the sample, then the validation set, then, if pairs are to be compared, both again in the same order."""

    def __init__(self, *, threshold: float = THRESHOLD) -> None:
        self._threshold = threshold
        self._candidates = Candidates()
        self._number: dict[bytes, int] = {}  # number of each distinct text
        self._copies = array("q")  # copies of each of these in the sample
        self._order = array("q")  # number of each document in the order of arrival, -1 without words
        self._held_out = array("q")  # number of each validation document, in their order
        self._joined: list[int] = []
        self._overlapping: set[int] = set()
        self._wordless = 0
        self._sizes: list[int] = []
        self.clusters: list[Cluster] = []

    def observe(self, document: Document) -> None:
        """Add a document of the sample."""
        if (number := self._enter(document)) is not None:
            self._copies[number] += 1

    def see_held_out(self, document: Document) -> None:
        """Add a document of the validation set, after all of the sample."""
        if (number := self._enter(document)) is not None:
            self._held_out.append(number)

    def _enter(self, document: Document) -> int | None:
        words_of_text = words(document.text or "")
        if not words_of_text:
            self._wordless += document.text is not None
            self._order.append(-1)
            return None
        key = fingerprint(words_of_text)
        if key not in self._number:
            self._number[key] = len(self._number)
            self._candidates.add(shingles(words_of_text))
            self._copies.append(0)
        self._order.append(self._number[key])
        return self._number[key]

    def compare(self, documents: Iterable[Document]) -> None:
        """Compare all possible near duplicates, and collect the largest groups.

        Args:
            documents: All documents again, those of the validation set last.
        """
        pairs = [(int(one), int(other)) for one, other in self._candidates.pairs() if self._copies[int(one)]]
        repeated = {number for number, count in enumerate(self._copies) if count > 1}
        wanted = {number for pair in pairs for number in pair}
        sets, firsts = self._read_again(documents, wanted, wanted | repeated)
        self._joined = list(range(len(self._number)))
        for one, other in pairs:
            self._settle(one, other, sets)
        self._gather(firsts)

    def _read_again(
        self, documents: Iterable[Document], compared: set[int], shown: set[int]
    ) -> tuple["dict[int, Hashes]", dict[int, list[tuple[str, str]]]]:
        """Return the shingles of documents to compare, and place and beginning of the first few to show."""
        sets: dict[int, Hashes] = {}
        firsts: dict[int, list[tuple[str, str]]] = {}
        for number, document in zip(self._order, documents, strict=False) if shown else ():
            if number in shown:
                if number in compared and number not in sets:
                    sets[number] = hashes(shingles(words(document.text or "")))
                if len(places := firsts.setdefault(number, [])) < PLACES:
                    places.append((document.place, (document.text or "")[:HEAD]))
        return sets, firsts

    def _settle(self, one: int, other: int, sets: "dict[int, Hashes]") -> None:
        is_inside = bool(self._copies[other])
        if is_inside and self._root(one) == self._root(other):
            return
        if not is_inside and other in self._overlapping:
            return
        if one not in sets or other not in sets or jaccard(sets[one], sets[other]) < self._threshold:
            return
        if is_inside:
            self._joined[self._root(other)] = self._root(one)
        else:
            self._overlapping.add(other)

    def _root(self, number: int) -> int:
        while self._joined[number] != number:
            self._joined[number] = number = self._joined[self._joined[number]]
        return number

    def _gather(self, firsts: dict[int, list[tuple[str, str]]]) -> None:
        groups: dict[int, list[int]] = {}
        for number, count in enumerate(self._copies):
            if count:
                groups.setdefault(self._root(number), []).append(number)
        sizes = {root: sum(self._copies[number] for number in members) for root, members in groups.items()}
        self._sizes = sorted(sizes.values(), reverse=True)
        largest = sorted((root for root in groups if sizes[root] > 1), key=lambda root: -sizes[root])[:SHOWN]
        for root in largest:
            places = [place for number in groups[root][:PLACES] for place in firsts.get(number, [])]
            begin = " ".join(mask_pii(places[0][1]).split()) if places else ""
            excerpt = begin if len(begin) <= EXCERPT else f"{begin[: EXCERPT - 3]}..."
            self.clusters.append(Cluster(documents=sizes[root], places=[place for place, _ in places[:PLACES]], excerpt=excerpt))

    def measures(self, *, has_validation: bool) -> Values:
        """Yield M36 to M38; call `compare` first."""
        documents = sum(self._sizes)
        yield from self._inside(documents)
        if not has_validation:
            yield not_recorded("train_val_overlap", "M37", "there is nothing to compare with: give --validation")
        elif not documents or not self._held_out:
            yield not_recorded("train_val_overlap", "M37", f"the {'validation set' if documents else 'sample'} has no words")
        else:
            overlapping = sum(self._copies[number] > 0 or number in self._overlapping for number in self._held_out)
            detail = f"validation documents with a near duplicate in the sample: {self._alike()}"
            yield rate("train_val_overlap", "M37", overlapping, len(self._held_out), detail)

    def _alike(self) -> str:
        return f"a Jaccard index of {self._threshold:g} or more over runs of {SIZE} words"

    def _inside(self, documents: int) -> Values:
        if documents < 2:
            for name, row in (("near_dup_rate", "M36"), ("doc_repeat_hotspots", "M38")):
                yield Missing(name=name, row=row, reason="too_few_points", detail="fewer than two documents with words")
            return
        repeated = sum(size for size in self._sizes if size > 1)
        removable = documents - len(self._sizes)
        wordless = f"; {self._wordless:,} without words left out" if self._wordless else ""
        detail = f"documents with a near duplicate: {self._alike()}; {removable:,} could be removed{wordless}"
        yield rate("near_dup_rate", "M36", repeated, documents, detail)
        groups = sum(size > 1 for size in self._sizes)
        detail = f"the largest of {plural(groups, 'group')}" if groups else "no document repeats"
        yield Measure(
            name="doc_repeat_hotspots", row="M38", value=self._sizes[0], unit="documents", points=documents, detail=detail
        )


# Candidate pairs of near duplicates: MinHash signatures of which a band of five values agrees (LSH).  With 25 bands of 5 values
# (Leskovec, Rajaraman & Ullman, Mining of Massive Datasets, chapter 3) two documents that share a fraction s of their shingles
# are paired with probability 1 - (1 - s^5)^25: 0.99995 at 0.8, half at 0.5. Every pair is compared exactly afterwards, so only
# misses remain, and they are rare.
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


# A text as the set of its five-word shingles, by which near duplicates are compared.
def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without spaces and punctuation.

    >>> words("It's 3,5 km.")
    ['it', 's', '3', '5', 'km']
    """
    return _WORD.findall(text.casefold())


def shingles(text_words: list[str], *, size: int = SIZE) -> set[str]:
    """Return every sequence of `size` words; a shorter text is one sequence.

    >>> sorted(shingles(["a", "b", "c"], size=2))
    ['a b', 'b c']
    """
    return {" ".join(text_words[start : start + size]) for start in range(max(1, len(text_words) - size + 1))}


def fingerprint(text_words: list[str]) -> bytes:
    """Return a hash that two texts share only if they have the same words in the same order."""
    return hashlib.blake2b(" ".join(text_words).encode(errors="surrogatepass"), digest_size=16).digest()


def hashes(shingle_set: set[str]) -> "Hashes":
    """Return shingles as sorted hashes, which take an eighth of the memory."""
    import numpy as np

    return np.unique(np.fromiter(map(hash, shingle_set), np.int64, len(shingle_set)))


def jaccard(one: "Hashes", other: "Hashes") -> float:
    """Return the Jaccard index of two sets: the size of the intersection over that of the union."""
    import numpy as np

    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / (len(one) + len(other) - shared)
