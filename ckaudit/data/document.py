"""A document of a sample, and the protocol of a gauge of documents.

A record is converted to one form; values of a wrong type are reported and left out. A gauge sees each document once, and returns
at the end what it measured or why it could not.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from msgspec import Struct

from ckaudit.contract.schema.raw_measurements import Measure, Missing
from ckaudit.contract.violations import ViolationKind
from ckaudit.material.columns import Columns, WrongValue
from ckaudit.material.files import WRONG_TYPE, FaultReporter
from ckaudit.material.records import Record
from ckaudit.run.robust import wilson_interval

COLUMNS = Columns(
    {
        "text": ("text", "content"),
        "source": ("source",),
        "tokens": ("tokens", "n_tokens", "token_count", "input_ids"),
        "pad": ("n_pad", "attention_mask"),
        "score": ("toxicity", "score"),
        "reject": ("reject", "filter"),
    }
)

Values = Iterator[Measure | Missing]
NO_TEXT = "no document has a text: where another column holds it, --map text=COLUMN"


class Document(Struct, frozen=True):
    """One document; None means not recorded.

    Attributes:
        place: Place of the document.
        text: Text of the document.
        source: Name of its data source.
        tokens: Number of tokens without padding.
        ids: Token ids.
        pad: Number of padding tokens.
        score: Toxicity, 0 to 1.
        rules: Filters that rejected it, empty if it names none; None if they cannot be read.
        speaks_of_filters: Whether its record has a field for filters.
    """

    place: str
    text: str | None = None
    source: str | None = None
    tokens: int | None = None
    ids: tuple[int, ...] | None = None
    pad: int | None = None
    score: float | None = None
    rules: tuple[str, ...] | None = ()
    speaks_of_filters: bool = False

    @property
    def size(self) -> int:
        """Size of the text in UTF-8 bytes."""
        return len((self.text or "").encode())


def document(record: Record, report: FaultReporter, *, pad_id: int | None = None) -> Document:
    """Return the document of a record.

    Args:
        record: The record.
        report: Called with each value of a wrong type.
        pad_id: Id of the padding token.
    """
    values = record.values
    fields = {name: _read(name, reader, record, report) for name, reader in _READERS.items() if name in values}
    tokens, pad = fields.pop("tokens", None), fields.pop("pad", None)
    fields["speaks_of_filters"] = "reject" in fields
    fields["rules"] = fields.pop("reject", ())
    ids = tokens if isinstance(tokens, tuple) else None
    if isinstance(pad, tuple):
        if ids is not None and len(pad) != len(ids):
            report(_fault(WRONG_TYPE, record, "the attention mask and the tokens differ in length"))
            return Document(record.place, **fields)
        count = pad.count(0)
        ids = tuple(token for token, real in zip(ids, pad, strict=True) if real) if ids is not None else None
        return Document(record.place, **fields, ids=ids, tokens=len(pad) - count, pad=count)
    if ids is not None and pad_id is not None:
        real = tuple(id_ for id_ in ids if id_ != pad_id)
        return Document(record.place, **fields, ids=real, tokens=len(real), pad=len(ids) - len(real))
    return Document(record.place, **fields, ids=ids, tokens=tokens if ids is None else len(ids), pad=pad)


def _read(name: str, reader: Callable[[Any], Any], record: Record, report: FaultReporter) -> Any:
    try:
        return reader(record.values[name])
    except WrongValue as wrong:
        report(_fault(WRONG_TYPE, record, f"{name} {wrong}"))
        return None


def _fault(kind: ViolationKind, record: Record, message: str) -> Any:
    return kind.at(record.file, f"line {record.line}: {message}", line=record.line)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WrongValue(f"is a {type(value).__name__}, not a text")
    return value


def _source(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise WrongValue(f"is a {type(value).__name__}, not a name")
    return str(value)


def _tokens(value: Any) -> int | tuple[int, ...]:
    if isinstance(value, list) and all(isinstance(item, int) and item >= 0 for item in value):
        return tuple(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise WrongValue("is neither a count nor a list of token numbers")


def _score(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise WrongValue(f"is {str(value)[:40]}, not a probability of 0 to 1")
    return float(value)


def _rules(value: Any) -> tuple[str, ...]:
    match value:
        case bool():
            return ("rejected",) if value else ()
        case str():
            return (value,) if value else ()
        case list() if all(isinstance(item, str) for item in value):
            return tuple(dict.fromkeys(value))
        case Mapping() if all(isinstance(item, bool) for item in value.values()):
            return tuple(rule for rule, rejected in value.items() if rejected)
    raise WrongValue(f"is a {type(value).__name__}, not a rule, a list of rules, or a truth value")


_READERS: dict[str, Callable[[Any], Any]] = {
    "text": _text,
    "source": _source,
    "tokens": _tokens,
    "pad": _tokens,
    "score": _score,
    "reject": _rules,
}


class SampleGauge(Protocol):
    """One group of values."""

    def observe(self, document: Document) -> None:
        """Add one document that no filter rejected."""

    def measures(self) -> Values:
        """Yield the values, or what was missing."""


def rate(name: str, row: str, hits: int, of: int, detail: str | None = None) -> Measure:
    """Return a share of `of` documents in percent, like the rates of the catalogue, with its interval."""
    low, high = wilson_interval(hits, of)
    return Measure(name=name, row=row, value=100 * hits / of, unit="%", points=of, low=100 * low, high=100 * high, detail=detail)


def not_recorded(name: str, row: str, detail: str) -> Missing:
    """Return a value for which the sample has no data."""
    return Missing(name=name, row=row, reason="not_recorded", detail=detail)
