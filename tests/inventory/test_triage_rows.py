"""The rows of the first look, in the forms their words allow: the cause of the row first, or its knob where none stands out."""

import math
from itertools import pairwise

import pytest

from ckaudit.audit import triage_run
from ckaudit.contract.schema.report import Report
from tests.cases import run_of
from tests.loops import for_each

LENGTHS = (200, 600, 2000)


def first_cause(report: Report) -> str | None:
    return report.diagnoses[0].cause if report.diagnoses else None


def spiking(length: int, rate: float, schedule: str, *, count: int, calm: float) -> Report:
    """Return the verdict on a loss that is calm for a share of the run, then jumps `count` times for six steps each."""
    begins = [int(length * (calm + (1 - calm) * 0.9 * each / count)) for each in range(count)]
    warm = max(2, length // 20)
    rates = {str(step): rate * step / warm for step in range(1, warm)}
    scalars = {
        "train_loss_raw": {"value": 3.5, "to": 2.5, "noise": 0.03, "set": {f"{each}..{each + 5}": 6.0 for each in begins}},
        "grad_global_norm": {"value": 0.5, "noise": 0.02, "set": {f"{each}..{each + 5}": 8.0 for each in begins}},
    }
    if schedule != "unknown":
        scalars["learning_rate"] = {"value": rate, "to": rate / 2 if schedule == "decay" else rate, "set": rates}
    steps = {"steps": f"1..{length}"}
    return triage_run(run_of({"name": "x", "scalars": {name: steps | spec for name, spec in scalars.items()}}))


# Each length with each rate and each schedule, and each of these with both times that are calm.
@for_each(
    ("length", "rate", "schedule", "calm"),
    [
        (length, rate, ("constant", "decay", "unknown")[(long + high) % 3], (0.3, 0.6)[(3 * long + high) % 2])
        for long, length in enumerate(LENGTHS)
        for high, rate in enumerate([3e-4, 1e-3, 3e-3])
    ],
)
def test_spikes_after_a_calm_time_are_the_rates(length: int, rate: float, schedule: str, calm: float) -> None:
    report = spiking(length, rate, schedule, count=3, calm=calm)
    assert first_cause(report) == "learning_rate_too_high"
    assert "learning rate" in report.diagnoses[0].knob
    assert "warm-up" in report.diagnoses[0].knob


@pytest.mark.parametrize("length", LENGTHS)
def test_one_short_jump_is_more_likely_a_batch(length: int) -> None:
    assert first_cause(spiking(length, 1e-3, "constant", count=1, calm=0.6)) == "bad_batch"


def clipped(length: int, share: float, *, largest: str, tensors: int, norm: float = 40.0) -> Report:
    """Return the verdict on a run that clips all the time, in which one tensor has a share of the squared norm."""
    others = norm * math.sqrt((1 - share) / (tensors - 1))
    labels = [largest, *(f"blocks.{each}.mlp.weight" for each in range(1, tensors))]
    steps = list(range(length // 10, length + 1, length // 10))
    rows = [[norm * math.sqrt(share), *[others] * (tensors - 1)] for _ in steps]
    return triage_run(
        run_of(
            {
                "name": "x",
                "facts": {"clip_norm": 1.0},
                "scalars": {"grad_global_norm": {"steps": f"1..{length}", "value": norm, "noise": 0.5}},
                "sections": {"gradients.*.norm": {"steps": steps, "labels": labels, "values": rows}},
            }
        )
    )


# Each share with each length, and with both tensors of few and of many.
@for_each(
    ("length", "largest", "share", "tensors"),
    [
        (length, ("blocks.0.attention.query.weight", "head.weight")[long % 2], share, (4, 40)[(long + place) % 2])
        for long, length in enumerate(LENGTHS)
        for place, share in enumerate([0.7, 0.72, 0.8, 0.9, 0.95, 0.99])
    ],
)
def test_frequent_clipping_by_one_tensor_asks_for_the_tensor(length: int, largest: str, share: float, tensors: int) -> None:
    report = clipped(length, share, largest=largest, tensors=tensors)
    assert first_cause(report) == "one_tensor_dominates"
    assert "of that tensor" in report.diagnoses[0].knob
    assert largest in report.diagnoses[0].evidence[0].sentence
    assert "clip_limit_too_low" not in {each.cause for each in report.diagnoses}


@pytest.mark.parametrize("share", [0.7, 0.99])
def test_an_embedding_with_most_of_the_gradient_never_raises_the_limit(share: float) -> None:
    report = clipped(600, share, largest="embedding.weight", tensors=10)
    assert "clip_limit_too_low" not in {each.cause for each in report.diagnoses}
    (found,) = [each for each in report.findings if each.code == "CLIP001"]
    assert first_cause(report) == "one_tensor_dominates"
    assert found.help is None or "Find that tensor" in found.help


@pytest.mark.parametrize("length", LENGTHS)
def test_clipping_of_a_gradient_that_all_share_is_the_limits(length: int) -> None:
    assert first_cause(clipped(length, 0.1, largest="blocks.0.weight", tensors=10)) == "clip_limit_too_low"


def test_the_larger_share_is_never_less_likely_the_tensors() -> None:
    shares = (0.45, 0.55, 0.7, 0.95)
    found = [clipped(600, share, largest="head.weight", tensors=10) for share in shares]
    by_share = [
        next((each.confidence for each in report.diagnoses if each.cause == "one_tensor_dominates"), 0.0) for report in found
    ]
    assert all(before <= after for before, after in pairwise(by_share))
    assert by_share[0] == 0.0
