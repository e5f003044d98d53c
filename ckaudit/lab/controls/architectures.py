"""Models of unusual shapes, or with unusual parts."""

from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Optimizer, Plan
from ckaudit.lab.specs import control

if TYPE_CHECKING:
    from torch import nn


@control("cnn_classifier", family="cnn")
class CnnClassifier(Change):
    """Convolutions with batch norm tell shapes apart.

    It looks ill because the training loss comes close to zero, and because batch norm holds numbers that no gradient trains.
    """


@control("llama", family="llama")
class Llama(Change):
    """A Llama of `transformers`, its attention fused.

    It looks ill because modules have other names, keys are shared between queries, and no module outputs probabilities.
    """


@control("lstm", family="lstm")
class Lstm(Change):
    """Two layers of LSTM.

    It looks ill because there are no blocks, no attention and no norms, and hidden states saturate: that is what gates do.
    """


@control("mlp_classifier", family="mlp")
class MlpClassifier(Change):
    """Linear layers with ReLU tell points apart.

    It looks ill because there are no tokens and some of the units are silent for most inputs.
    """


@control("sparse_moe", family="moe", expected=("dropped_tokens",))
class SparseMoe(Change):
    """Each token goes to one of several experts, and a small loss keeps the router fair (Fedus et al. 2022).

    It looks ill because experts are used unevenly at first, a few tokens find theirs full, and each expert's weights get
    gradients from its own tokens only.
    """


@control("sgd_momentum_cnn", family="cnn")
class SgdMomentumCnn(Change):
    """A convolutional network is trained by SGD with momentum, at fifty times the learning rate of Adam.

    It looks ill because the learning rate is high and updates of tensors differ by orders: SGD moves each by its gradient.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the optimizer."""
        return replace(plan, optimizer=Optimizer(kind="sgd", peak=0.05, betas=(0.9, 0.0), weight_decay=5e-4, clip=None))


@control("deep_narrow")
class DeepNarrow(Change):
    """The model has twelve blocks of half the usual width, with larger initial weights because it is narrow.

    It looks ill because gradients differ more between blocks and each block moves little: that is depth, not illness.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make it deep and narrow."""
        model = cast("Gpt", plan.model)
        return replace(
            plan, model=replace(model, depth=12, width=model.width // 2, hidden=model.hidden // 2, init_std=3 * model.init_std)
        )


@control("fused_attention")
class FusedAttention(Change):
    """Attention is one fused operation.

    It looks ill because no module outputs probabilities: attention is recomputed for some queries to record it.
    """

    def plan(self, plan: Plan) -> Plan:
        """Fuse attention."""
        return replace(plan, model=replace(plan.model, fused=True))


@control("gqa_qk_norm")
class GqaQkNorm(Change):
    """Two query heads share each key head, and queries and keys are normed per head.

    It looks ill because key and value matrices are half as large as their neighbours and have smaller gradients, and because
    attention logits cannot grow.
    """

    def plan(self, plan: Plan) -> Plan:
        """Share keys and norm."""
        model = cast("Gpt", plan.model)
        return replace(plan, model=replace(model, kv_heads=model.heads // 2, qk_norm=True))


@control("layer_norm_learned")
class LayerNormLearned(Change):
    """Norms are layer norms with gain and bias, and positions a learned table.

    It looks ill because biases start at exactly zero, so that their first updates are infinitely large beside them, and late
    positions get small gradients.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose norm and positions."""
        return replace(plan, model=replace(plan.model, norm="layer", positions="learned"))


@control("sharp_heads_by_design")
class SharpHeadsByDesign(Change):
    """The products of queries and keys are scaled four times as high as usual, from the first step on.

    It looks ill because attention logits are large and heads become sharp early: the model is trained with this scale, and
    its loss is no worse.
    """

    def model(self, model: "nn.Module") -> None:
        """Raise the scale of every block."""
        for block in model.blocks:  # type: ignore[union-attr]
            block.attn.scale *= 4


@control("weight_tying")
class WeightTying(Change):
    """Embedding and head share one matrix, and initial weights are twice as large, as the head needs them.

    It looks ill because the head is no tensor of its own, and the embedding moves at every step, rare tokens too.
    """

    def plan(self, plan: Plan) -> Plan:
        """Tie embedding and head."""
        model = cast("Gpt", plan.model)
        return replace(plan, model=replace(model, tied=True, init_std=2 * model.init_std))


@control("init_x5_that_helps")
class InitX5ThatHelps(Change):
    """All matrices start five times as large as GPT-2's.

    It looks ill because weights and outputs are far from the usual scale: at this width, where the usual scale is small, it
    trains faster than the usual one.
    """

    def plan(self, plan: Plan) -> Plan:
        """Enlarge the initial weights."""
        model = cast("Gpt", plan.model)
        return replace(plan, model=replace(model, init_std=5 * model.init_std))
