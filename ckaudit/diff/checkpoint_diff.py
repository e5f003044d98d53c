"""Comparison of two checkpoints: which statistics differ, in how many places, where most, and which parts only one has."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from ckaudit.contract.io.folder import shown_name
from ckaudit.contract.schema.diff import Answer, Departure, Noise, Pair, Unlike, Word
from ckaudit.contract.schema.numbers import encode_float
from ckaudit.diff.checkpoint_values import RECORDING, decoded, document_bytes, is_number, number_of, values
from ckaudit.diff.distribution_drift import drifts_of
from ckaudit.wording import first_names, plural

ALONE = Noise(source="none", message="two checkpoints have no noise to be compared with: every difference is told")

_SIGNED_ZERO = re.compile(rb"-0(?:\.0*)?(?:[eE][-+]?\d+)?(?=[,\]}\s])")

_MAX_NAMED = 5  # places named in a sentence

HEADER = RECORDING | {"step", "model_scale_hint"}
"""Members that describe when and why a checkpoint was taken and what it leaves out, not the model."""

SHARES = frozenset(
    {
        "sharp_share_per_head",
        "max_attn_per_head",
        "upper_triangle_mass_per_head",
        "nearest_similarity_per_head",
        "normalized_entropy_per_head",
        "zero_fraction",
        "sparsity",
        "outlier_rate",
        "duplicate_share",
        "normalized_share",
        "unchanged",
        "target_shift_match",
        "embedded_shift_match",
        "target_equals_input",
        "target_equals_embedded",
        "clip_coefficient",
        "exact_match",
        "overlap",
    }
)
"""Statistics between 0 and 1, whose changes are absolute: a change from 0 to 0.01 is small, although its relative change is
infinite."""

SCALED = SHARES | {"mean"}
"""Statistics whose changes are not relative to their own size."""


class Tally(Struct):
    """The differences of one statistic.

    Attributes:
        same: Places with equal values.
        apart: Places with different values.
        only_left: Places for which only the first has a value.
        only_right: Places for which only the second has a value.
        far: The largest relative change; infinite if a value is not finite in one of them, -1 if all are strings.
        where: The place of that change; None: there is only one.
        values: Both values there.
    """

    same: int = 0
    apart: int = 0
    only_left: int = 0
    only_right: int = 0
    far: float = -1.0
    where: str | None = None
    values: tuple[Any, Any] = (None, None)

    @property
    def places(self) -> int:
        """Places with two values."""
        return self.same + self.apart


class Differences(Struct):
    """All differences of two checkpoints.

    Attributes:
        tallies: Differences by statistic, such as weights.frobenius_norm.
        gone: Places that only the first has, by section.
        new: Places that only the second has, by section.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    gone: dict[str, list[str]] = field(default_factory=dict)
    new: dict[str, list[str]] = field(default_factory=dict)


def compare_documents(left: Path, right: Path, *, max_places: int = 3) -> Pair:
    """Compare two checkpoints of one run or of two.

    Args:
        left: A checkpoint file.
        right: Another.
        max_places: Maximum number of reported places per measure of distance.

    Raises:
        UnreadableError: If one of them cannot be read.
    """
    names = [shown_name(str(path)) for path in (left, right)]
    data = [document_bytes(path, shown) for path, shown in zip((left, right), names, strict=True)]
    one, other = (decoded(bytes_of_file, shown) for bytes_of_file, shown in zip(data, names, strict=True))
    if data[0] == data[1]:
        return _pair(names[0], names[1], "same", "the same, byte by byte")
    notes = [f"step {one['step']} against step {other['step']}"] if one["step"] != other["step"] else []
    counted = differences(one, other, signed_zeros=any(map(_SIGNED_ZERO.search, data)))
    drifts = drifts_of(one, other, int(other["step"]), max_places=max_places)
    changed = departures(counted, int(other["step"]))
    unlike = [*_unlike(counted.gone, "first"), *_unlike(counted.new, "second")]
    word, verdict = _word(counted, changed, unlike)
    return _pair(
        names[0], names[1], word, verdict, propagation=changed, unlike=unlike, drifts=drifts, notes=[*notes, *_notes(counted)]
    )


def _pair(left: str, right: str, word: Word, verdict: str, **rest: Any) -> Pair:
    answer = Answer(question="exact", title="Are both the same to the last bit?", word=word, message=verdict)
    return Pair(left=left, right=right, word=word, verdict=verdict, noise=ALONE, answers=[answer], **rest)


def departures(counted: Differences, step: int) -> list[Departure]:
    """Return each statistic that differs, the largest change first, strings last."""
    apart = [(name, tally) for name, tally in counted.tallies.items() if tally.apart]
    return [_departure(name, tally, step) for name, tally in sorted(apart, key=lambda item: -item[1].far)]


def _departure(name: str, tally: Tally, step: int) -> Departure:
    left, right = tally.values
    place = f" in {tally.where}" if tally.where else ""
    if tally.places > 1:
        place = f" in {tally.apart:,} of {plural(tally.places, 'place')}, most{place}"
    numbers = is_number(left) or is_number(right)
    words = [None if not numbers or known is None else encode_float(known) for known in map(number_of, tally.values)]
    size = f", {_percent(name, tally.far)}" if numbers and math.isfinite(tally.far) else ""
    values = "" if isinstance(left, list | dict) else f": {_shown(left)} and {_shown(right)}{size}"
    return Departure(
        statistic=name, where=tally.where, step=step, message=f"{name} differs{place}{values}", left=words[0], right=words[1]
    )


def _percent(name: str, far: float) -> str:
    """Return the size of a change in words, on its scale."""
    if name.endswith(".mean"):
        return f"{far:.3g} standard deviations"
    return f"{far:.3g} apart" if name.rpartition(".")[2] in SHARES else f"{100 * far:.3g} % apart"


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _unlike(places: Mapping[str, list[str]], which: str) -> Iterator[Unlike]:
    for section, names in places.items():
        message = f"{section} of {first_names(names, _MAX_NAMED)} stand only in the {which}"
        left, right = (str(len(names)), None) if which == "first" else (None, str(len(names)))
        yield Unlike(name=section, kind="model", left=left, right=right, invalidates=["tensors"], message=message)


def _word(counted: Differences, changed: list[Departure], unlike: list[Unlike]) -> tuple[Word, str]:
    """Return the verdict as a word and as a sentence."""
    values = sum(tally.places for tally in counted.tallies.values())
    lacking = sum(tally.only_left + tally.only_right for tally in counted.tallies.values())
    if not any(tally.places for name, tally in counted.tallies.items() if "." in name):
        return "incomparable", "incomparable: the two checkpoints have no statistic in common"
    if not changed and not lacking and not unlike:
        return "same", f"the same: all {values:,} values are equal to the last bit, what tells the time aside"
    if not changed and unlike:
        return "different", f"different: all {values:,} values that both have are equal to the last bit, but {unlike[0].message}"
    if not changed:
        return "not_recorded", f"all {values:,} values that both have are equal to the last bit, {lacking:,} have no counterpart"
    apart = sum(tally.apart for tally in counted.tallies.values())
    return "different", f"different: {apart:,} of {plural(values, 'value')}; {changed[0].message}"


def _notes(counted: Differences) -> list[str]:
    """Return notes on what only one of them recorded."""
    notes = []
    for which, lacking in (("first", "only_left"), ("second", "only_right")):
        names = {name: getattr(tally, lacking) for name, tally in counted.tallies.items() if getattr(tally, lacking)}
        if names:
            statistics = ", ".join(f"{name} ({plural(count, 'place')})" for name, count in list(names.items())[:_MAX_NAMED])
            more = f" and {plural(len(names) - _MAX_NAMED, 'other statistic')}" if len(names) > _MAX_NAMED else ""
            notes.append(f"only the {which} has {statistics}{more}")
    return notes


# Differences of the values of each statistic.
def differences(left: Mapping[str, Any], right: Mapping[str, Any], *, signed_zeros: bool = True) -> Differences:
    """Return the differences of two checkpoints, without values that depend only on time.

    Args:
        left: One checkpoint as plain objects.
        right: The other.
        signed_zeros: Whether the values may contain -0, which compares equal to 0 but is different.
    """
    counted = Differences()
    members: dict[str, dict[str, Tally]] = {}
    for section, place, one, other in values(left, right, without=HEADER):
        if place is not None and isinstance(one, dict) and isinstance(other, dict):
            _members(members.setdefault(section, {}), section, place, one, other, signed_zeros)
        elif place is not None and (one is None) != (other is None):
            (counted.gone if other is None else counted.new).setdefault(section, []).append(place)
        else:
            _count(counted.tallies.setdefault(section, Tally()), section, place, one, other, signed_zeros)
    counted.tallies |= {f"{section}.{key}": tally for section, fields in members.items() for key, tally in fields.items()}
    return counted


def _members(
    tallies: dict[str, Tally], section: str, name: str, left: dict[str, Any], right: dict[str, Any], signed_zeros: bool
) -> None:
    """Count the fields of one place. Numbers, nearly all of the values, are counted here without a function call for each."""
    for key in left if left.keys() == right.keys() else dict.fromkeys((*left, *right)):
        one, other = left.get(key), right.get(key)
        tally = tallies.get(key)
        if tally is None:
            tally = tallies[key] = Tally()
        if type(one) is float and type(other) is float and one != other and key not in SCALED:
            tally.apart += 1
            far = abs(other - one) / max(abs(one), abs(other))
            if far > tally.far:
                tally.far, tally.where, tally.values = far, name, (one, other)
        else:
            _count(tally, f"{section}.{key}", name, one, other, signed_zeros, left.get("std"))


def _count(tally: Tally, name: str, where: str | None, left: Any, right: Any, signed_zeros: bool, scale: Any = None) -> None:
    """Count one value, or a list of them, of a statistic."""
    if left == right and not (signed_zeros and _hides_zero(left, right)):
        tally.same += 1
    elif left is None or right is None:
        tally.only_left += right is None
        tally.only_right += left is None
    else:
        tally.apart += 1
        far, index = _change(name, left, right, scale)
        if far > tally.far or (tally.where is None and tally.far < 0):
            tally.far, tally.where, tally.values = far, where, (left, right)
            if index is not None:
                part = f"head.{index}" if name.endswith("_per_head") else str(index)
                tally.where, tally.values = f"{where}/{part}" if where else part, (left[index], right[index])


def _hides_zero(left: Any, right: Any) -> bool:
    """Tell whether equal values contain zeros of different sign."""
    if isinstance(left, list):
        return any(map(_hides_zero, left, right))
    if isinstance(left, dict):
        return any(_hides_zero(left[key], right[key]) for key in left)
    return left == 0 and isinstance(left, float) and math.copysign(1, left) != math.copysign(1, float(right))


def _change(name: str, left: Any, right: Any, scale: Any) -> tuple[float, int | None]:
    """Return the distance of two different values, or of the farthest numbers of two rows, and their index in the row."""
    size = _size(name, scale)
    if not (_is_row(left) and _is_row(right) and len(left) == len(right)):
        return _distance(left, right, size), None
    size = size or max(map(abs, filter(is_number, (*left, *right))), default=0.0)
    pairs = enumerate(zip(left, right, strict=True))
    apart = [(_distance(one, other, size), -index) for index, (one, other) in pairs if one != other]
    if not apart:  # zeros of different sign
        return 0.0, None
    far, index = max(apart)
    return far, -index


def _size(name: str, scale: Any) -> float:
    """Return the unit of a statistic's changes, 0 if that is its own size.

    A mean near zero has no size of its own, so it is measured in standard deviations.
    """
    if name.endswith(".mean"):
        return float(scale) if is_number(scale) else 0.0
    return 1.0 if name.rpartition(".")[2] in SHARES else 0.0


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and not isinstance(value[0], list | dict)


def _distance(left: Any, right: Any, size: float) -> float:
    if is_number(left) and is_number(right):
        return float(abs(right - left) / (size or max(abs(left), abs(right), 1e-300)))
    return math.inf if is_number(left) or is_number(right) else -1.0
