"""All values of one sample in one pass over it, and a second one where documents have to be compared."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.raw_measurements import Measure, Measures, Missing, gathered
from ckaudit.data.document import Document, document
from ckaudit.data.duplicates import Duplicates
from ckaudit.data.gauge import Gauge
from ckaudit.data.mix import Rejects, languages, sources
from ckaudit.data.personal import Personal
from ckaudit.data.tokens import Histogram, Lengths, Padding, Sizes, drift, load_tokenizer
from ckaudit.data.toxicity import Toxicity
from ckaudit.material.counts import plural
from ckaudit.material.faults import Faults, Tell
from ckaudit.material.plugin import Classifier, in_batches
from ckaudit.material.records import Progress, Reading


class Tools(Struct, frozen=True):
    """What the user lends to the measurement.

    Attributes:
        tokenizer: A `tokenizer.json`, for documents that do not say their tokens.
        classifier: Scores texts that have no score.
        pad_id: The token that pads.
    """

    tokenizer: Path | None = None
    classifier: Classifier | None = None
    pad_id: int | None = None


class _Pass:
    """One sample on its way through the gauges that look at each document by itself."""

    def __init__(self) -> None:
        self.rejects, self.histogram = Rejects(), Histogram()
        self.gauges: list[Gauge] = [sources(), languages(), Sizes(), Lengths(), Padding(), Toxicity(), Personal(), self.histogram]
        self.records = self.kept = 0

    def take(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Show every document to the gauges, and yield those that no filter rejected."""
        for each in documents:
            self.records += 1
            self.rejects.see(each)
            if each.rules:
                continue
            self.kept += 1
            for gauge in self.gauges:
                gauge.see(each)
            yield each

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
        subject: What the user called it.
        validation: Held-out texts, for M37.
        reference: An earlier or trusted sample, for M35; the values of single documents are given of it too.
        tools: What else may be used.
        progress: Called with the bytes done, and of the sample; where documents are compared, twice from the start.
    """
    faults = Faults()
    own, duplicates = _Pass(), Duplicates()
    for each in own.take(_documents(sample, progress, tools=tools, faults=faults)):
        duplicates.see(each)
    for each in _kept(validation, tools, faults.tell) if validation else ():
        duplicates.see_held_out(each)
    other = _Pass()
    for _ in other.take(_documents(reference, None, tools=tools, faults=faults) if reference else ()):
        pass
    again = (_kept(reading, tools, _say_nothing, progress) for reading in (sample, validation) if reading)
    duplicates.compare(chain.from_iterable(again))
    rejected = own.records - own.kept
    results = [
        *own.results(),
        *drift(own.histogram.counts, other.histogram.counts if reference else None),
        *duplicates.measures(has_validation=validation is not None),
    ]
    return gathered(
        "data",
        subject,
        _beside(results, other) if reference else results,
        clusters=duplicates.clusters,
        findings=faults.findings(),
        notes=[f"for filter_reject_rate only: {plural(rejected, 'rejected document')}"] * (rejected > 0),
        files=len(sample.files),
        records=own.records,
    )


def _beside(results: Iterable[Measure | Missing], reference: _Pass) -> Iterator[Measure | Missing]:
    """Yield results, each value with that of the reference."""
    values = {each.name: each.value for each in reference.results() if isinstance(each, Measure)}
    for each in results:
        yield replace(each, reference=values.get(each.name)) if isinstance(each, Measure) else each


def _documents(reading: Reading, progress: Progress | None, *, tools: Tools, faults: Faults) -> Iterator[Document]:
    count = load_tokenizer(tools.tokenizer) if tools.tokenizer else None
    found = (document(record, faults.tell, pad_id=tools.pad_id) for record in reading.records(faults.tell, progress))
    for each in _scored(found, tools.classifier) if tools.classifier else found:
        yield count(each) if count and not each.rules else each


def _scored(documents: Iterable[Document], classify: Classifier) -> Iterator[Document]:
    for batch in in_batches(documents):
        texts = [each.text for each in batch if each.score is None and each.text is not None and not each.rules]
        scores = iter(classify(texts) if texts else ())
        for each in batch:
            is_asked = each.score is None and each.text is not None and not each.rules
            yield replace(each, score=next(scores)) if is_asked else each


def _kept(reading: Reading, tools: Tools, tell: Tell, progress: Progress | None = None) -> Iterator[Document]:
    """Yield the documents that no filter rejected, without asking tokenizer or classifier."""
    for record in reading.records(tell, progress):
        each = document(record, tell, pad_id=tools.pad_id)
        if not each.rules:
            yield each


def _say_nothing(_: object) -> None:
    """Take a fault that was told before."""
