"""The healthy trainings: every one can start, knows nothing at first, and no split shares its text with the other."""

import math
from typing import get_args

import pytest
import torch

from ckaudit.lab.corpora import open_corpus
from ckaudit.lab.models import build
from ckaudit.lab.specs import Family
from ckaudit.lab.task import Task
from ckaudit.lab.training_spec import SEEDS, setting, split_of
from tests.loops import for_each

EVERY = [(family, seed) for family in get_args(Family) for seeds in SEEDS.values() for seed in seeds]


@pytest.mark.torch
@for_each(("family", "seed"), EVERY)
def test_a_new_model_knows_nothing_and_gets_a_gradient_everywhere(family: Family, seed: int) -> None:
    plan = setting(family, seed)
    corpus = open_corpus(plan.data, plan.seed)
    torch.manual_seed(seed)
    model = build(plan.model, vocabulary=corpus.vocabulary, length=plan.data.length)
    batch, task = corpus.batch(1), Task()
    loss = task.loss(task.logits(model, batch), batch)
    assert loss.item() == pytest.approx(math.log(corpus.vocabulary), rel=0.3)
    loss.backward()
    still = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not [name for name in still if "experts" not in name]


def test_the_splits_share_no_seed_text_or_schedule() -> None:
    plans = {seed: setting("gpt", seed) for seeds in SEEDS.values() for seed in seeds}
    texts, schedules = ({split: [] for split in SEEDS} for _ in range(2))
    for seed, plan in plans.items():
        assert plan.seed == seed
        texts[split_of(seed)].append(plan.data.corpus)
        schedules[split_of(seed)].append(plan.schedule)
    assert not set(texts["dev"]) & set(texts["test"])
    assert not [schedule for schedule in schedules["dev"] if schedule in schedules["test"]]
