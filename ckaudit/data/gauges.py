"""Measurements of each document of a sample: sources (M29), languages (M30), filters (M31), tokens (M32 to M35)."""

from array import array
from collections import Counter
from collections.abc import Callable
from functools import cache
from math import log
from pathlib import Path

from msgspec.structs import replace

from ckaudit.contract.schema.raw_measurements import Measure
from ckaudit.data.document import NO_TEXT, Document, Values, not_recorded, rate
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.optional import install_command
from ckaudit.wording import plural

UNCOUNTED = "shares are of tokens, and not every document says how many it has: add a column tokens, or give --tokenizer"
MAX_LABELS = 200

NO_TOKENS = "no document says how many tokens it has: add a column tokens, or give --tokenizer. Words are not tokens"


class TokenShares:
    """Tokens of each label over all labelled tokens; documents without a label are left out, and reported."""

    def __init__(self, name: str, row: str, label: Callable[[Document], str | None], nothing: str) -> None:
        self._name, self._row, self._label, self._nothing = name, row, label, nothing
        self._tokens: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._documents, self._unlabelled, self._uncounted = 0, 0, 0

    def observe(self, document: Document) -> None:
        """Add one document."""
        self._documents += 1
        label = self._label(document)
        if label is None:
            self._unlabelled += 1
            return
        self._bytes[label] += document.size
        if document.tokens is None:
            self._uncounted += 1
        else:
            self._tokens[label] += document.tokens

    def measures(self) -> Values:
        """Yield a share for each label, the largest first; labels beyond the first two hundred are combined."""
        total = self._tokens.total()
        if self._documents == self._unlabelled:
            yield not_recorded(self._name, self._row, self._nothing)
        elif not self._uncounted and not total:
            yield not_recorded(self._name, self._row, "shares are of tokens, and the documents have 0 of them")
        elif self._uncounted:
            yield not_recorded(self._name, self._row, f"{UNCOUNTED}. {self._by_bytes()}".strip())
        else:
            detail = f"without {self._unlabelled:,} of {self._documents:,} documents" if self._unlabelled else None
            ranked = self._tokens.most_common()
            for label, tokens in ranked[:MAX_LABELS]:
                yield self._share(label, tokens / total, total, detail)
            if rest := sum(tokens for _, tokens in ranked[MAX_LABELS:]):
                yield self._share("(others)", rest / total, total, detail)

    def _share(self, label: str, value: float, total: int, detail: str | None) -> Measure:
        name = f"{self._name}/{label}"
        return Measure(name=name, row=self._row, value=value, unit="1", points=total, detail=detail)

    def _by_bytes(self) -> str:
        total = self._bytes.total()
        shares = [f"{label} {size / total:.1%}" for label, size in self._bytes.most_common(5)] if total else []
        return f"By bytes: {', '.join(shares)}" if shares else ""


class FilterRejections:
    """The share of documents that each filter rejected; it also observes rejected documents.

    If some documents name a filter, those without one count as kept: many writers mark only rejected documents.
    """

    def __init__(self) -> None:
        self._rules: Counter[str] = Counter()
        self._rejected = self._judged = self._silent = 0

    def observe(self, document: Document) -> None:
        """Add one document, rejected or not."""
        if document.rules is None:
            return
        self._judged += 1
        self._silent += not document.speaks_of_filters
        self._rejected += bool(document.rules)
        self._rules.update(document.rules)

    def measures(self) -> Values:
        """Yield the rate of all filters together, and of each."""
        if self._judged == self._silent:
            yield not_recorded("filter_reject_rate", "M31", "no column reject or filter names the rule that rejected a document")
            return
        detail = f"{self._silent:,} of {plural(self._judged, 'document')} name no filter, and count as kept"
        yield rate("filter_reject_rate", "M31", self._rejected, self._judged, detail if self._silent else None)
        for rule, count in self._rules.most_common(MAX_LABELS):
            yield rate(f"filter_reject_rate/{rule}", "M31", count, self._judged)


def sources() -> TokenShares:
    """Return the gauge of M29."""
    return TokenShares("source_mix_share", "M29", lambda document: document.source, "no column source")


def languages() -> TokenShares:
    """Return the gauge of M30."""
    return TokenShares("language_share", "M30", _language, NO_TEXT)


def _language(document: Document, *, max_characters: int = 1000) -> str | None:
    # 1,000 characters identify a language as well as a whole document does, in a fraction of the time.
    if document.text is None or not document.text.strip():
        return None
    return _classifier()(document.text[:max_characters])[0]


@cache
def _classifier(*, confidence: float = 0.5) -> Callable[[str], tuple[str, float]]:
    """Return a classifier of languages by ISO 639 code: "zxx" without language, "und" if another is as likely."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise UsageError("telling languages apart needs py3langid", hint=install_command("data")) from None
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=confidence)
    classify: Callable[[str], tuple[str, float]] = identifier.classify
    return classify


class BytesPerToken:
    """Bytes of text per token (M32)."""

    def __init__(self) -> None:
        self._bytes = self._tokens = self._texts = self._counted = 0

    def observe(self, document: Document) -> None:
        """Add a document; it counts if it has both text and tokens."""
        self._texts += document.text is not None
        self._counted += document.tokens is not None
        if document.text is not None and document.tokens is not None:
            self._bytes += document.size
            self._tokens += document.tokens

    def measures(self) -> Values:
        """Yield bytes over tokens, for all documents together."""
        if not self._tokens:
            uncounted = "no document has both a text and tokens" if self._counted else NO_TOKENS
            yield not_recorded("bytes_per_token", "M32", uncounted if self._texts else NO_TEXT)
            return
        value = self._bytes / self._tokens
        yield Measure(name="bytes_per_token", row="M32", value=value, unit="bytes/token", points=self._tokens)


class TokensPerDocument:
    """Percentiles of tokens per document (M33), linear between order statistics."""

    def __init__(self) -> None:
        self._lengths = array("q")

    def observe(self, document: Document) -> None:
        """Add a document; it counts if its number of tokens is known."""
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


class PaddingShare:
    """Share of padding in all positions (M34)."""

    def __init__(self) -> None:
        self._pad = self._total = 0

    def observe(self, document: Document) -> None:
        """Add a document; it counts if its padding is known."""
        if document.pad is not None and document.tokens is not None:
            self._pad += document.pad
            self._total += document.pad + document.tokens

    def measures(self) -> Values:
        """Yield the share of padding."""
        if not self._total:
            yield not_recorded("pad_fraction", "M34", "no column attention_mask or n_pad, and no --pad-id for token numbers")
            return
        yield Measure(name="pad_fraction", row="M34", value=self._pad / self._total, unit="1", points=self._total)


class TokenHistogram:
    """How often each token occurs, for comparison with another sample (M35)."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def observe(self, document: Document) -> None:
        """Add a document; it counts if its token ids are known."""
        if document.ids is not None:
            self.counts.update(document.ids)

    def measures(self) -> Values:
        """Yield nothing: a histogram alone gives no value."""
        yield from ()


def token_drift(now: Counter[int], reference: Counter[int] | None) -> Values:
    """Yield M35, or what is missing for it."""
    name, row = "token_kl_drift", "M35"
    if reference is None:
        yield not_recorded(name, row, "there is nothing to compare with: give --reference")
    elif not now or not reference:
        yield not_recorded(name, row, "token numbers are needed in both samples: a column input_ids, or --tokenizer")
    else:
        yield Measure(name=name, row=row, value=kl_divergence(now, reference), unit="nats", points=now.total())


def kl_divergence(now: Counter[int], reference: Counter[int], *, pseudo_count: float = 1.0) -> float:
    r"""Return the Kullback-Leibler divergence of two histograms in nats.

    $$D = \sum_v p(v) \log \frac{p(v)}{q(v)}$$

    Args:
        now: Tokens of the sample, p.
        reference: Tokens of the reference, q.
        pseudo_count: Added to every token that occurs in either, so that a new token does not make the result infinite (Laplace).
    """
    union = now.keys() | reference.keys()
    p_total = now.total() + pseudo_count * len(union)
    q_total = reference.total() + pseudo_count * len(union)
    total = 0.0
    for token in sorted(union):
        p, q = (now[token] + pseudo_count) / p_total, (reference[token] + pseudo_count) / q_total
        total += p * log(p / q)
    return max(total, 0.0)


def load_tokenizer(path: Path) -> Callable[[Document], Document]:
    """Return a function that adds the tokens of a document without them, by a `tokenizer.json`.

    Raises:
        UsageError: If the library is not installed.
        UnreadableError: If the file is no tokenizer.
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
