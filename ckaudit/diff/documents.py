"""Two checkpoints, value by value: which statistics differ, where most, and which parts only one of them has."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from ckaudit.contract.diff import Answer, Departure, Noise, Pair, Unlike, Word
from ckaudit.contract.numbers import Number, to_word
from ckaudit.diff.clocks import RANK_FACTS, SECTIONS, tells_time
from ckaudit.diff.files import decoded, document_bytes, named_document
from ckaudit.diff.shapes import drifts_of
from ckaudit.material.counts import plural

BY_PLACE = ("weights", "gradients", "weight_deltas", "activations", "attention", "moe", "probes")
"""Sections with a member for each tensor, module, layer or probe."""
ALONE = Noise(source="none", message="two checkpoints have no noise to be compared with: every difference is told")

HEADER = SECTIONS | {"schema_version", "step", "event_step", "triggers", "left_out", "model_scale_hint"}
"""Members that say when and why a checkpoint was taken and what it leaves out, not what the model is."""
SHARES = frozenset({
    "sharp_share_per_head", "max_attn_per_head", "upper_triangle_mass_per_head", "nearest_similarity_per_head",
    "normalized_entropy_per_head", "zero_fraction", "sparsity", "outlier_rate", "duplicate_share", "target_shift_match",
    "target_equals_input", "clip_coefficient", "exact_match", "overlap",
})  # fmt: skip
"""Statistics between 0 and 1, whose changes are told as they are: from 0 to 0.01 is little, though of no size before."""
HUGE = 10**300
SCALED = SHARES | {"mean"}
"""Statistics whose changes are not measured by their own size."""

_SIGNED_ZERO = re.compile(rb"-0(?:\.0*)?(?:[eE][-+]?\d+)?(?=[,\]}\s])")
_NAMED = 5  # places that a sentence names


class Tally(Struct):
    """What was found of one statistic.

    Attributes:
        same: Places with equal values.
        apart: Places with different ones.
        only_left: Places of which only the first has a value.
        only_right: Places of which only the second has.
        far: The largest relative change; infinite where a value is not finite in one of them, -1 where all are words.
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
    """All that two checkpoints differ in.

    Attributes:
        tallies: By statistic, such as weights.frobenius_norm.
        gone: By section, the places that only the first has.
        new: By section, the places that only the second has.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    gone: dict[str, list[str]] = field(default_factory=dict)
    new: dict[str, list[str]] = field(default_factory=dict)


def compare_documents(left: str, right: str, *, most: int = 3) -> Pair:
    """Compare two checkpoints of one run or of two.

    Args:
        left: A checkpoint file, or a step of a run as run@500.
        right: The same.
        most: How many places of each measure of distance are told.

    Raises:
        UnreadableError: Where one of them cannot be read.
        UsageError: Where what follows an @ is no step.
    """
    files = named_document(left), named_document(right)
    data = [document_bytes(file.path, file.shown) for file in files]
    one, other = (decoded(each, file.shown) for each, file in zip(data, files, strict=True))
    notes = [
        note
        for name, file, each in zip((left, right), files, (one, other), strict=True)
        if (note := _elsewhere(name, file.step, each))
    ]
    if data[0] == data[1]:
        return _pair(left, right, "same", "the same, byte by byte", notes=notes)
    notes += [f"step {one['step']} against step {other['step']}"] if one["step"] != other["step"] else []
    found = differences(one, other, signed_zeros=any(map(_SIGNED_ZERO.search, data)))
    drifts = drifts_of(one, other, int(other["step"]), most=most)
    told = departures(found, int(other["step"]))
    unlike = [*_unlike(found.gone, "first"), *_unlike(found.new, "second")]
    word, verdict = _word(found, told, unlike)
    return _pair(left, right, word, verdict, propagation=told, unlike=unlike, drifts=drifts, notes=[*notes, *_notes(found)])


def _elsewhere(subject: str, step: int | None, document: Mapping[str, Any]) -> str | None:
    """Say that a run has no checkpoint of the step that was named, and which stands in."""
    wanted = subject.rpartition("@")[2]
    if step is None or not wanted.isdecimal() or int(wanted) == document["step"]:
        return None
    return f"{subject} has no checkpoint: its latest before that is {document['step']}"


def _pair(left: str, right: str, word: Word, verdict: str, **rest: Any) -> Pair:
    answer = Answer(question="exact", title="Are both the same to the last bit?", word=word, message=verdict)
    return Pair(left=left, right=right, word=word, verdict=verdict, noise=ALONE, answers=[answer], **rest)


def differences(left: Mapping[str, Any], right: Mapping[str, Any], *, signed_zeros: bool = True) -> Differences:
    """Return what two checkpoints differ in, what only tells time left out.

    Args:
        left: One checkpoint as plain objects.
        right: The other.
        signed_zeros: Whether a -0 can be among the values, which compares equal to 0 and is not the same.
    """
    found = Differences()
    for section in dict.fromkeys((*left, *right)):
        one, other = left.get(section), right.get(section)
        if section in HEADER:
            continue
        if section in BY_PLACE and isinstance(one, dict) and isinstance(other, dict):
            _places(found, section, one, other, signed_zeros)
        else:
            _leaves(found, (section,), None, one, other, signed_zeros)
    return found


def _places(found: Differences, section: str, left: dict[str, Any], right: dict[str, Any], signed_zeros: bool) -> None:
    gone, new = [name for name in left if name not in right], [name for name in right if name not in left]
    found.gone |= {section: gone} if gone else {}
    found.new |= {section: new} if new else {}
    tallies: dict[str, Tally] = {}
    for name, one in left.items():
        other = right.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            _members(tallies, section, name, one, other, signed_zeros)
        elif name in right:
            _count(found.tallies.setdefault(section, Tally()), section, name, one, other, signed_zeros)
    found.tallies |= {f"{section}.{key}": tally for key, tally in tallies.items()}


def _members(
    tallies: dict[str, Tally], section: str, name: str, left: dict[str, Any], right: dict[str, Any], signed_zeros: bool
) -> None:  # fmt: skip
    """Count the fields of one place. Numbers, nearly all there is, are counted here without a call for each."""
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


def _leaves(found: Differences, path: tuple[str, ...], where: str | None, left: Any, right: Any, signed_zeros: bool) -> None:
    """Compare what stands at a path, members one by one."""
    if not isinstance(left, dict) or not isinstance(right, dict):
        name = ".".join(path)
        _count(found.tallies.setdefault(name, Tally()), name, where, left, right, signed_zeros)
        return
    for key in dict.fromkeys((*left, *right)):
        if (path == ("scalars",) and tells_time(key)) or (path == ("rank_facts",) and key in RANK_FACTS):
            continue
        _leaves(found, (*path, key), where, left.get(key), right.get(key), signed_zeros)


def _count(
    tally: Tally, name: str, where: str | None, left: Any, right: Any, signed_zeros: bool, scale: Any = None
) -> None:  # fmt: skip
    """Count one value, or a list of them, of a statistic."""
    if left == right and not (signed_zeros and _hides_zero(left, right)):
        tally.same += 1
    elif left is None or right is None:
        tally.only_left += right is None
        tally.only_right += left is None
    else:
        tally.apart += 1
        for far, place, values in _changes(name, where, left, right, scale):
            if far > tally.far or (tally.where is None and tally.far < 0):
                tally.far, tally.where, tally.values = far, place, values


def _hides_zero(left: Any, right: Any) -> bool:
    """Tell whether equal values hold zeros of different sign."""
    if isinstance(left, list):
        return any(map(_hides_zero, left, right))
    if isinstance(left, dict):
        return any(_hides_zero(left[key], right[key]) for key in left)
    return left == 0 and isinstance(left, float) and math.copysign(1, left) != math.copysign(1, float(right))


def _changes(
    name: str, where: str | None, left: Any, right: Any, scale: Any
) -> Iterator[tuple[float, str | None, tuple[Any, Any]]]:
    """Yield how far each number of two different values is apart, its place, and both."""
    size = _size(name, scale)
    if not (_is_row(left) and _is_row(right) and len(left) == len(right)):
        yield _change(left, right, size), where, (left, right)
        return
    size = size or max(map(abs, filter(_is_number, (*left, *right))), default=0.0)
    for index, (one, other) in enumerate(zip(left, right, strict=True)):
        if one != other:
            part = f"head.{index}" if name.endswith("_per_head") else str(index)
            yield _change(one, other, size), f"{where}/{part}" if where else part, (one, other)


def _size(name: str, scale: Any) -> float:
    """Return what the changes of a statistic are measured in, 0 where that is its own size.

    A mean near zero has no size of its own, so that it is measured in standard deviations.
    """
    if name.endswith(".mean"):
        return float(scale) if _is_number(scale) else 0.0
    return 1.0 if name.rpartition(".")[2] in SHARES else 0.0


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and not isinstance(value[0], list | dict)


def _is_number(value: Any) -> bool:
    """Tell whether a value is a number that a float can hold; an integer of a thousand digits is a word."""
    return isinstance(value, float) or (type(value) is int and abs(value) < HUGE)


def _change(left: Any, right: Any, size: float) -> float:
    if _is_number(left) and _is_number(right):
        return float(abs(right - left) / (size or max(abs(left), abs(right), 1e-300)))
    return math.inf if _is_number(left) or _is_number(right) else -1.0


def departures(found: Differences, step: int) -> list[Departure]:
    """Return each statistic that differs, the largest change first, words last."""
    apart = [(name, tally) for name, tally in found.tallies.items() if tally.apart]
    return [_departure(name, tally, step) for name, tally in sorted(apart, key=lambda each: -each[1].far)]


def _departure(name: str, tally: Tally, step: int) -> Departure:
    left, right = tally.values
    place = f" in {tally.where}" if tally.where else ""
    if tally.places > 1:
        place = f" in {tally.apart:,} of {plural(tally.places, 'place')}, most{place}"
    numbers = _is_number(left) or _is_number(right)
    size = f", {_percent(name, tally.far)}" if numbers and math.isfinite(tally.far) else ""
    values = "" if isinstance(left, list | dict) else f": {_shown(left)} and {_shown(right)}{size}"
    return Departure(
        statistic=name, where=tally.where, step=step, message=f"{name} differs{place}{values}",
        left=_number(left) if numbers else None, right=_number(right) if numbers else None,
    )  # fmt: skip


def _percent(name: str, far: float) -> str:
    """Say how large a change is, in the words of its scale."""
    if name.endswith(".mean"):
        return f"{far:.3g} standard deviations"
    return f"{far:.3g} apart" if name.rpartition(".")[2] in SHARES else f"{100 * far:.3g} % apart"


def _number(value: Any) -> Number | None:
    if _is_number(value):
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
