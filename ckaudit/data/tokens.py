"""Tokens of documents: bytes for each (M32), lengths (M33), padding (M34), and how far their histogram has drifted (M35)."""

from array import array
from collections import Counter
from collections.abc import Callable
from math import log
from pathlib import Path

from msgspec.structs import replace

from ckaudit.contract.schema.raw_measurements import Measure
from ckaudit.data.document import NO_TEXT, Document, Values, not_recorded
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.optional import install_command

NO_TOKENS = "no document says how many tokens it has: add a column tokens, or give --tokenizer. Words are not tokens"


class Sizes:
    """Bytes of text for each token (M32)."""

    def __init__(self) -> None:
        self._bytes = self._tokens = self._texts = self._counted = 0

    def see(self, document: Document) -> None:
        """Add a document; it counts where it has both text and tokens."""
        self._texts += document.text is not None
        self._counted += document.tokens is not None
        if document.text is not None and document.tokens is not None:
            self._bytes += document.size
            self._tokens += document.tokens

    def measures(self) -> Values:
        """Yield bytes over tokens, of all documents together."""
        if not self._tokens:
            yield not_recorded("bytes_per_token", "M32", self._missing())
            return
        value = self._bytes / self._tokens
        yield Measure(name="bytes_per_token", row="M32", value=value, unit="bytes/token", points=self._tokens)

    def _missing(self) -> str:
        if not self._texts:
            return NO_TEXT
        return "no document has both a text and tokens" if self._counted else NO_TOKENS


class Lengths:
    """Percentiles of tokens per document (M33), linear between order statistics."""

    def __init__(self) -> None:
        self._lengths = array("q")

    def see(self, document: Document) -> None:
        """Add a document whose tokens are counted."""
        if document.tokens is not None:
            self._lengths.append(document.tokens)

    def measures(self) -> Values:
        """Yield median and 95th percentile."""
        if not self._lengths:
            yield not_recorded("seq_len_p50_p95", "M33", NO_TOKENS)
            return
        import numpy as np

        for level, value in zip((50, 95), np.percentile(self._lengths, (50, 95)), strict=True):
            name = f"seq_len_p50_p95/p{level}"
            yield Measure(name=name, row="M33", value=float(value), unit="tokens", points=len(self._lengths))


class Padding:
    """Padding over all positions (M34)."""

    def __init__(self) -> None:
        self._pad = self._total = 0

    def see(self, document: Document) -> None:
        """Add a document that says how much padding it has."""
        if document.pad is not None and document.tokens is not None:
            self._pad += document.pad
            self._total += document.pad + document.tokens

    def measures(self) -> Values:
        """Yield the share of padding."""
        if not self._total:
            yield not_recorded("pad_fraction", "M34", "no column attention_mask or n_pad, and no --pad-id for token numbers")
            return
        yield Measure(name="pad_fraction", row="M34", value=self._pad / self._total, unit="1", points=self._total)


class Histogram:
    """How often each token occurs, to be compared with another sample (M35)."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def see(self, document: Document) -> None:
        """Add a document whose tokens are known by number."""
        if document.ids is not None:
            self.counts.update(document.ids)

    def measures(self) -> Values:
        """Yield nothing: a histogram alone is no value."""
        yield from ()


def drift(now: Counter[int], reference: Counter[int] | None) -> Values:
    """Yield M35, or what is missing for it."""
    name, row = "token_kl_drift", "M35"
    if reference is None:
        yield not_recorded(name, row, "there is nothing to compare with: give --reference")
    elif not now or not reference:
        yield not_recorded(name, row, "token numbers are needed in both samples: a column input_ids, or --tokenizer")
    else:
        yield Measure(name=name, row=row, value=divergence(now, reference), unit="nats", points=now.total())


def divergence(now: Counter[int], reference: Counter[int], *, pseudo_count: float = 1.0) -> float:
    r"""Return the Kullback-Leibler divergence of two histograms in nats.

    $$D = \sum_v p(v) \log \frac{p(v)}{q(v)}$$

    Args:
        now: Tokens of the sample, p.
        reference: Tokens of the reference, q.
        pseudo_count: Added to every token that occurs in either, so that one that is new is not infinitely far (Laplace).
    """
    union = now.keys() | reference.keys()
    p_total = now.total() + pseudo_count * len(union)
    q_total = reference.total() + pseudo_count * len(union)
    found = 0.0
    for token in sorted(union):
        p, q = (now[token] + pseudo_count) / p_total, (reference[token] + pseudo_count) / q_total
        found += p * log(p / q)
    return max(found, 0.0)


def load_tokenizer(path: Path) -> Callable[[Document], Document]:
    """Return a function that counts the tokens of a document that does not say them, with a `tokenizer.json`.

    Raises:
        UsageError: Where the library is not installed.
        UnreadableError: Where the file is no tokenizer.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UsageError("--tokenizer needs tokenizers", hint=install_command("data")) from None
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001  the library raises nothing narrower
        raise UnreadableError(f"{path} is no tokenizer: {error}", hint="Name a tokenizer.json.") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(document: Document) -> Document:
        if document.text is None or document.ids is not None:
            return document
        ids = tuple(tokenizer.encode(document.text, add_special_tokens=False).ids)
        return replace(document, ids=ids, tokens=len(ids))

    return count
