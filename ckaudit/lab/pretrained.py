"""Weights that have learnt already, for trainings that begin with such."""

from typing import TYPE_CHECKING

from ckaudit.lab.plan import Plan

if TYPE_CHECKING:
    from torch import nn


def pretrain(model: "nn.Module", plan: Plan, *, share: float = 0.75) -> None:
    """Train a model in place on batches of another seed, for a share of the planned steps, with nobody looking on."""
    from torch.nn.utils import clip_grad_norm_
    from torch.optim import AdamW

    from ckaudit.lab.corpora import open_corpus
    from ckaudit.lab.task import Task

    corpus, task = open_corpus(plan.data, plan.seed + 1000), Task()
    optimizer = AdamW(model.parameters(), betas=plan.optimizer.betas, weight_decay=plan.optimizer.weight_decay)
    steps = round(share * plan.steps)
    for step in range(1, steps + 1):
        batch = corpus.batch(step)
        optimizer.zero_grad()
        task.loss(task.logits(model, batch), batch).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = plan.optimizer.peak * plan.schedule.factor(step, steps)
        optimizer.step()
    optimizer.zero_grad()
