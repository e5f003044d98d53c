"""Trainings of pretrained models: with intentionally frozen parts, or with a low learning rate."""

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
    """A pretrained model is trained further without its embeddings, which the configuration lists as frozen.

    It looks ill because tensors never move and have no gradient: the configuration says so, and the optimizer does not hold them.
    The first loss is far below that of a model that knows nothing.
    """

    def plan(self, plan: Plan) -> Plan:
        """Remember the data of the pretraining, and halve the learning rate."""
        self._before = plan
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak / 2))

    def model(self, model: "nn.Module") -> None:
        """Pretrain the model, and freeze the embeddings."""
        from torch import nn

        _pretrain(model, self._before)
        embeddings = {name: module for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
        for module in embeddings.values():
            module.weight.requires_grad_(False)
        self._frozen = [f"{name}.weight" for name in embeddings]

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Leave the frozen tensors out."""
        return [weight for weight in model.parameters() if weight.requires_grad]

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """State which tensors are frozen."""
        return facts | {"config": {"initial_weights": "pretrained", "frozen": self._frozen}}


@control("frozen_trunk_finetune")
class FrozenTrunkFinetune(Change):
    """Of a pretrained model only the last block, norm and head are trained further; the configuration says so.

    It looks ill because most tensors never move and have no gradient, because the first loss is far below that of a model that
    knows nothing, and because it hardly falls.
    """

    def plan(self, plan: Plan) -> Plan:
        """Remember the data of the pretraining, and train at a fifth of the learning rate."""
        self._before = plan
        last = cast("Gpt", plan.model).depth - 1
        self._trained = [f"blocks.{last}.*", "norm.*", "head.*"]
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak / 5))

    def model(self, model: "nn.Module") -> None:
        """Pretrain the model, and freeze the rest."""
        _pretrain(model, self._before)
        for name, weight in model.named_parameters():
            weight.requires_grad_(any(fnmatch(name, pattern) for pattern in self._trained))

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Leave the frozen tensors out."""
        return [weight for weight in model.parameters() if weight.requires_grad]

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """State where the weights come from, and which are trained."""
        return facts | {"config": {"initial_weights": "pretrained", "trainable": self._trained}}


@control("small_lr_finetune")
class SmallLrFinetune(Change):
    """A pretrained model is trained further with a thirtieth of the usual learning rate.

    It looks ill because the first loss is far below that of a model that knows nothing, because it hardly falls, and because
    weights hardly move. This is intended, and the held-out loss keeps falling.
    """

    def plan(self, plan: Plan) -> Plan:
        """Remember the data of the pretraining, and lower the learning rate."""
        self._before = plan
        return replace(plan, optimizer=replace(plan.optimizer, peak=plan.optimizer.peak / 30))

    def model(self, model: "nn.Module") -> None:
        """Pretrain the model."""
        _pretrain(model, self._before)

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """State where the weights come from."""
        return facts | {"config": {"initial_weights": "pretrained"}}


def _pretrain(model: "nn.Module", plan: Plan, *, share: float = 0.75) -> None:
    """Train a model in place on batches of another seed, for a share of the planned steps, without recording."""
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
