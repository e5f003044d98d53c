"""Experiments on the structure of a model: its attention, and its depth."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import experiment

if TYPE_CHECKING:
    from torch import nn

    from ckaudit.lab.training import Training


# EXP-4: one projection is multiplied by zero.
class ZeroedAttention(Change):
    """The output of attention in block 1 is multiplied by zero."""

    def model(self, model: "nn.Module") -> None:
        """Set the gain."""
        attention: Any = model.get_submodule("blocks.1.attn")
        attention.gain = 0.0


class ZeroWeight(Change):
    """The output projection of attention in block 1 starts as zeros, and learns."""

    def model(self, model: "nn.Module") -> None:
        """Overwrite the weight."""
        from torch.nn.init import zeros_

        zeros_(model.get_parameter("blocks.1.attn.out.weight"))


@experiment(
    "EXP-4",
    look=("train_loss_raw", "gradient_norm/blocks.1.*", "relative_movement/blocks.1.attn.*", "moving_share", "waterfall_ratio"),
)
def zeroed_projection() -> Mapping[str, Change]:
    """One projection is cut off: what lies before it gets no gradient.

    In one arm the output of attention in block 1 is multiplied by zero, for good. Its four matrices and the norm in front of them
    get a gradient of exactly zero; the residual stream carries the rest, so that the loss falls nearly as well. In the other arm
    only the weight of the output projection starts as zeros: at the first step queries, keys and values get nothing, the
    projection itself does, and from the second step on all of them learn. The first is a fault, the second a common
    initialization.

    Look at the gradient norms of block 1, tensor by tensor, at step 10, and at the relative movement at the end. The weights
    without a gradient still shrink a little, by weight decay, all by the same share. The projection that started as zeros is
    missing there: nothing can be related to a norm of zero.
    """
    return {"healthy": Change(), "cut off for good": ZeroedAttention(), "starts as zeros": ZeroWeight()}


# EXP-8: the entropy of attention heads over time.
class RopeSwigluModel(Change):
    """A model with rotary positions and a gated MLP, trained twice as long: its heads find what to look at."""

    def plan(self, plan: Plan) -> Plan:
        """Change the model and the length."""
        assert isinstance(plan.model, Gpt)
        model = replace(plan.model, positions="rope", activation="swiglu", hidden=128)
        return replace(plan, model=model, steps=2 * plan.steps)


class AttentionScale(RopeSwigluModel):
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
    return {"healthy": RopeSwigluModel(), "logits x100": AttentionScale(0, 100), "logits x0.01": AttentionScale(0, 0.01)}


# EXP-9: what heads look at, and which do the same.
class CopiedHeads(RopeSwigluModel):
    """All heads of block 1 start as copies of its first one."""

    def model(self, model: "nn.Module") -> None:
        """Copy the rows of queries, keys and values, and the columns that read them."""
        attention = model.get_submodule("blocks.1.attn")
        for name in ("q", "k", "v"):
            weight = attention.get_parameter(f"{name}.weight").data.unflatten(0, (attention.heads, -1))  # (H, D/H, D)
            weight[1:] = weight[:1]
        weight = attention.get_parameter("out.weight").data.unflatten(1, (attention.heads, -1))  # (D, H, D/H)
        weight[:, 1:] = weight[:, :1]


@experiment(
    "EXP-9",
    look=("train_loss_raw", "head_similarity", "head_kind_share", "attention.*.sampled_qk_grid_32x32_per_head"),
    steps=(10, 50, 100, 150, 200, 250),
)
def head_redundancy() -> Mapping[str, Change]:
    """What heads look at, and which of them do the same.

    In a healthy training the heads of a layer start alike, because all are even, and grow apart. In the other arm the four
    heads of block 1 start as copies of one. Their gradients are the same too, so that they stay copies for ever: four
    heads at the price of four, worth one.

    Look at the similarity of each head to its nearest neighbour: it starts near 1 in both arms, and only its course tells them
    apart. The maps below show the first sequence of the last step, queries downwards and keys to the right: a line beside the
    diagonal is a head of neighbours, a column at the left one of the first token.
    """
    return {"healthy": RopeSwigluModel(), "copied heads": CopiedHeads()}


# EXP-10: the gradient's way through 28 blocks.
class Qwen3ShapedModel(Change):
    """A narrow model of the shape of Qwen3 0.6B: 28 blocks, grouped queries, rotary positions, gated MLP, tied head."""

    def plan(self, plan: Plan) -> Plan:
        """Replace the model, and train for 40 steps on half batches."""
        model = Gpt(
            width=32, depth=28, heads=4, kv_heads=2, hidden=96, positions="rope", activation="swiglu", qk_norm=True, tied=True
        )
        data = replace(plan.data, batch_size=8, held_rows=32)
        return replace(plan, model=model, data=data, steps=40)


class DeepDamped(Qwen3ShapedModel):
    """The same, with the residual connection around every branch multiplied by `strength`."""

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
    return {"healthy": Qwen3ShapedModel(), "stream x0.8": DeepDamped(0, 0.8)}


# EXP-12: the norm of queries and keys, or the rotation, is taken away in the middle.
class RopeQkNormModel(Change):
    """A model with rotary positions and normed queries and keys."""

    def plan(self, plan: Plan) -> Plan:
        """Turn both on."""
        assert isinstance(plan.model, Gpt)
        return replace(plan, model=replace(plan.model, positions="rope", qk_norm=True))

    def updated(self, training: "Training") -> None:
        """Perturb every layer of attention after step `onset`."""
        if training.step == self.onset:
            for name, module in training.model.named_modules():
                if name.endswith(".attn"):
                    self.perturb(module)

    def perturb(self, attention: Any) -> None:
        """Change a layer; the default does nothing."""


class Unnormed(RopeQkNormModel):
    """Queries and keys are no longer normed."""

    def perturb(self, attention: Any) -> None:
        """Let them through as they are."""
        attention.q_norm.forward = attention.k_norm.forward = lambda x: x


class Unrotated(RopeQkNormModel):
    """Queries and keys are no longer rotated, so that nothing tells positions apart but the mask."""

    def perturb(self, attention: Any) -> None:
        """Stop the rotation."""
        attention.rotates = False


@experiment(
    "EXP-12",
    look=("train_loss_raw", "val_loss", "grad_global_norm", "max_attn_logit", "min_normalized_entropy", "head_kind_share"),
    steps=(50, 75, 76, 80, 90, 100, 125),
)
def load_bearing_paths() -> Mapping[str, Change]:
    """Norm of queries and keys, and rotation: which of them the model leans on.

    After step 75 one of the two is taken away in every layer, and the training goes on. The jump of the loss at step 76
    says how much the model leaned on that path; what remains of it at the end, how much it needs it.

    Without the norm logits are on another scale at once, and entropies with them: the knowledge is still there, at the wrong
    temperature. Without the rotation the model no longer knows where a token stands, so that heads of the
    previous character lose what they look at.
    """
    return {"both kept": RopeQkNormModel(75), "norm taken away": Unnormed(75), "rotation stopped": Unrotated(75)}
