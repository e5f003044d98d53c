"""Faults of the data do to batches what they say, from their onset on and not before."""

import math

import pytest
import torch
from msgspec.structs import replace

from ckaudit.lab.batch import Batch
from tests.lab.tiny import TINY, Seen, started, train


def equal(one: Batch, other: Batch) -> bool:
    return torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)


def untouched(seen: Seen) -> list[int]:
    return [step for step in seen.clean if equal(seen.batches[step], seen.clean[step])]


@pytest.mark.parametrize("fault", ["overfit_tiny", "overfit_slow"])
def test_a_small_training_set_has_few_rows(fault: str) -> None:
    ill = train(fault, strength=7)
    rows = [row for batch in ill.batches.values() for row in batch.inputs.tolist()]
    assert (len(rows), len({tuple(row) for row in rows})) == (24, 7)


def test_half_of_a_batch_is_held_out() -> None:
    with started("val_leak", strength=0.5) as (training, seen):
        held = training.corpus.held_out()
        training.run()
    for step, batch in seen.batches.items():
        rows = [2 * (step - 1) % 6, 2 * (step - 1) % 6 + 1]
        assert torch.equal(batch.inputs[:2], held.inputs[rows])
        assert torch.equal(batch.targets[:2], held.targets[rows])
        assert torch.equal(batch.inputs[2:], seen.clean[step].inputs[2:])


def test_the_first_batch_comes_again_and_again() -> None:
    ill = train("repeat_batch", stop=4)
    assert all(equal(batch, ill.clean[1]) for batch in ill.batches.values())


def test_a_batch_comes_again_from_the_onset_on() -> None:
    ill = train("repeat_batch_late", onset=4)
    assert untouched(ill) == [1, 2, 3]
    assert all(equal(ill.batches[step], ill.clean[3]) for step in (4, 5, 6))
    assert [batch.id for batch in ill.batches.values()] == [batch.id for batch in ill.clean.values()]


def test_each_batch_comes_from_every_worker() -> None:
    ill = train("workers_share_seed", strength=2)
    assert all(equal(ill.batches[step], ill.clean[(step + 1) // 2]) for step in range(1, 7))
    assert len({batch.id for batch in ill.batches.values()}) == 6


def test_a_shard_is_junk() -> None:
    ill = train("junk_shard", onset=3, strength=2)
    assert untouched(ill) == [1, 2, 5, 6]
    assert torch.equal(ill.batches[3].inputs[:, 1:], ill.batches[3].targets[:, :-1])
    assert (ill.batches[3].inputs == ill.clean[3].inputs).float().mean() < 0.15
    assert not equal(ill.batches[3], ill.batches[4])


@pytest.mark.parametrize(("share", "rows"), [(1.0, 4), (0.5, 2)])
def test_one_batch_is_junk(share: float, rows: int) -> None:
    ill = train("junk_batch_one", onset=2, strength=share, stop=3)
    assert untouched(ill) == [1, 3]
    touched = (ill.batches[2].inputs != ill.clean[2].inputs).any(1).tolist()
    assert touched == [True] * rows + [False] * (4 - rows)


def test_an_empty_batch_makes_everything_nan() -> None:
    ill = train("empty_batch", onset=3, stop=3)
    assert untouched(ill) == [1, 2]
    assert math.isfinite(ill.losses[2])
    assert math.isnan(ill.losses[3])
    assert all(bool(weight.isnan().any()) for weight in ill.weights[3].values())


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_tokens_are_renamed_one_to_one(share: float) -> None:
    ill = train("drift", onset=3, strength=share)
    assert untouched(ill) == [1, 2]
    names: dict[int, int] = {}
    for step in (3, 4, 5, 6):
        for of in ("inputs", "targets"):
            pairs = zip(
                getattr(ill.clean[step], of).flatten().tolist(), getattr(ill.batches[step], of).flatten().tolist(), strict=True
            )
            for old, new in pairs:
                assert names.setdefault(old, new) == new
    assert len(set(names.values())) == len(names)
    renamed = sum(old != new for old, new in names.items()) / len(names)
    assert renamed == 1 if share == 1 else 0.1 < renamed < 0.7


@pytest.mark.parametrize(("fault", "corpus"), [("label_noise", "verbs")])
def test_a_share_of_the_targets_is_random(fault: str, corpus: str) -> None:
    plan = replace(TINY, data=replace(TINY.data, corpus=corpus, batch_size=32))
    ill = train(fault, plan, strength=0.3, stop=2)
    assert all(torch.equal(batch.inputs, ill.clean[step].inputs) for step, batch in ill.batches.items())
    wrong = [float((batch.targets != ill.clean[step].targets).float().mean()) for step, batch in ill.batches.items()]
    assert wrong == pytest.approx([0.3, 0.3], abs=0.07)
    assert wrong[0] != wrong[1]
