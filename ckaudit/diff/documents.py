"""Two checkpoints, value by value: which statistics differ, where most, and which parts only one of them has."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ckaudit.contract.io.folder import shown_name
from ckaudit.contract.schema.diff import Answer, Departure, Noise, Pair, Unlike, Word
from ckaudit.contract.schema.numbers import Number, to_word
from ckaudit.diff.diff_stats import SHARES, Differences, Tally, differences, is_number
from ckaudit.diff.distribution_drift import drifts_of
from ckaudit.diff.files import decoded, document_bytes
from ckaudit.material.counts import plural

ALONE = Noise(source="none", message="two checkpoints have no noise to be compared with: every difference is told")

_SIGNED_ZERO = re.compile(rb"-0(?:\.0*)?(?:[eE][-+]?\d+)?(?=[,\]}\s])")
_NAMED = 5  # places that a sentence names


def compare_documents(left: Path, right: Path, *, max_places: int = 3) -> Pair:
    """Compare two checkpoints of one run or of two.

    Args:
        left: A checkpoint file.
        right: Another.
        max_places: How many places of each measure of distance are told.

    Raises:
        UnreadableError: Where one of them cannot be read.
    """
    names = [shown_name(str(path)) for path in (left, right)]
    data = [document_bytes(path, shown) for path, shown in zip((left, right), names, strict=True)]
    one, other = (decoded(each, shown) for each, shown in zip(data, names, strict=True))
    if data[0] == data[1]:
        return _pair(names[0], names[1], "same", "the same, byte by byte")
    notes = [f"step {one['step']} against step {other['step']}"] if one["step"] != other["step"] else []
    found = differences(one, other, signed_zeros=any(map(_SIGNED_ZERO.search, data)))
    drifts = drifts_of(one, other, int(other["step"]), max_places=max_places)
    told = departures(found, int(other["step"]))
    unlike = [*_unlike(found.gone, "first"), *_unlike(found.new, "second")]
    word, verdict = _word(found, told, unlike)
    return _pair(
        names[0], names[1], word, verdict, propagation=told, unlike=unlike, drifts=drifts, notes=[*notes, *_notes(found)]
    )


def _pair(left: str, right: str, word: Word, verdict: str, **rest: Any) -> Pair:
    answer = Answer(question="exact", title="Are both the same to the last bit?", word=word, message=verdict)
    return Pair(left=left, right=right, word=word, verdict=verdict, noise=ALONE, answers=[answer], **rest)


def departures(found: Differences, step: int) -> list[Departure]:
    """Return each statistic that differs, the largest change first, words last."""
    apart = [(name, tally) for name, tally in found.tallies.items() if tally.apart]
    return [_departure(name, tally, step) for name, tally in sorted(apart, key=lambda each: -each[1].far)]


def _departure(name: str, tally: Tally, step: int) -> Departure:
    left, right = tally.values
    place = f" in {tally.where}" if tally.where else ""
    if tally.places > 1:
        place = f" in {tally.apart:,} of {plural(tally.places, 'place')}, most{place}"
    numbers = is_number(left) or is_number(right)
    size = f", {_percent(name, tally.far)}" if numbers and math.isfinite(tally.far) else ""
    values = "" if isinstance(left, list | dict) else f": {_shown(left)} and {_shown(right)}{size}"
    return Departure(
        statistic=name,
        where=tally.where,
        step=step,
        message=f"{name} differs{place}{values}",
        left=_number(left) if numbers else None,
        right=_number(right) if numbers else None,
    )


def _percent(name: str, far: float) -> str:
    """Say how large a change is, in the words of its scale."""
    if name.endswith(".mean"):
        return f"{far:.3g} standard deviations"
    return f"{far:.3g} apart" if name.rpartition(".")[2] in SHARES else f"{100 * far:.3g} % apart"


def _number(value: Any) -> Number | None:
    if is_number(value):
        return to_word(float(value))
    return value if value in ("NaN", "Infinity", "-Infinity") else None


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _unlike(places: Mapping[str, list[str]], which: str) -> Iterator[Unlike]:
    for section, names in places.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        message = f"{section} of {', '.join(names[:_NAMED])}{more} stand only in the {which}"
        left, right = (str(len(names)), None) if which == "first" else (None, str(len(names)))
        yield Unlike(name=section, kind="model", left=left, right=right, invalidates=["tensors"], message=message)


def _word(found: Differences, told: list[Departure], unlike: list[Unlike]) -> tuple[Word, str]:
    """Return the verdict as a word and as a sentence."""
    values = sum(tally.places for tally in found.tallies.values())
    lacking = sum(tally.only_left + tally.only_right for tally in found.tallies.values())
    if not any(tally.places for name, tally in found.tallies.items() if "." in name):
        return "incomparable", "incomparable: the two checkpoints have no statistic in common"
    if not told and not lacking and not unlike:
        return "same", f"the same: all {values:,} values are equal to the last bit, what tells the time aside"
    if not told and unlike:
        return "different", f"different: all {values:,} values that both have are equal to the last bit, but {unlike[0].message}"
    if not told:
        return "not_recorded", f"all {values:,} values that both have are equal to the last bit, {lacking:,} have no counterpart"
    apart = sum(tally.apart for tally in found.tallies.values())
    return "different", f"different: {apart:,} of {plural(values, 'value')}; {told[0].message}"


def _notes(found: Differences) -> list[str]:
    """Say what only one of them recorded."""
    notes = []
    for which, lacking in (("first", "only_left"), ("second", "only_right")):
        names = {name: getattr(tally, lacking) for name, tally in found.tallies.items() if getattr(tally, lacking)}
        if names:
            said = ", ".join(f"{name} ({plural(count, 'place')})" for name, count in list(names.items())[:_NAMED])
            more = f" and {plural(len(names) - _NAMED, 'other statistic')}" if len(names) > _NAMED else ""
            notes.append(f"only the {which} has {said}{more}")
    return notes
