"""Models of other shapes, and models with parts that are frozen on purpose."""

from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Optimizer, Plan
from ckaudit.lab.pretrained import pretrain
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

    It looks ill because modules have other names, keys are shared between queries, and no module puts out probabilities.
    """


@control("lstm", family="lstm")
class Lstm(Change):
    """Two layers of LSTM.

    It looks ill because there are no blocks, no attention and no norms, and hidden states saturate: that is what gates do.
    """


@control("mlp_classifier", family="mlp")
class MlpClassifier(Change):
    """Linear layers with ReLU tell points apart.

    It looks ill because there are no tokens and part of the units is silent on most inputs.
    """


@control("sparse_moe", family="moe", expected=("dropped_tokens",))
class SparseMoe(Change):
    """Each token goes to one of several experts, and a small loss keeps the router fair (Fedus et al. 2022).

    It looks ill because experts are used unevenly at first, a few tokens find theirs full, and each expert's weights have a
    gradient from its own tokens only.
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
    """The model has twelve blocks of half the usual width, with larger initial weights as it is narrow.

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

    It looks ill because no module puts out probabilities: what is recorded of attention is computed again for
    some queries.
    """

    def plan(self, plan: Plan) -> Plan:
        """Fuse it."""
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
        """Tie them."""
        model = cast("Gpt", plan.model)
        return replace(plan, model=replace(model, tied=True, init_std=2 * model.init_std))


@control("init_x5_that_helps")
class InitX5ThatHelps(Change):
    """All matrices start five times as large as GPT-2's.

    It looks ill because weights and outputs are far from the usual scale: at this width, where the usual scale is small, it
    trains faster than the usual one.
    """

    def plan(self, plan: Plan) -> Plan:
        """Widen the initial weights."""
        model = cast("Gpt", plan.model)
        return replace(plan, model=replace(model, init_std=5 * model.init_std))


# Parts of a model that are frozen on purpose.
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
