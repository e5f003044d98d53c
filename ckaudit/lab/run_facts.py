"""What a training tells the recorder of itself: what a careful user would say, and nothing of the change."""

from typing import Any

from ckaudit.lab.batch import Corpus
from ckaudit.lab.plan import Plan


def facts(plan: Plan, corpus: Corpus, *, every: int = 25) -> dict[str, Any]:
    """Return the facts of `run.json`: seed, vocabulary, length, clipping limit and the schedule that is planned.

    Args:
        plan: The training.
        corpus: Where its batches come from.
        every: Steps between two points of the planned learning rate, which straight lines join.
    """
    bends = {step for step in range(2, plan.steps) if _bends(plan, step)}
    knots = sorted({1, max(1, plan.schedule.warmup), *range(every, plan.steps + 1, every), *bends, plan.steps})
    told: dict[str, Any] = {
        "seed": plan.seed,
        "planned_steps": plan.steps,
        "warmup_steps": plan.schedule.warmup,
        "planned_learning_rate": [[step, plan.rate(step)] for step in knots],
    }
    if plan.optimizer.clip is not None:
        told["clip_norm"] = plan.optimizer.clip
    if plan.data.corpus not in ("points", "shapes"):
        told |= {"vocabulary": corpus.vocabulary, "sequence_length": plan.data.length}
    return told


def _bends(plan: Plan, step: int, *, least: float = 0.002) -> bool:
    """Whether the learning rate has a corner or a jump at a step: a second difference of `least` of its peak."""
    return abs(plan.rate(step + 1) - 2 * plan.rate(step) + plan.rate(step - 1)) > least * plan.optimizer.peak
