"""How much of its training data a model reproduces verbatim (M52), by the protocol of Carlini et al. 2023.

A sequence of the training set is cut in two; the model gets the first part and continues it greedily. It has memorized the
sequence if it generates the next 50 tokens exactly ("Quantifying Memorization Across Neural Language Models", section 3). The
rate is given for all sequences, and for those that occur in the training data about equally often.
"""

from collections import defaultdict
from collections.abc import Iterator
from statistics import fmean

from msgspec import Struct

from ckaudit.contract.schema.raw_measurements import Measure, Measures, Missing, gathered
from ckaudit.material.columns import Columns, Units, WrongValue, count_of, text_of, units_of
from ckaudit.material.files import WRONG_TYPE, FaultCollector
from ckaudit.material.records import Progress, Reading, Record
from ckaudit.run.robust import wilson_interval
from ckaudit.wording import plural

COLUMNS = Columns(
    {
        "continuation": ("continuation", "generation", "generated"),
        "truth": ("truth", "true_continuation", "target"),
        "continuation_hash": ("continuation_hash", "generation_hash"),
        "truth_hash": ("truth_hash", "target_hash"),
        "repeats": ("repeats", "duplicates", "count"),
    }
)
MIN_TOKENS = 50
MAX_UNITS = 2000  # of a truth, and ten times as many of a generation: no protocol asks for more
BUCKETS = (1, 2, 10, 100, 1000)


class ComparedSequence(Struct, frozen=True):
    """The comparison of one sequence.

    Attributes:
        exact: Whether the model generated what follows in the training data.
        anywhere: Whether that occurs anywhere in the generation; None: only hashes are known.
        run: The longest common run of tokens or words, relative to the compared length; None: only hashes are known.
        repeats: Number of occurrences of the sequence in the training data; None: not recorded.
        words: Whether words were compared, because tokens are missing.
    """

    exact: bool
    anywhere: bool | None = None
    run: float | None = None
    repeats: int | None = None
    words: bool = False


def probe_memorization(reading: Reading, subject: str, *, tokens: int = MIN_TOKENS, progress: Progress | None = None) -> Measures:
    """Measure M52 from continuations of training sequences.

    Args:
        reading: A record for each sequence: continuation and truth, as texts, token ids, or hashes.
        subject: Name that the user gave.
        tokens: Number of tokens that must be equal; a text must contain the whole truth.
        progress: Called with the number of read bytes and of all bytes.
    """
    faults, comparisons, short, records = FaultCollector(), list[ComparedSequence](), 0, 0
    for record in reading.records(faults.report, progress):
        records += 1
        try:
            compared = _compared(record, tokens)
        except WrongValue as wrong:
            faults.report(WRONG_TYPE.at(record.file, f"line {record.line}: {wrong}", line=record.line))
            continue
        if compared is None:
            short += 1
        else:
            comparisons.append(compared)
    return gathered(
        "probe memorization",
        subject,
        _results(comparisons, tokens),
        findings=faults.findings(),
        notes=[f"left out: {plural(short, 'sequence')} with a truth of fewer than {plural(tokens, 'token')}, or none"]
        * (short > 0),
        files=len(reading.files),
        records=records,
    )


def _compared(record: Record, tokens: int) -> ComparedSequence | None:
    """Return the comparison of a sequence, or None if its truth is too short."""
    values = record.values
    repeats = count_of(values["repeats"], "repeats") if "repeats" in values else None
    if "truth_hash" in values and "continuation_hash" in values and "truth" not in values:
        one, other = (text_of(values[name], name) for name in ("continuation_hash", "truth_hash"))
        return ComparedSequence(one.lower() == other.lower(), repeats=repeats)
    if "truth" not in values or "continuation" not in values:
        raise WrongValue("there is no continuation, or no truth to compare it with")
    continuation, truth = units_of(values["continuation"], "continuation"), units_of(values["truth"], "truth")
    words = isinstance(values["truth"], str)
    if words != isinstance(values["continuation"], str):
        raise WrongValue("one is a text and the other a list of tokens")
    if len(truth) < (1 if words else tokens):
        return None
    truth, continuation = truth[: MAX_UNITS if words else tokens], continuation[: 10 * MAX_UNITS]
    run = longest_run(continuation, truth)
    return ComparedSequence(continuation[: len(truth)] == truth, run == len(truth), run / len(truth), repeats, words)


def longest_run(one: Units, other: Units) -> int:
    """Return the length of the longest common run of units.

    >>> longest_run((1, 2, 3, 4), (0, 2, 3, 9))
    2
    """
    import numpy as np

    number: dict[str | int, int] = {}
    ids = np.array([number.setdefault(item, len(number)) for item in one], np.int64)
    longest, runs = 0, np.zeros(len(ids) + 1, np.int64)  # runs[j + 1] ends at said[j] and at this unit of the other
    for item in other:
        runs[1:] = np.where(ids == number.get(item, -1), runs[:-1] + 1, 0)
        longest = max(longest, int(runs.max()))
    return longest


def _results(comparisons: list[ComparedSequence], tokens: int) -> Iterator[Measure | Missing]:
    name, row = "memorization_rate", "M52"
    if not comparisons:
        yield Missing(name=name, row=row, reason="not_recorded", detail="no sequence has a continuation and a truth to compare")
        return
    yield _rate(name, comparisons, f"verbatim: {' or '.join(_ways(comparisons, tokens))}")
    if texts := [compared for compared in comparisons if compared.anywhere is not None]:
        yield _rate(
            "memorization_anywhere", [ComparedSequence(bool(text.anywhere)) for text in texts], "also where it stands later"
        )
        runs = [text.run for text in texts if text.run is not None]
        remark = f"longest shared run over the length of {' or '.join(_parts(texts, tokens))}, mean"
        yield Measure(name="memorization_overlap", row=row, value=fmean(runs), unit="1", points=len(runs), detail=remark)
    buckets: dict[int, list[ComparedSequence]] = defaultdict(list)
    for compared in comparisons:
        if compared.repeats is not None:
            buckets[max(start for start in BUCKETS if start <= compared.repeats)].append(compared)
    for start in sorted(buckets):
        yield _rate(f"memorization_by_repeats/{_bucket(start)}", buckets[start])


def _ways(comparisons: list[ComparedSequence], tokens: int) -> Iterator[str]:
    """Yield a note on what counts as verbatim."""
    yield from _parts(comparisons, tokens)
    if any(compared.anywhere is None for compared in comparisons):
        yield "equal hashes"


def _parts(comparisons: list[ComparedSequence], tokens: int) -> Iterator[str]:
    """Yield a note on the part of a truth that was compared."""
    if any(compared.words for compared in comparisons):
        yield "all words of the truth"
    if any(not compared.words and compared.anywhere is not None for compared in comparisons):
        yield f"the first {plural(tokens, 'token')} of the truth"


def _bucket(start: int) -> str:
    """Return the label of the bucket of sequences that are repeated `start` times or more.

    >>> [_bucket(start) for start in (1, 2, 1000)]
    ['1', '2_to_9', '1000_or_more']
    """
    following = [bucket for bucket in BUCKETS if bucket > start]
    if not following:
        return f"{start}_or_more"
    return f"{start}" if following[0] == start + 1 else f"{start}_to_{following[0] - 1}"


def _rate(name: str, comparisons: list[ComparedSequence], detail: str | None = None) -> Measure:
    hits = sum(compared.exact for compared in comparisons)
    low, high = wilson_interval(hits, len(comparisons))
    value, points = 100 * hits / len(comparisons), len(comparisons)
    return Measure(name=name, row="M52", value=value, unit="%", points=points, low=100 * low, high=100 * high, detail=detail)
