import math

import numpy as np
import pytest
import torch
from torch import nn

from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks.forward_hooks import ForwardHooks
from ckaudit.recorder.hooks.sdpa_sample import fused_call, softmax_call, take
from ckaudit.recorder.hooks.vital_signs import DeadUnits, DeferredNumbers, VitalSigns, blocks
from ckaudit.recorder.setup import HookOptions
from ckaudit.recorder.stats.attention_stats import attention_stats
from tests.recorder.llama import llama


def observe(model, guard=None, **options):
    usual = {"modules": None, "probabilities": ("*.probabilities",), "logits": ("*.logits",), "queries": 64, "causal": None}
    rest = {"kv_heads": None, "routers": (), "experts_per_token": None}
    names = frozenset(name for name, _ in model.named_modules())
    return ForwardHooks(model, guard or Guard(), HookOptions(**usual | rest | {"hookable": names} | options))


def vitals_of(model, *inputs, dead=False, **keywords):
    guard = Guard()
    watching = observe(model, guard)
    watching.attach_vitals(dead=dead)
    model(*inputs, **keywords)
    found = watching.detach_vitals()
    assert guard.failures == 0
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    return found


def captured(model, wanted, *inputs, **keywords):
    """What the wanted modules put out, in float64."""
    outputs, handles = {}, []
    for name, module in model.named_modules():
        if wanted(name):
            take_first = lambda _m, _i, output, name=name: outputs.update(  # noqa: E731
                {name: (output[0] if isinstance(output, tuple) else output).detach().double().numpy()}
            )
            handles.append(module.register_forward_hook(take_first))
    model(*inputs, **keywords)
    for handle in handles:
        handle.remove()
    return outputs


def entropy_of(p):
    """Smallest mean over queries of entropy over log(i + 1), of all heads of the first sequence."""
    heads = [
        np.mean([-sum(x * math.log(x) for x in row if x > 0) / math.log(i + 1) for i, row in enumerate(head) if i])
        for head in p[0]
    ]
    return min(heads)


def test_vitals_of_a_model_that_shows_its_attention(tiny, batches):
    model, tokens = tiny(), batches(1)[0][0]
    out = captured(model, lambda name: name.endswith(("probabilities", "logits")) or name.count(".") == 1, tokens)
    found = vitals_of(model, tokens)
    logits = [out[f"blocks.{depth}.attn.logits"][0] for depth in (0, 1)]
    assert found.max_attn_logit == pytest.approx(max(layer[np.isfinite(layer)].max() for layer in logits), rel=1e-6)
    lowest = min(entropy_of(out[f"blocks.{depth}.attn.probabilities"]) for depth in (0, 1))
    assert found.min_normalized_entropy == pytest.approx(lowest, rel=1e-6)
    assert set(found.residual_rms_p50) == {"blocks.0", "blocks.1"}
    for name, p50 in found.residual_rms_p50.items():
        rms = np.sqrt((out[name].reshape(-1, 8) ** 2).mean(1))
        assert p50 == pytest.approx(np.percentile(rms, 50), rel=1e-6)
        assert found.residual_rms_p99[name] == pytest.approx(np.percentile(rms, 99), rel=1e-6)
    assert (found.dead_units, found.dead_heads, found.heads) == ({}, None, None)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_vitals_of_a_llama(attention):
    tokens = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(0))
    model = llama(attention=attention)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight *= 40
            layer.self_attn.k_proj.weight *= 40
    shown = llama(attention="eager")
    shown.load_state_dict(model.state_dict())
    with torch.no_grad():
        probabilities = shown(input_ids=tokens, output_attentions=True).attentions
    found = vitals_of(model, input_ids=tokens)
    assert found.min_normalized_entropy == pytest.approx(min(entropy_of(p.double().numpy()) for p in probabilities), rel=1e-4)
    assert set(found.residual_rms_p99) == {"model.layers.0", "model.layers.1"}
    assert found.max_attn_logit > 1


def test_more_than_a_sample_is_not_looked_at(monkeypatch):
    readings = DeferredNumbers()
    logits = torch.randn(4, 2, 100, 100, generator=torch.Generator().manual_seed(0))
    call = softmax_call(logits)
    readings.see_call(call)
    rows = np.arange(16) * 99 // 15
    assert readings.vitals(dead=False).max_attn_logit == pytest.approx(float(logits[0][:, rows].max()), rel=1e-6)
    assert take(call, queries=16, sequences=1).probabilities.shape == (1, 2, 16, 100)
    readings.see_block("block", torch.randn(4, 1000, 8))
    assert len(readings.norms["block"]) <= 256


def test_the_same_numbers_as_a_checkpoint_s():
    logits = torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(0)) * 4
    p = logits.masked_fill(torch.ones(12, 12, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
    stats, lowest = attention_stats(p)
    readings = DeferredNumbers()
    readings.see_probabilities(p, causal=None)
    found = readings.vitals(dead=True, dead_above=0.5)
    assert found.min_normalized_entropy == pytest.approx(lowest, rel=1e-6)
    assert (found.dead_heads, found.heads) == (sum(share > 0.5 for share in stats.sharp_share_per_head), 3)


def test_a_head_that_looks_at_one_key_is_dead(tiny, batches):
    model, tokens = tiny(), batches(1)[0][0]
    assert vitals_of(model, tokens, dead=True).dead_heads == 0
    sharp = torch.eye(8).expand(1, 2, 8, 8).clone()
    sharp[:, 1] = torch.ones(8, 8).tril() / torch.arange(1, 9)[:, None]
    readings = DeferredNumbers()
    readings.see_probabilities(sharp, causal=True)
    found = readings.vitals(dead=True)
    assert (found.dead_heads, found.heads) == (1, 2)


def test_dead_units_are_those_that_no_token_moves(tiny, batches):
    model, tokens = tiny(), batches(1)[0][0]
    with torch.no_grad():
        model.blocks[0].mlp[0].bias[:3] = -100
    hidden = captured(model, lambda name: name.endswith("mlp.1"), tokens)
    found = vitals_of(model, tokens, dead=True)
    expected = {name: DeadUnits(int((np.abs(h).max((0, 1)) < 1e-3).sum()), h.shape[-1]) for name, h in hidden.items()}
    assert found.dead_units == expected
    assert found.dead_units["blocks.0.mlp.1"].dead >= 3


def test_what_was_not_seen_is_not_there():
    assert vitals_of(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2), dead=True) == VitalSigns()
    readings = DeferredNumbers()
    readings.see_probabilities(torch.ones(1, 2, 1, 1), causal=True)
    assert readings.vitals(dead=True) == VitalSigns()
    q = torch.ones(1, 2, 4, 8)
    readings.see_call(fused_call((q, q, q, torch.zeros(4, 4, dtype=torch.bool)), {}))
    assert readings.vitals(dead=True) == VitalSigns()


def test_nan_is_recorded_as_nan():
    logits = torch.randn(1, 2, 9, 9, generator=torch.Generator().manual_seed(0))
    logits[0, 0] = torch.nan
    readings = DeferredNumbers()
    readings.see_call(softmax_call(logits))
    readings.see_block("block", torch.full((1, 4, 8), torch.nan))
    found = readings.vitals(dead=False)
    assert math.isnan(found.min_normalized_entropy)
    assert math.isfinite(found.max_attn_logit)
    assert math.isnan(found.residual_rms_p50["block"])
    readings = DeferredNumbers()
    readings.see_call(softmax_call(logits[:, :1]))
    assert math.isnan(readings.vitals(dead=False).max_attn_logit)


def test_blocks_are_the_outermost_numbered_modules():
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2))
    model = nn.ModuleDict({"layers": nn.ModuleList([layer, nn.Linear(2, 2)])})
    assert set(blocks(dict(model.named_modules()))) == {"layers.0"}


def test_outputs_and_random_numbers_are_those_without(tiny, batches):
    tokens = batches(1)[0][0]
    model, state = tiny(), torch.get_rng_state()
    expected = model(tokens)
    watching = observe(model)
    watching.attach_vitals(dead=True)
    assert torch.equal(model(tokens), expected)
    watching.detach_vitals()
    assert torch.equal(torch.get_rng_state(), state)


def test_a_checkpoint_after_vitals_holds_nothing_of_them(tiny, batches):
    model, tokens = tiny(), batches(1)[0][0]
    watching = observe(model)
    watching.attach_vitals()
    model(tokens)
    watching.attach("none", frozenset())
    assert not watching.detach().attention
    assert watching.detach_vitals() == VitalSigns()
