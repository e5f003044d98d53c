import math
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SwitchTransformersConfig,
)
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func
from transformers.models.switch_transformers.modeling_switch_transformers import SwitchTransformersSparseMLP

from ckaudit.contract.schema.checkpoint import MoeStats
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.metrics.gradients import block_gradient_norm
from ckaudit.recorder import Recorder
from ckaudit.recorder.stats.moe import may_route, moe_scalars, moe_stats, routing_of, utilisation
from ckaudit.run.read import read_run
from ckaudit.validate import validate

EXPERTS, SIZE = 4, 8
EVERY = [Cadence(until=None, every=1)]


def random(*shape, seed=0):
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def slow(logits, k, capacity=None):
    """Counts, drops and the loss, token by token; capacity counts within each sequence (G, T, E)."""
    counts, dropped = [0] * logits.shape[-1], 0
    mean = np.zeros(logits.shape[-1])
    for sequence in logits.double().numpy():
        taken = [0] * logits.shape[-1]
        for token in sequence:
            weights = np.exp(token - token.max())
            mean += weights / weights.sum() / logits.shape[:-1].numel()
            for expert in np.argsort(-token)[:k]:
                counts[expert] += 1
                taken[expert] += 1
                dropped += capacity is not None and taken[expert] > capacity
    shares = np.array(counts) / sum(counts)
    return counts, dropped, logits.shape[-1] * (shares * mean).sum()


def of_parts(stats):
    """The loss again, from the parts that a checkpoint holds."""
    pairs = zip(stats.counts, stats.router_probability, strict=True)
    return len(stats.counts) * sum(count * probability for count, probability in pairs) / sum(stats.counts)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("capacity", [None, 2, 100])
def test_routing_agrees_with_a_slow_loop(k, capacity):
    logits = random(3, 7, EXPERTS)
    counts, dropped, loss = slow(logits, k, capacity)
    stats = moe_stats(logits, choices=k, capacity=capacity)
    assert stats.counts == counts
    assert (stats.routed, sum(stats.counts)) == (21 * k, 21 * k)
    assert stats.aux_loss == pytest.approx(loss, rel=1e-6)
    assert stats.router_probability == pytest.approx(logits.double().softmax(-1).mean((0, 1)).tolist(), rel=5.1e-4)
    assert of_parts(stats) == pytest.approx(loss, rel=5e-4)
    assert (stats.dropped == dropped) if capacity else not stats.dropped


def test_tokens_without_sequences_share_one_capacity():
    logits = random(21, EXPERTS)
    counts, dropped, _ = slow(logits[None], 1, 3)
    stats = moe_stats(logits, choices=1, capacity=3)
    assert (stats.counts, stats.dropped) == (counts, dropped)
    assert dropped > 0


def test_the_loss_is_one_where_all_experts_get_alike():
    even = torch.eye(EXPERTS).repeat(5, 1) * 1e-3
    assert moe_stats(even, choices=1).aux_loss == pytest.approx(1, rel=1e-3)
    collapsed = torch.tensor([50.0, 0.0, 0.0, 0.0]).repeat(20, 1)
    assert moe_stats(collapsed, choices=1).aux_loss == pytest.approx(EXPERTS)
    assert utilisation(moe_stats(collapsed, choices=1).counts) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_router_may_put_out_probabilities(dtype):
    logits = random(3, 7, EXPERTS)
    stats, wanted = moe_stats(logits.softmax(-1).to(dtype), choices=1), moe_stats(logits, choices=1)
    assert stats.aux_loss == pytest.approx(wanted.aux_loss, rel=1e-5 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("counts", [[3.0, 1.0, 0.0, 4.0], [5.0, 5.0], [1.0, 0.0]])
def test_utilisation_is_the_entropy_over_its_largest_value(counts):
    shares = np.array(counts) / sum(counts)
    entropy = -sum(share * math.log(share) for share in shares if share)
    assert utilisation(counts) == pytest.approx(entropy / math.log(len(counts)))
    assert math.isnan(utilisation([0.0, 0.0]))


def test_scalars_are_those_of_all_layers():
    layers = {
        "layer.0": MoeStats(counts=[5.0, 5.0], routed=10.0, dropped=1.0, aux_loss=1.0),
        "layer.1": MoeStats(counts=[9.0, 1.0], routed=10.0, dropped=2.0, aux_loss=1.5),
        "layer.2": MoeStats(counts=[10.0, 0.0], routed=10.0, aux_loss="NaN"),
    }
    assert moe_scalars(layers) == {"moe_drop_rate": 15.0, "moe_util_entropy": 0.0, "moe_load_balance_loss": 1.25}
    assert set(moe_scalars({}).values()) == {None}


@pytest.mark.parametrize("output", [None, "text", (), torch.ones(3), torch.ones(2, 3, dtype=torch.long), torch.ones(0, 4)])
def test_what_is_no_routing_is_not_recorded(output):
    assert moe_stats(output, choices=1) is None


def test_routing_without_a_known_number_of_choices_is_not_recorded():
    assert moe_stats(random(5, EXPERTS)) is None
    assert moe_stats(random(5, EXPERTS), choices=EXPERTS + 1) is None
    assert routing_of(random(5, EXPERTS)).chosen is None


def test_a_gate_that_widens_belongs_to_a_gated_mlp():
    model = nn.ModuleDict({"gate": nn.Linear(SIZE, 4 * SIZE), "router": nn.Linear(SIZE, EXPERTS), "one": nn.Linear(SIZE, 1)})
    assert [may_route(model, name) for name in model] == [False, True, False]


def seen(model, tokens, folder, read, **options):
    """Train two steps, and return what the second one's checkpoint says of experts and its scalars."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with Recorder(model, folder, optimizer=optimizer, cadence=EVERY, **options) as recorder:
        for _ in range(2):
            output = model(tokens) if not hasattr(model, "config") else model(input_ids=tokens, labels=tokens)
            loss = output.loss if hasattr(output, "loss") else output.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    assert recorder._guard.failures == 0
    assert not [finding for finding in validate([folder]).findings if finding.severity != "note"]
    found = read(folder, 2)
    return found.moe, found.scalars


class Captures:
    """Keeps what routers put out at the last forward pass."""

    def __init__(self, model, name):
        self.outputs = {}
        for layer, module in enumerate(m for n, m in model.named_modules() if n.endswith(name)):
            module.register_forward_hook(lambda _m, _i, output, layer=layer: self.outputs.update({f"layer.{layer}": output}))


SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
    "num_experts_per_tok": 2,
}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
MODELS = {
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**SIZES, num_local_experts=EXPERTS)),
    "qwen3": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, num_experts=EXPERTS, moe_intermediate_size=8, head_dim=8)),
    "deepseek": lambda: DeepseekV3ForCausalLM(
        DeepseekV3Config(
            **SIZES | {"num_key_value_heads": 2},
            **LATENT,
            n_routed_experts=EXPERTS,
            moe_intermediate_size=8,
            n_group=2,
            topk_group=1,
            first_k_dense_replace=0,
        )
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_transformer_of_experts_is_recorded(name, tmp_path, read):
    torch.manual_seed(0)
    model = MODELS[name]()
    routers = Captures(model, ".gate")
    tokens = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(1))
    moe, scalars = seen(model, tokens, tmp_path, read)
    assert set(moe) == {"layer.0", "layer.1"}
    for layer, (logits, _, chosen) in routers.outputs.items():
        assert moe[layer].counts == np.bincount(chosen.reshape(-1).numpy(), minlength=EXPERTS).tolist()
        assert (moe[layer].routed, bool(moe[layer].dropped)) == (64, False)
        if name != "deepseek":
            counts, _, loss = slow(logits.detach()[None], 2)
            assert moe[layer].counts == counts
            assert moe[layer].aux_loss == pytest.approx(loss, rel=1e-5)
            of_library = load_balancing_loss_func((logits.detach(),), EXPERTS, 2)
            assert moe[layer].aux_loss == pytest.approx(float(of_library) / 2, rel=1e-5)
        assert of_parts(moe[layer]) == pytest.approx(moe[layer].aux_loss, rel=5e-4)
    assert scalars["moe_util_entropy"] == pytest.approx(min(utilisation(stats.counts) for stats in moe.values()))
    assert "moe_drop_rate" not in scalars


def test_the_library_s_switch_layer_says_what_it_drops(tmp_path, read):
    torch.manual_seed(0)
    config = SwitchTransformersConfig(
        d_model=16, d_ff=8, num_experts=EXPERTS, expert_capacity=3, router_jitter_noise=0.0, dropout_rate=0.0
    )
    model = nn.Sequential(SwitchTransformersSparseMLP(config))
    with torch.no_grad():
        model[0].router.classifier.weight.normal_()
    routers = Captures(model, ".router")
    moe, scalars = seen(model, random(2, 9, 16), tmp_path, read)
    kept, _, logits = routers.outputs["layer.0"]
    counts, dropped, loss = slow(logits.detach(), 1, 3)
    (stats,) = moe.values()
    assert (stats.counts, stats.dropped, stats.routed) == (counts, dropped, 18)
    assert dropped == 18 - int(kept.sum()) > 0
    assert stats.aux_loss == pytest.approx(loss, rel=1e-5)
    assert scalars["moe_drop_rate"] == pytest.approx(100 * dropped / 18)


class Switch(nn.Module):
    """A layer of its own kind: a linear router, capacity over all tokens, what has no room passes by."""

    def __init__(self, capacity):
        super().__init__()
        self.router = nn.Linear(SIZE, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(EXPERTS))
        if capacity:
            self.expert_capacity = capacity

    def forward(self, x):
        tokens = x.reshape(-1, SIZE)
        probabilities = self.router(tokens).softmax(-1)
        weight, chosen = probabilities.max(-1)
        output = tokens.clone()
        self.passed_by = 0
        for number, expert in enumerate(self.experts):
            places = (chosen == number).nonzero()[:, 0]
            if not len(places):
                continue
            mine = places[: getattr(self, "expert_capacity", None)]
            self.passed_by += len(places) - len(mine)
            output = output.index_add(0, mine, weight[mine, None] * expert(tokens[mine]))
        return output.reshape(x.shape)


def test_a_switch_layer_of_one_s_own_is_recorded(tmp_path, read):
    torch.manual_seed(1)
    model = nn.Sequential(Switch(capacity=4), Switch(capacity=6))
    moe, _ = seen(model, random(3, 9, SIZE), tmp_path, read)
    assert [moe[f"layer.{layer}"].dropped for layer in range(2)] == [block.passed_by for block in model]
    assert model[0].passed_by > 0


def test_the_number_of_choices_may_be_given(tmp_path, read):
    torch.manual_seed(1)
    assert not seen(nn.Sequential(Switch(None)), random(3, 9, SIZE), tmp_path / "unknown", read)[0]
    moe, _ = seen(nn.Sequential(Switch(None)), random(3, 9, SIZE), tmp_path / "given", read, experts_per_token=1)
    assert sum(moe["layer.0"].counts) == moe["layer.0"].routed == 27
    assert not moe["layer.0"].dropped


def test_experts_without_a_token_leave_the_norm_of_their_block_known(tmp_path):
    torch.manual_seed(1)
    model = nn.Sequential(OrderedDict(layers=nn.Sequential(Switch(None))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = []
    with Recorder(model, tmp_path, optimizer=optimizer, cadence=EVERY) as recorder:
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(random(3, 9, SIZE)).square().mean()
            loss.backward()
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            expected.append(float(torch.cat([each.flatten() for each in gradients]).norm()))
            optimizer.step()
            recorder.step(loss)
            with torch.no_grad():
                model.layers[0].router.bias[0] = -100.0
    assert len(gradients) == len([*model.parameters()]) - 2
    run = read_run(tmp_path, reads=block_gradient_norm.paths)
    assert block_gradient_norm(run).values[:, 0].tolist() == pytest.approx(expected, rel=1e-5)
