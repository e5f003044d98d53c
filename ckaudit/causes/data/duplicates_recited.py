"""Documents that stand in the training data many times are learnt by heart and recited."""

from collections.abc import Iterator

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.schema.report import Evidence
from ckaudit.metrics.corpus import doc_repeat_hotspots, near_dup_rate
from ckaudit.rules.data.repeated_documents import repeated_documents
from ckaudit.rules.data.unsafe_data import unsafe_data
from ckaudit.rules.evaluation.memorization_rising import memorization_rising
from ckaudit.run.series import Series


@cause(
    prior=-1.0,
    explains=[memorization_rising, repeated_documents],
    follows=[unsafe_data],
    wants=[near_dup_rate, doc_repeat_hotspots],
    knob="Deduplicate: near duplicates by MinHash, repeated passages by suffix; then train on from before they were seen.",
    inspect="The largest clusters and where they come from; which of the recited passages stand in them.",
    runbook="Set the sources of the largest clusters aside; keep the recited passages as a probe, and score it after the change.",
)
def duplicates_recited(
    findings: Findings,
    rate: Series | None,
    clusters: Series | None,
    *,
    usual: float = 1.0,
    hotspot: float = 1000.0,
    strong: float = 2.0,
    medium: float = 1.0,
) -> Iterator[Evidence]:
    """Documents that stand in the training data many times are learnt by heart and recited.

    Near duplicates of up to `usual` percent of the documents are ordinary; more than `hotspot` copies of one document are not
    (M36, M38). Recitation was ten times rarer after deduplication (Lee et al. 2022). Log odds are first guesses.
    """
    recited, repeated = findings.first(memorization_rising), findings.first(repeated_documents)
    if repeated is not None:
        yield supports(medium, repeated.message, repeated)
    if recited is not None:
        yield supports(strong if repeated is not None else medium, recited.message, recited)
    if repeated is not None and (unsafe := findings.first(unsafe_data)):
        yield supports(medium, f"what is repeated may be private: {unsafe.message}", unsafe)
    if rate is not None and (share := rate.late_median()) is not None and share <= usual and repeated is None:
        yield contradicts(strong, f"only {share:.2g} % of the documents have a near duplicate", rate.name)
    if clusters is not None and (copies := clusters.late_median()) is not None and copies > hotspot:
        yield supports(medium, f"one document stands {copies:.0f} times in the data", clusters.name)
