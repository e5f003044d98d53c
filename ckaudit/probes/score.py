"""How well a model continues reserved passages: exactness, overlap, and perplexity of the truth (MP-2)."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from msgspec import Struct

from ckaudit.contract.schema.raw_measurements import Measure, Measures, Missing, gathered
from ckaudit.material.columns import Columns, Units, WrongValue, units_of
from ckaudit.material.files import WRONG_TYPE, FaultCollector
from ckaudit.material.records import Progress, Reading, Record
from ckaudit.probes.passages import HELD_OUT, TRAIN, Passage
from ckaudit.wording import plural

COLUMNS = Columns(
    {
        "id": ("id", "probe"),
        "prompt": ("prompt",),
        "continuation": ("continuation", "generation", "generated", "text"),
        "perplexity": ("perplexity", "ppl"),
        "loss": ("loss", "nll"),
        "logprobs": ("logprobs", "token_logprobs"),
    }
)
ROW = "MP-2"


class ScoredPassage(Struct, frozen=True, kw_only=True):
    """The scores of one passage.

    Attributes:
        exact: Share of the truth's tokens generated at the right position.
        overlap: Share of the truth's tokens generated at any position.
        perplexity: Perplexity of the truth; None: not recorded.
    """

    exact: float
    overlap: float
    perplexity: float | None


def score_passages(reading: Reading, passages: Sequence[Passage], subject: str, *, progress: Progress | None = None) -> Measures:
    """Score the continuations of passages.

    Args:
        reading: A record for each passage, by its id or its prompt: the continuation, and the perplexity, the mean loss or the
            log-probabilities of the truth's tokens if known.
        passages: The reserved passages.
        subject: Name that the user gave the continuations.
        progress: Called with the number of read bytes and of all bytes.
    """
    faults, scored, records = FaultCollector(), dict[str, ScoredPassage](), 0
    by_id = {passage.id: passage for passage in passages}
    by_prompt = {_key(passage.prompt): passage for passage in passages}
    for record in reading.records(faults.report, progress):
        records += 1
        try:
            passage = _passage(record, by_id, by_prompt, scored)
            scored[passage.id] = _scored(record, passage)
        except WrongValue as wrong:
            faults.report(WRONG_TYPE.at(record.file, f"line {record.line}: {wrong}", line=record.line))
    silent = [passage.id for passage in passages if passage.id not in scored]
    notes = []
    if silent:
        count = plural(len(silent), "probe")
        notes = [f"not continued: {count}, the first is {silent[0]}; the mean of its group is that of the others"]
    return gathered(
        "probe score",
        subject,
        _results(passages, scored),
        findings=faults.findings(),
        notes=notes,
        files=len(reading.files),
        records=records,
    )


def _key(prompt: Any) -> Any:
    return tuple(prompt) if isinstance(prompt, list) else prompt


def _passage(
    record: Record, by_id: Mapping[str, Passage], by_prompt: Mapping[Any, Passage], scored: Mapping[str, ScoredPassage]
) -> Passage:
    values = record.values
    if "id" in values:
        passage = by_id.get(str(values["id"]))
    else:
        prompt = values.get("prompt")
        usable = isinstance(prompt, str) or (isinstance(prompt, list) and all(isinstance(token, int) for token in prompt))
        passage = by_prompt.get(_key(prompt)) if usable else None
    if passage is None:
        raise WrongValue("neither its id nor its prompt is that of a probe")
    if passage.id in scored:
        raise WrongValue(f"{passage.id} was continued before")
    return passage


def _scored(record: Record, passage: Passage) -> ScoredPassage:
    """Compare a continuation with the truth, token by token or word by word; anything beyond the truth does not count."""
    if "continuation" not in record.values:
        raise WrongValue("there is no continuation")
    truth, continuation = units_of(passage.truth, "the truth"), units_of(record.values["continuation"], "the continuation")
    if isinstance(passage.truth, str) != isinstance(record.values["continuation"], str):
        raise WrongValue("the probe is a text and the continuation a list of tokens, or the other way round")
    continuation = continuation[: len(truth)]
    return ScoredPassage(
        exact=exact_share(continuation, truth), overlap=overlap_share(continuation, truth), perplexity=_perplexity(record)
    )


def exact_share(units: Units, truth: Units) -> float:
    """Return the share of the truth's tokens that were generated at the right position.

    >>> exact_share((1, 9, 3), (1, 2, 3, 4))
    0.5
    """
    return sum(one == other for one, other in zip(units, truth, strict=False)) / len(truth)


def overlap_share(units: Units, truth: Units) -> float:
    """Return the share of the truth's tokens that were generated at any position; each counts as often as it occurs in both.

    >>> overlap_share((3, 1, 1, 9), (1, 2, 3, 4))
    0.5
    """
    return (Counter[Any](units) & Counter[Any](truth)).total() / len(truth)


def _perplexity(record: Record) -> float | None:
    """Return the perplexity of the truth, as recorded, or from the mean loss or the tokens' log-probabilities in nats."""
    values = record.values
    if "perplexity" in values:
        return _number(values["perplexity"], "the perplexity", min_value=1.0)
    if "loss" in values:
        return math.exp(_number(values["loss"], "the loss", min_value=0.0))
    if "logprobs" not in values:
        return None
    logs = values["logprobs"]
    if not isinstance(logs, list) or not logs:
        raise WrongValue("the log probabilities are no list of numbers")
    return math.exp(fmean(_number(-log if _is_number(log) else log, "minus a log probability", min_value=0.0) for log in logs))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any, what: str, *, min_value: float) -> float:
    if not _is_number(value) or not math.isfinite(value) or value < min_value or value > 700:
        raise WrongValue(f"{what} is {str(value)[:40]}, not a number from {min_value:g} on")
    return float(value)


def _mean_perplexity(scored: Sequence[ScoredPassage]) -> str:
    """Return the geometric mean of a group's perplexities as the end of a sentence."""
    known = [passage.perplexity for passage in scored if passage.perplexity is not None]
    return f"; perplexity of the truth {math.exp(fmean(map(math.log, known))):.4g}" if known else ""


def _results(passages: Sequence[Passage], scored: Mapping[str, ScoredPassage]) -> Iterator[Measure | Missing]:
    """Yield the means of both groups, then the perplexity of each passage."""
    for group in (TRAIN, HELD_OUT):
        of_group = [scored[passage.id] for passage in passages if passage.group == group and passage.id in scored]
        if not of_group:
            reserved = any(passage.group == group for passage in passages)
            detail = "none of them was continued" if reserved else "none was reserved: ckaudit probe init --held-out FILE"
            yield Missing(name=f"probe_accuracy/{group}", row=ROW, reason="not_recorded", detail=detail)
            continue
        whole = sum(scored.exact == 1.0 for scored in of_group)
        verbatim = f"{whole} of {plural(len(of_group), 'probe')} word for word"
        remark = f"share of tokens continued exactly; {verbatim}{_mean_perplexity(of_group)}"
        accuracy, overlap = fmean(score.exact for score in of_group), fmean(score.overlap for score in of_group)
        yield Measure(name=f"probe_accuracy/{group}", row=ROW, value=accuracy, unit="1", points=len(of_group), detail=remark)
        remark = "share of tokens said, wherever"
        yield Measure(name=f"probe_overlap/{group}", row=ROW, value=overlap, unit="1", points=len(of_group), detail=remark)
    perplexities = {name: score.perplexity for name, score in scored.items() if score.perplexity is not None}
    if not perplexities:
        detail = "no record has perplexity, loss or logprobs of the truth"
        yield Missing(name="probe_perplexity", row=ROW, reason="not_recorded", detail=detail)
    for name, value in sorted(perplexities.items()):
        yield Measure(name=f"probe_perplexity/{name}", row=ROW, value=value, unit="1", points=1)
