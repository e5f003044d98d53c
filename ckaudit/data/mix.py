"""Who and what the sample speaks: the share of each source (M29) and language (M30), and what filters threw out (M31)."""

from collections import Counter
from collections.abc import Callable
from functools import cache

from ckaudit.contract.schema.raw_measurements import Measure
from ckaudit.data.document import NO_TEXT, Document, Values, not_recorded, rate
from ckaudit.errors import UsageError
from ckaudit.material.counts import plural
from ckaudit.optional import install_command

NO_TOKENS = "shares are of tokens, and not every document says how many it has: add a column tokens, or give --tokenizer"
MAX_LABELS = 200


class Shares:
    """Tokens of each label over all tokens; documents without a label are none of them, and said to be."""

    def __init__(self, name: str, row: str, label: Callable[[Document], str | None], nothing: str) -> None:
        self._name, self._row, self._label, self._nothing = name, row, label, nothing
        self._tokens: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._documents, self._unlabelled, self._uncounted = 0, 0, 0

    def see(self, document: Document) -> None:
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
        """Yield a share for each label, the largest first; labels beyond the first two hundred are joined."""
        total = self._tokens.total()
        if self._documents == self._unlabelled:
            yield not_recorded(self._name, self._row, self._nothing)
        elif not self._uncounted and not total:
            yield not_recorded(self._name, self._row, "shares are of tokens, and the documents have 0 of them")
        elif self._uncounted:
            yield not_recorded(self._name, self._row, f"{NO_TOKENS}. {self._by_bytes()}".strip())
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


class Rejects:
    """How much each filter threw out; sees rejected documents too.

    Where some documents name a filter, one that says nothing was kept: many a writer marks only what it rejected.
    """

    def __init__(self) -> None:
        self._rules: Counter[str] = Counter()
        self._rejected = self._judged = self._silent = 0

    def see(self, document: Document) -> None:
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


def sources() -> Shares:
    """Return the gauge of M29."""
    return Shares("source_mix_share", "M29", lambda document: document.source, "no column source")


def languages() -> Shares:
    """Return the gauge of M30."""
    return Shares("language_share", "M30", _language, NO_TEXT)


def _language(document: Document, *, max_characters: int = 1000) -> str | None:
    # 1,000 characters tell languages apart as well as a whole document does, in a fraction of the time.
    if document.text is None or not document.text.strip():
        return None
    return _classifier()(document.text[:max_characters])[0]


@cache
def _classifier(*, confidence: float = 0.5) -> Callable[[str], tuple[str, float]]:
    """Return what tells a language by its ISO 639 code: "zxx" where there is none, "und" where another is as likely."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise UsageError("telling languages apart needs py3langid", hint=install_command("data")) from None
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=confidence)
    classify: Callable[[str], tuple[str, float]] = identifier.classify
    return classify
