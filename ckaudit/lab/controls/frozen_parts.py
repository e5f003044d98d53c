"""Parts of a model that are frozen on purpose."""

from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.pretrained import pretrain
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

        pretrain(model, self._before)
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
        pretrain(model, self._before)
        for name, weight in model.named_parameters():
            weight.requires_grad_(any(fnmatch(name, pattern) for pattern in self._trained))

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Leave the frozen ones out."""
        return [weight for weight in model.parameters() if weight.requires_grad]

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Say where the weights come from, and which are trained."""
        return facts | {"config": {"initial_weights": "pretrained", "trainable": self._trained}}
