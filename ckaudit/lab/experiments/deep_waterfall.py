"""EXP-10: the gradient's way through 28 blocks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import experiment

if TYPE_CHECKING:
    from torch import nn


class Deep(Change):
    """A narrow model of the shape of Qwen3 0.6B: 28 blocks, grouped queries, rotary positions, gated MLP, tied head."""

    def plan(self, plan: Plan) -> Plan:
        """Replace the model, and train for 40 steps on half batches."""
        model = Gpt(
            width=32, depth=28, heads=4, kv_heads=2, hidden=96, positions="rope", activation="swiglu", qk_norm=True, tied=True
        )
        data = replace(plan.data, batch_size=8, held_rows=32)
        return replace(plan, model=model, data=data, steps=40)


class DeepDamped(Deep):
    """The same, where the stream is multiplied by `strength` on its way around every branch."""

    def model(self, model: "nn.Module") -> None:
        """Damp every block."""
        for name, module in model.named_modules():
            if name.rpartition(".")[0] == "blocks":
                module.skip = self.strength


@experiment(
    "EXP-10",
    look=("train_loss_raw", "grad_global_norm", "block_gradient_norm", "waterfall_ratio", "residual_rms"),
    steps=(1, 10, 20, 30, 40),
)
def deep_waterfall() -> Mapping[str, Change]:
    """The gradient's way back through 28 blocks.

    A model as deep as Qwen3 0.6B, but 32 channels wide. In one arm each branch adds to the stream, as it should; in the
    other the stream is multiplied by 0.8 on its way around every branch, fifty-six times in all. A gradient that loses a fifth at
    every branch is smaller by five orders of magnitude when it comes to the first block.

    Look at one step, block by block: healthy blocks lie within a factor of ten, and the curve has no knee. The damped
    one is a straight line on a logarithmic axis. The norms in front of the branches make up for some of it, because what is
    small in the stream is large to a branch: so the loss still falls.
    """
    return {"healthy": Deep(), "stream x0.8": DeepDamped(0, 0.8)}
