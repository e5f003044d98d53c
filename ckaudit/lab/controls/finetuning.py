"""Trainings of models that have learnt already: with parts that are frozen on purpose, or at a small rate."""

from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import control

if TYPE_CHECKING:
    from torch import nn


@control("frozen_embeddings")
class FrozenEmbeddings(Change):
    """A model that has learnt already is trained on without its embeddings, which the configuration lists as frozen.

    It looks ill because tensors never move and have no gradient: the configuration says so, and the optimizer does not hold
    them. The first loss is far below that of a model that knows nothing.
    """

    def plan(self, plan: Plan) -> Plan:
        """Remember what the model had learnt from, and train half as fast."""
        self._before = plan
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak / 2))

    def model(self, model: "nn.Module") -> None:
        """Let it learn, and freeze the embeddings."""
        from torch import nn

        _pretrain(model, self._before)
        embeddings = {name: module for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
        for module in embeddings.values():
            module.weight.requires_grad_(False)
        self._frozen = [f"{name}.weight" for name in embeddings]

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Leave the frozen ones out."""
        return [weight for weight in model.parameters() if weight.requires_grad]

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Say which tensors are frozen."""
        return facts | {"config": {"initial_weights": "pretrained", "frozen": self._frozen}}


@control("frozen_trunk_finetune")
class FrozenTrunkFinetune(Change):
    """A model that has learnt already is trained on, its last block, norm and head only; the configuration says so.

    It looks ill because most tensors never move and have no gradient, because the first loss is far below that of a model
    that knows nothing, and because it hardly falls.
    """

    def plan(self, plan: Plan) -> Plan:
        """Remember what the model had learnt from, and train a fifth as fast."""
        self._before = plan
        last = cast("Gpt", plan.model).depth - 1
        self._trained = [f"blocks.{last}.*", "norm.*", "head.*"]
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak / 5))

    def model(self, model: "nn.Module") -> None:
        """Let it learn, and freeze the rest."""
        _pretrain(model, self._before)
        for name, weight in model.named_parameters():
            weight.requires_grad_(any(fnmatch(name, pattern) for pattern in self._trained))

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Leave the frozen ones out."""
        return [weight for weight in model.parameters() if weight.requires_grad]

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Say where the weights come from, and which are trained."""
        return facts | {"config": {"initial_weights": "pretrained", "trainable": self._trained}}


@control("small_lr_finetune")
class SmallLrFinetune(Change):
    """A model that has learnt already is trained on with a thirtieth of the usual learning rate.

    It looks ill because the first loss is far below that of a model that knows nothing, because it hardly falls, and because
    weights hardly move: so it is meant, and the held-out loss falls on.
    """

    def plan(self, plan: Plan) -> Plan:
        """Remember what the model had learnt from, and train slowly."""
        self._before = plan
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak / 30))

    def model(self, model: "nn.Module") -> None:
        """Let it learn."""
        _pretrain(model, self._before)

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Say where the weights come from."""
        return facts | {"config": {"initial_weights": "pretrained"}}


def _pretrain(model: "nn.Module", plan: Plan, *, share: float = 0.75) -> None:
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
