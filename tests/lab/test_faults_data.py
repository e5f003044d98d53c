"""Faults of the data do to batches what they say, from their onset on and not before."""

import math
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from ckaudit.lab.corpora.sources import TEXTS
from ckaudit.lab.plan import Cnn, Data, Plan
from ckaudit.lab.score.verdict import judge
from ckaudit.lab.task import Batch
from tests.lab.small import SMALL, column, made, trained
from tests.lab.tiny import TINY, Seen, started, train

pytestmark = pytest.mark.torch

PICTURES = replace(TINY, model=Cnn(channels=2, depth=1), data=Data(corpus="shapes", batch_size=4, held_rows=4))


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


@pytest.mark.parametrize(("name", "leaks"), [("val_leak", True), ("healthy", False)])
def test_a_leak_is_seen_and_no_leak_is_none(name: str, leaks: bool, tmp_path: Path) -> None:
    plan = replace(SMALL, data=replace(SMALL.data, length=40, held_rows=64))
    trained(made(name, strength=0.25), tmp_path, replace(plan, steps=60))
    shares = column(tmp_path, "held_out_rows_trained_on")
    assert min(shares) >= SMALL.eval_every
    # One row of each batch that is looked at, of 64.
    assert shares == {step: 100 / 64 * (count if leaks else 0) for count, step in enumerate(sorted(shares), 1)}
    found = [each for each in judge(tmp_path).seen if "split_overlap" in each.words]
    assert bool(found) is leaks
    assert not leaks or judge(tmp_path).causes[0] == "validation_leaks_into_training"


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


def test_an_empty_batch_has_no_loss_and_no_gradient() -> None:
    ill = train("empty_batch", onset=3, stop=4)
    assert untouched(ill) == [1, 2, 4]
    assert [math.isnan(loss) for loss in ill.losses.values()] == [False, False, True, False]
    assert not any(gradient.any() for gradient in ill.gradients[3].values())


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


@pytest.mark.parametrize(("fault", "plan"), [("label_noise", TINY), ("labels_noise_cnn", PICTURES)])
def test_a_share_of_the_targets_is_random(fault: str, plan: Plan) -> None:
    ill = train(fault, replace(plan, data=replace(plan.data, batch_size=256)), strength=0.3, stop=2)
    assert all(torch.equal(batch.inputs, ill.clean[step].inputs) for step, batch in ill.batches.items())
    masks = [batch.targets != ill.clean[step].targets for step, batch in ill.batches.items()]
    kept = 1 / 8 if plan is PICTURES else 1 / 96  # a class or token that is drawn may be the right one
    assert [float(mask.float().mean()) for mask in masks] == pytest.approx([0.3 * (1 - kept)] * 2, abs=0.07)
    assert not torch.equal(*masks)


def test_sources_come_one_after_the_other() -> None:
    names = tuple(TEXTS["mixture"])
    ill = train("not_shuffled", strength=2)
    assert [batch.source for batch in ill.batches.values()] == [names[index] for index in (0, 0, 1, 1, 2, 2)]


def test_a_mixture_ends_with_one_source() -> None:
    plan = replace(TINY, data=replace(TINY.data, corpus="mixture", batch_size=16))
    healthy, ill = train(None, plan), train("mixture_drift", plan, onset=3, strength=3)
    same = [float((ill.batches[step].inputs == healthy.batches[step].inputs).all(1).float().mean()) for step in range(1, 7)]
    assert same[:2] == [1, 1]
    assert same[2] > same[3] > same[5] >= 0.2  # a row of the first source stays where it is
    assert [batch.source for batch in ill.batches.values()] == [None] * 4 + [next(iter(TEXTS["mixture"]))] * 2


def test_pictures_are_too_large() -> None:
    ill = train("inputs_x255", PICTURES, strength=255, stop=2)
    assert all(torch.equal(batch.inputs, 255 * ill.clean[step].inputs) for step, batch in ill.batches.items())
