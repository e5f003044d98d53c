"""Measurements of a sample of training data: rows M29 to M38, M48 and the pattern part of M51 of the catalogue.

All values of a sample are measured in one pass over it, and a second one if documents have to be compared.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.schema.raw_measurements import Measure, Measures, Missing, gathered
from ckaudit.data.document import NO_TEXT, Document, SampleGauge, Values, document, not_recorded, rate
from ckaudit.data.duplicates import Duplicates
from ckaudit.data.gauges import (
    BytesPerToken,
    FilterRejections,
    PaddingShare,
    TokenHistogram,
    TokensPerDocument,
    languages,
    load_tokenizer,
    sources,
    token_drift,
)
from ckaudit.data.pii import KINDS, addresses
from ckaudit.material.files import FaultCollector, FaultReporter
from ckaudit.material.plugin import Classifier, in_batches
from ckaudit.material.records import Progress, Reading
from ckaudit.wording import plural


# Documents that contain personal data (M51, the part that patterns can find).
class PersonalData:
    """Share of documents with at least one hit, overall and by kind; the hits are never shown."""

    def __init__(self) -> None:
        self._documents = self._hit = self._nobodys = 0
        self._kinds: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def observe(self, document: Document) -> None:
        """Search one text."""
        if document.text is None:
            return
        self._documents += 1
        personal = list(addresses(document.text))
        kinds = {kind for (kind, _, _), is_somebodys in personal if is_somebodys}
        self._hit += bool(kinds)
        self._nobodys += len(kinds) == 0 and len(personal) > 0
        self._kinds.update(kinds)
        for kind in kinds:
            self._first.setdefault(kind, document.place)

    def measures(self) -> Values:
        """Yield the rate of all kinds together, and of each kind."""
        if not self._documents:
            yield not_recorded("pii_hit_rate", "M51", NO_TEXT)
            return
        remark = "patterns only: names and postal addresses are not looked for"
        if self._nobodys:
            others = plural(self._nobodys, "more document")
            reserved = "reserved addresses (example.com, no-reply, private networks)"
            remark += f"; {others} with nothing but {reserved}: not counted"
        yield rate("pii_hit_rate", "M51", self._hit, self._documents, remark)
        for kind in KINDS:
            first = f"first in {self._first[kind]}" if kind in self._first else None
            yield rate(f"pii_hit_rate/{kind}", "M51", self._kinds[kind], self._documents, first)


# The share of the sample that a classifier calls toxic (M48).
class Toxicity:
    """Share of the scored documents with a score of at least one half."""

    def __init__(self, *, threshold: float = 0.5) -> None:
        # RealToxicityPrompts uses one half as the threshold (Gehman et al. 2020).
        self._threshold = threshold
        self._toxic = self._scored = 0

    def observe(self, document: Document) -> None:
        """Add a document; it counts if it has a score."""
        if document.score is not None:
            self._scored += 1
            self._toxic += document.score >= self._threshold

    def measures(self) -> Values:
        """Yield the share, with its interval."""
        if not self._scored:
            yield not_recorded("data_toxicity_rate", "M48", "no column toxicity or score, and no --classifier")
            return
        yield rate("data_toxicity_rate", "M48", self._toxic, self._scored, f"score of at least {self._threshold:g}")


class Tools(Struct, frozen=True):
    """Optional tools for the measurement.

    Attributes:
        tokenizer: A `tokenizer.json`, for documents without tokens.
        classifier: Scores texts that have no score.
        pad_id: Id of the padding token.
    """

    tokenizer: Path | None = None
    classifier: Classifier | None = None
    pad_id: int | None = None


class _SamplePass:
    """One sample on its way through the gauges of single documents."""

    def __init__(self) -> None:
        self.rejects, self.histogram = FilterRejections(), TokenHistogram()
        self.gauges: list[SampleGauge] = [
            sources(),
            languages(),
            BytesPerToken(),
            TokensPerDocument(),
            PaddingShare(),
            Toxicity(),
            PersonalData(),
            self.histogram,
        ]
        self.records = self.accepted = 0

    def take(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Pass every document to the gauges, and yield those that no filter rejected."""
        for item in documents:
            self.records += 1
            self.rejects.observe(item)
            if item.rules:
                continue
            self.accepted += 1
            for gauge in self.gauges:
                gauge.observe(item)
            yield item

    def results(self) -> Iterator[Measure | Missing]:
        yield from self.rejects.measures()
        for gauge in self.gauges:
            yield from gauge.measures()


def measure(
    sample: Reading,
    subject: str,
    *,
    validation: Reading | None = None,
    reference: Reading | None = None,
    tools: Tools = Tools(),  # noqa: B008  it is frozen
    progress: Progress | None = None,
) -> Measures:
    """Measure a sample of training data.

    Args:
        sample: The sample.
        subject: Name that the user gave.
        validation: Held-out texts, for M37.
        reference: An earlier or trusted sample, for M35; the values of its single documents are given too.
        tools: Optional tools.
        progress: Called with the number of read bytes and of all bytes; twice from the start if documents are compared.
    """
    faults = FaultCollector()
    own, duplicates = _SamplePass(), Duplicates()
    for item in own.take(_documents(sample, progress, tools=tools, faults=faults)):
        duplicates.observe(item)
    for item in _kept(validation, tools, faults.report) if validation else ():
        duplicates.see_held_out(item)
    other = _SamplePass()
    for _ in other.take(_documents(reference, None, tools=tools, faults=faults) if reference else ()):
        pass
    again = (_kept(reading, tools, _ignore_fault, progress) for reading in (sample, validation) if reading)
    duplicates.compare(chain.from_iterable(again))
    rejected = own.records - own.accepted
    results = [
        *own.results(),
        *token_drift(own.histogram.counts, other.histogram.counts if reference else None),
        *duplicates.measures(has_validation=validation is not None),
    ]
    return gathered(
        "data",
        subject,
        _with_reference(results, other) if reference else results,
        clusters=duplicates.clusters,
        findings=faults.findings(),
        notes=[f"for filter_reject_rate only: {plural(rejected, 'rejected document')}"] * (rejected > 0),
        files=len(sample.files),
        records=own.records,
    )


def _with_reference(results: Iterable[Measure | Missing], reference: _SamplePass) -> Iterator[Measure | Missing]:
    """Yield results, each value with that of the reference."""
    values = {result.name: result.value for result in reference.results() if isinstance(result, Measure)}
    for result in results:
        yield replace(result, reference=values.get(result.name)) if isinstance(result, Measure) else result


def _documents(reading: Reading, progress: Progress | None, *, tools: Tools, faults: FaultCollector) -> Iterator[Document]:
    count = load_tokenizer(tools.tokenizer) if tools.tokenizer else None
    documents = (document(record, faults.report, pad_id=tools.pad_id) for record in reading.records(faults.report, progress))
    for item in _scored(documents, tools.classifier) if tools.classifier else documents:
        yield count(item) if count and not item.rules else item


def _scored(documents: Iterable[Document], classify: Classifier) -> Iterator[Document]:
    for batch in in_batches(documents):
        texts = [item.text for item in batch if item.score is None and item.text is not None and not item.rules]
        scores = iter(classify(texts) if texts else ())
        for item in batch:
            is_asked = item.score is None and item.text is not None and not item.rules
            yield replace(item, score=next(scores)) if is_asked else item


def _kept(reading: Reading, tools: Tools, report: FaultReporter, progress: Progress | None = None) -> Iterator[Document]:
    """Yield the documents that no filter rejected, without using tokenizer or classifier."""
    for record in reading.records(report, progress):
        record_document = document(record, report, pad_id=tools.pad_id)
        if not record_document.rules:
            yield record_document


def _ignore_fault(_: object) -> None:
    """Ignore a fault that was reported before."""
