"""Learned positions that are not learnt."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.story import fault

if TYPE_CHECKING:
    from torch import nn


@fault(group="code", truth="frozen_by_mistake", symptoms=("frozen_parameter",), place=("positions*",))
class FrozenPositions(Change):
    """The table of positions does not ask for a gradient: it stays as it was drawn, as once in the training of OPT-175B.

    One small tensor has no gradient and never moves; the model makes do with random positions.

    Seen under seed 0: one tensor has no gradient and does not move; the loss is that of the healthy run to 0.01.
    """

    def plan(self, plan: Plan) -> Plan:
        """Give the model learned positions."""
        return replace(plan, model=replace(plan.model, positions="learned")) if isinstance(plan.model, Gpt) else plan

    def model(self, model: "nn.Module") -> None:
        """Freeze them."""
        model.get_submodule("positions").requires_grad_(False)
