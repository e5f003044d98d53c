"""A finetuning with a small learning rate."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.pretrained import pretrain
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from torch import nn


@control()
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
        pretrain(model, self._before)

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Say where the weights come from."""
        return facts | {"config": {"initial_weights": "pretrained"}}
