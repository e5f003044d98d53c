"""Whether two implementations agree within their precision: losses and weights, step by step (D1.4)."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from ckaudit.audit.load_run import is_ours, open_run
from ckaudit.contract.io.folder import list_folder
from ckaudit.contract.schema.diff import Answer, Departure, Noise, Pair, Word
from ckaudit.contract.schema.numbers import encode_float, ignoring_float_errors
from ckaudit.diff.checkpoint_values import checkpoints_of, number_of, read_document
from ckaudit.diff.comparability import find_mismatches
from ckaudit.diff.distances import relative_distance
from ckaudit.diff.distribution_drift import cells, shared
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.parity import parity_loss_diff, parity_param_diff
from ckaudit.rules.resume.parity_broken import LOSS, PARAMETERS
from ckaudit.run.run import Run

_COARSE = ("float64", "float32", "float16", "bfloat16")
_GRID = "sampled_grid_32x32"


class LargestDifference(Struct):
    """The largest difference so far, and the first one over its limit."""

    value: float = -1.0
    limit: float = 0.0
    where: str | None = None
    step: int = 0
    first: Departure | None = None
    points: int = 0


@ignoring_float_errors
def parity(left: Path, right: Path, *, loss: float | None = None, parameters: float | None = None) -> Pair:
    """Compare the losses and the statistics of weights of two runs at the steps that both have.

    Args:
        left: The reference implementation.
        right: The judged implementation.
        loss: Maximum difference of losses; default: from the coarsest dtype of the computation (`LOSS`).
        parameters: Maximum relative difference of a weight; default: from the tensor's dtype (`PARAMETERS`).

    Raises:
        UnreadableError: If one of them cannot be read.
    """
    reads = parity_loss_diff.paths | parity_param_diff.paths
    left_run, right_run = open_run(left, reads=reads), open_run(right, reads=reads)
    weights, coarsest = _weights(left, right, left_run, right_run, parameters)
    losses = _losses(left_run, right_run, LOSS[coarsest] if loss is None else loss)
    answers = [
        _answer("parity_loss", "Do the losses agree?", losses, "nats/token", f"in {coarsest}"),
        _answer("parity_parameters", "Do the weights agree?", weights, "1", "relative"),
        *_recorded(left_run),
        *(_recorded(right_run) if right != left else ()),
    ]
    over = sorted((worst.first for worst in (losses, weights) if worst.first), key=lambda worst: worst.step)
    both = [answer.word for answer in answers[:2]]
    word = _whole([answer.word for answer in answers] if set(both) == {"not_recorded"} else both)
    verdict = over[0].message if over else next((answer.message for answer in answers if answer.word == word), answers[0].message)
    noise = Noise(
        source="none",
        message=f"limits of {coarsest}: {LOSS[coarsest]:.3g} nats of a loss, {PARAMETERS[coarsest]:.3g} of a weight",
    )
    return Pair(
        left=str(left),
        right=str(right),
        word=word,
        verdict=verdict,
        noise=noise,
        unlike=find_mismatches(left_run, right_run),
        answers=answers,
        parting=over[0] if over else None,
        propagation=over,
    )


def _whole(words: list[Word]) -> Word:
    order: tuple[Word, ...] = ("different", "within_noise", "same", "not_recorded")
    return min(words, key=order.index)


def _losses(left: Run, right: Run, limit: float) -> LargestDifference:
    worst, left_loss, right_loss = LargestDifference(limit=limit), train_loss_raw(left), train_loss_raw(right)
    if not (left_loss.labels and right_loss.labels):
        return worst
    steps, left_rows, right_rows = np.intersect1d(left_loss.steps, right_loss.steps, return_indices=True)
    for step, one, other in zip(
        steps.tolist(), left_loss.values[left_rows, 0].tolist(), right_loss.values[right_rows, 0].tolist(), strict=True
    ):
        _take(worst, "train_loss_raw", None, step, (one, other), abs(one - other), limit)
    return worst


def _weights(left: Path, right: Path, one: Run, other: Run, limit: float | None) -> tuple[LargestDifference, str]:
    """Return the worst tensor of all common checkpoints, and the coarsest dtype that any tensor is computed in."""
    worst, types = LargestDifference(limit=PARAMETERS["float32"] if limit is None else limit), {"float32"}
    known = [checkpoints_of(folder) if _both_ours(left, right) else {} for folder in (left, right)]
    read = {*one.checkpoint_steps.tolist()} & {*other.checkpoint_steps.tolist()}
    for step in sorted(read & known[0].keys() & known[1].keys()):
        documents = [read_document(files[step].path, files[step].shown) for files in known]
        types |= {
            _type(member)
            for document in documents
            for section in ("weights", "activations")
            for member in _members(document, section)
        }
        for name, of_first, of_second in shared(documents[0], documents[1], "weights"):
            allowed = PARAMETERS[max(_type(of_first), _type(of_second), key=_COARSE.index)] if limit is None else limit
            for field, values, far in _distances(of_first, of_second):
                _take(worst, f"weights.{field}", name, step, values, far, allowed)
    return worst, max(types, key=_COARSE.index)


def _both_ours(left: Path, right: Path) -> bool:
    return all(path.is_dir() and is_ours(path) and bool(list_folder(path).checkpoints) for path in (left, right))


def _members(document: Mapping[str, Any], section: str) -> Iterator[Mapping[str, Any]]:
    members = document.get(section)
    yield from (member for member in members.values() if isinstance(member, dict)) if isinstance(members, dict) else ()


def _type(member: Mapping[str, Any]) -> str:
    """Return the dtype of a member, float32 if it states none that is known."""
    return member["dtype"] if member.get("dtype") in _COARSE else "float32"


def _distances(left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[tuple[str, tuple[float, float], float]]:
    """Yield the difference of each statistic of one tensor, relative to the tensor's own size."""
    spread = number_of(left.get("std")) or number_of(left.get("frobenius_norm")) or 1.0
    for field in ("frobenius_norm", "std", "mean", "min", "max"):
        one, other = number_of(left.get(field)), number_of(right.get(field))
        if one is None or other is None:
            continue
        size = max(spread, abs(one), abs(other)) if field == "mean" else max(abs(one), abs(other))
        yield field, (one, other), abs(one - other) / size if size else 0.0
    a, b = cells(left.get(_GRID)), cells(right.get(_GRID))
    if a and len(a) == len(b) and all(map(math.isfinite, (*a, *b))):
        coarse = max(_resolution(left[_GRID], a), _resolution(right[_GRID], b))
        yield _GRID, (math.hypot(*a), math.hypot(*b)), max(0.0, relative_distance(a, b) - coarse)


def _resolution(grid: Any, values: list[float]) -> float:
    """Return the rounding error of two grids of nearly equal matrices, which are written in bytes or four digits."""
    size = math.hypot(*values)
    if not isinstance(grid, dict) or not size:
        return 1e-3
    return (max(values) - min(values)) / 255 * math.sqrt(len(values)) / size


def _take(
    worst: LargestDifference, name: str, where: str | None, step: int, values: tuple[float, float], far: float, limit: float
) -> None:
    """Count one difference; a number that only one of both has is infinitely far."""
    if math.isnan(far):
        far = 0.0 if math.isnan(values[0]) and math.isnan(values[1]) else math.inf
    worst.points += 1
    if worst.value < 0 or far / limit > worst.value / worst.limit:
        worst.value, worst.limit, worst.where, worst.step = far, limit, where, step
    if far > limit and worst.first is None:
        place = f" of {where}" if where else ""
        message = (
            f"at step {step} {name}{place} is {values[1]:.9g}, {values[0]:.9g} in the first: {far:.3g} apart, above {limit:.3g}"
        )
        worst.first = Departure(
            statistic=name,
            where=where,
            step=step,
            left=encode_float(values[0]),
            right=encode_float(values[1]),
            band=limit,
            message=message,
        )


def _answer(name: str, title: str, worst: LargestDifference, unit: str, formula: str) -> Answer:
    if not worst.points:
        return Answer(
            question=name, title=title, word="not_recorded", message=f"both runs have none of them at one step: {title}"
        )
    word: Word = "different" if worst.first else "within_noise" if worst.value > 0 else "same"
    place = f"in {worst.where} at step {worst.step}" if worst.where else f"at step {worst.step}"
    message = (
        f"the largest difference of {worst.points:,} is {worst.value:.3g} ({formula}), {place}; the limit is {worst.limit:.3g}"
    )
    return Answer(
        question=name, title=title, word=word, right=encode_float(worst.value), band=worst.limit, unit=unit, message=message
    )


def _recorded(run: Run) -> Iterator[Answer]:
    """Yield the answers that a run recorded itself on its parity with a reference."""
    for metric, limit, unit in (
        (parity_loss_diff, LOSS["float32"], "nats/token"),
        (parity_param_diff, PARAMETERS["float32"], "1"),
    ):
        series = metric(run)
        if not series:
            continue
        values = series.values[series.recorded]
        value = math.inf if np.isnan(values).any() else float(values.max())
        message = f"{run.name} recorded a {metric.name} of {value:.3g} itself; the limit in float32 is {limit:.3g}"
        word: Word = "different" if value > limit else "within_noise" if value else "same"
        yield Answer(
            question=f"recorded_{metric.name}",
            title=f"Does {run.name} agree with its own reference?",
            word=word,
            right=encode_float(value),
            band=limit,
            unit=unit,
            message=message,
        )
