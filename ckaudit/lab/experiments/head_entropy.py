"""EXP-8: the entropy of attention heads over time."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import experiment

if TYPE_CHECKING:
    from torch import nn


class Choosy(Change):
    """A model with rotary positions and a gated MLP, trained twice as long: its heads find what to look at."""

    def plan(self, plan: Plan) -> Plan:
        """Change the model and the length."""
        assert isinstance(plan.model, Gpt)
        model = replace(plan.model, positions="rope", activation="swiglu", hidden=128)
        return replace(plan, model=model, steps=2 * plan.steps)


class AttentionScale(Choosy):
    """The logits of attention are multiplied by `strength`."""

    def model(self, model: "nn.Module") -> None:
        """Scale every layer."""
        for name, module in model.named_modules():
            if name.endswith(".attn"):
                module.scale *= self.strength


@experiment(
    "EXP-8",
    look=(
        *("train_loss_raw", "normalized_attention_entropy", "min_normalized_entropy", "sharp_share", "dead_head_fraction"),
        *("uniform_head_fraction", "max_attn_logit"),
    ),
    steps=(1, 10, 20, 30, 50, 100, 150, 200, 250),
)
def head_entropy() -> Mapping[str, Change]:
    """How choosy each head is, from the first step on.

    All heads start even, with a normalized entropy near 1, and become choosy at their own pace between steps 50 and 150.
    With logits a hundred times too large, as after a forgotten division by the root of the head's size or a broken norm of
    queries and keys, they become choosy while the learning rate still warms up, before they know what to look for. With
    logits a hundred times too small they stay even for long, and the model has to do without attention.

    Look at the smallest entropy at steps 10 to 50, head by head: early collapse is the sign, a low value at the
    end is not. The loss tells the even heads apart from step 100 on. Sharp ones cost nothing in so small a task, although
    half of them are dead at the end.
    """
    return {"healthy": Choosy(), "logits x100": AttentionScale(0, 100), "logits x0.01": AttentionScale(0, 0.01)}
