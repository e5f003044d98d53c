import copy
import logging
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention as bound_early
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from ckaudit.contract.io.grids import sample_indices, unpack
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.hooks import attention_hooks, forward_hooks, sdpa_sample
from ckaudit.recorder.hooks.forward_hooks import ForwardHooks
from ckaudit.recorder.hooks.sdpa_sample import fused_call, largest_logits, sample_stats, sampled, softmax_call, take
from ckaudit.recorder.setup import HookOptions
from ckaudit.validate import validate
from tests.loops import for_each
from tests.recorder.conftest import Attention, TinyGPT
from tests.recorder.llama import llama

EVERY = [Cadence(until=None, every=1)]
BATCH, HEADS, SIZE = 2, 4, 8


def call_stats(call, queries, grid=None, **options):
    return sample_stats(take(call, queries=queries, with_cells=grid is not None), grid=grid, **options)


def tensors(queries, keys, heads=HEADS, kv_heads=HEADS, dtype=torch.float32):
    source = torch.Generator().manual_seed(queries)
    shapes = (BATCH, heads, queries, SIZE), (BATCH, kv_heads, keys, SIZE), (BATCH, kv_heads, keys, SIZE)
    return [2 * torch.randn(*shape, generator=source).to(dtype) for shape in shapes]


def window(queries, keys, width=5):
    distance = torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)
    return (distance >= 0) & (distance < width)


def padded(queries, keys):
    """A causal mask in which the first three keys of the second sequence are padding."""
    mask = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries).repeat(BATCH, 1, 1, 1)
    mask[1, ..., :3] = False
    return mask


def added(mask, value=-torch.inf, dtype=torch.float32):
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, value)


def alibi(queries, keys):
    slopes = 2.0 ** -torch.arange(1, HEADS + 1)
    distance = (torch.arange(queries)[:, None] - torch.arange(keys)).clamp(min=0)
    return -slopes[:, None, None] * distance + added(torch.ones(queries, keys, dtype=torch.bool).tril())


CALLS = {
    "plain": (9, 9, {}),
    "cross": (6, 11, {}),
    "causal": (9, 9, {"is_causal": True}),
    "causal of fewer queries": (5, 9, {"is_causal": True}),
    "scaled": (9, 9, {"is_causal": True, "scale": 0.3}),
    "window": (12, 12, {"attn_mask": window(12, 12)}),
    "window after a cache": (4, 12, {"attn_mask": window(4, 12)}),
    "padded": (9, 9, {"attn_mask": padded(9, 9)}),
    "padded, added": (9, 9, {"attn_mask": added(padded(9, 9), torch.finfo(torch.float32).min)}),
    "biased": (9, 9, {"attn_mask": alibi(9, 9)}),
    "long": (300, 300, {"is_causal": True}),
    "long window": (300, 300, {"attn_mask": window(300, 300, 40)}),
}


def by_definition(query, key, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """Probabilities, logits and allowed keys in float64, as the documentation of the function has them."""
    q, k = query.double().numpy(), key.double().numpy()
    if enable_gqa:
        k = k.repeat(q.shape[1] // k.shape[1], axis=1)
    logits = np.einsum("bhqd,bhkd->bhqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    allowed = np.ones(logits.shape, bool)
    if is_causal:
        allowed &= np.tril(np.ones(logits.shape[-2:], bool))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        allowed &= attn_mask.numpy()
    elif attn_mask is not None:
        allowed &= attn_mask.numpy() > -1e30
        logits = logits + np.where(allowed, attn_mask.numpy(), 0)
    seen = np.where(allowed, logits, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(seen - seen.max(-1, keepdims=True))
        p = weights / weights.sum(-1, keepdims=True)
    return np.where(allowed.any(-1, keepdims=True), p, 0), seen, allowed


def expected(p, logits, allowed, rows, offset):
    """Every number of the layer, head by head and query by query."""
    found = {name: [] for name in ("entropy", "normalized", "sharp", "later", "top", "logit")}
    for h in range(p.shape[1]):
        places = [(b, q) for b in range(p.shape[0]) for q in rows if allowed[b, h, q].any()]
        entropy = {(b, q): -sum(x * math.log(x) for x in p[b, h, q] if x > 0) for b, q in places}
        count = {(b, q): allowed[b, h, q].sum() for b, q in places}
        found["entropy"].append(np.mean([entropy[at] for at in places]))
        found["normalized"].append(np.mean([entropy[at] / math.log(count[at]) for at in places if count[at] >= 2]))
        found["sharp"].append(np.mean([entropy[at] < math.log(2) for at in places if count[at] >= 3]))
        found["later"].append(np.mean([p[b, h, q, max(0, q + offset + 1) :].sum() for b, q in places]))
        found["top"].append(max(p[b, h, q].max() for b, q in places))
        found["logit"].append(max(logits[b, h, q].max() for b, q in places))
    return found


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kv_heads", [HEADS, 2])
def test_statistics_agree_with_their_definition(name, kv_heads):
    queries, keys, options = CALLS[name]
    options = options | ({"enable_gqa": True} if kv_heads < HEADS else {})
    q, k, v = tensors(queries, keys, kv_heads=kv_heads)
    p, logits, allowed = by_definition(q, k, **options)
    rows, offset = sampled(queries, 64), 0 if options.get("is_causal") else keys - queries
    wanted = expected(p, logits, allowed, rows, offset)
    stats, lowest = call_stats(fused_call((q, k, v), options), queries=64)
    for field, numbers in {
        "entropy_per_head": "entropy",
        "normalized_entropy_per_head": "normalized",
        "sharp_share_per_head": "sharp",
        "upper_triangle_mass_per_head": "later",
        "max_attn_per_head": "top",
    }.items():
        np.testing.assert_allclose(getattr(stats, field), wanted[numbers], rtol=2e-5, atol=1e-6, err_msg=field)
    assert lowest == pytest.approx(min(wanted["normalized"]), rel=1e-5)
    assert (stats.heads, stats.keys) == (HEADS, allowed[:, :, rows].sum(-1).max())
    assert (stats.kv_heads or HEADS) == kv_heads
    assert (stats.causal is True) == (not any(wanted["later"]))


def largest_by_definition(logits):
    """Return the largest finite logit of each head, one by one."""
    found = []
    for head in logits.swapaxes(0, 1):
        top = -math.inf
        for value in head.flatten().tolist():
            top = value if math.isfinite(value) and value > top else top
        found.append(top)
    return found


@for_each("name", CALLS)
@for_each("kv_heads", [HEADS, 2])
@for_each("largest", [1, 200, 2**24])
def test_the_largest_logit_is_that_of_all_sequences_queries_and_keys(name, kv_heads, largest):
    queries, keys, options = CALLS[name]
    options = options | ({"enable_gqa": True} if kv_heads < HEADS else {})
    q, k, v = tensors(queries, keys, kv_heads=kv_heads)
    _, logits, _ = by_definition(q, k, **options)
    found = largest_logits(fused_call((q, k, v), options), largest=largest)
    np.testing.assert_allclose(found, largest_by_definition(logits), rtol=2e-5)


def test_the_largest_logit_of_a_softmax_is_that_of_what_may_be_seen():
    logits = torch.randn(5, HEADS, 7, 7, generator=torch.Generator().manual_seed(0))
    logits = logits.masked_fill(torch.ones(7, 7).triu(1).bool(), -1e9)
    logits[4, 1, 6, 2], logits[3, 0, 2, 1], logits[2, 2] = 50.0, torch.inf, torch.nan
    found = largest_logits(softmax_call(logits), largest=60)
    assert found.tolist() == pytest.approx(largest_by_definition(logits.numpy()))
    assert found[1] == 50.0


def test_the_largest_logit_is_computed_in_blocks(monkeypatch):
    q, k, v = tensors(64, 64)
    sizes = []
    products = sdpa_sample._products

    def watched(query, key):
        sizes.append(math.prod((*query.shape[:3], key.shape[2])))
        return products(query, key)

    monkeypatch.setattr(sdpa_sample, "_products", watched)
    largest_logits(fused_call((q, k, v), {}), largest=1000)
    assert max(sizes) <= 1000
    assert sum(sizes) == BATCH * HEADS * 64 * 64


def test_heads_that_may_see_nothing_have_no_largest_logit():
    q, k, v = tensors(4, 4)
    mask = torch.ones(BATCH, HEADS, 4, 4, dtype=torch.bool)
    mask[:, 2] = False
    found = largest_logits(fused_call((q, k, v), {"attn_mask": mask}))
    assert [math.isnan(value) for value in found] == [False, False, True, False]


def test_a_large_logit_of_a_late_sequence_is_recorded(batches):
    model, tokens = fused_model(), batches(1)[0][0]
    assert len(tokens) > 2
    with_all, first_two = (attention_of(model, some).attention["layer.0"] for some in (tokens, tokens[:2]))
    rest = attention_of(model, tokens[2:]).attention["layer.0"]
    pairs = zip(first_two.max_logit_per_head, rest.max_logit_per_head, strict=True)
    assert with_all.max_logit_per_head == pytest.approx([max(pair) for pair in pairs], rel=1e-6)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_give_the_output_of_the_kernel(name, dtype):
    queries, keys, options = CALLS[name]
    q, k, v = tensors(queries, keys, dtype=dtype)
    if "attn_mask" in options and options["attn_mask"].dtype != torch.bool:
        options = {"attn_mask": options["attn_mask"].clamp(min=torch.finfo(dtype).min).to(dtype)}
    sample = take(fused_call((q, k, v), options), queries=64)
    output = functional.scaled_dot_product_attention(q, k, v, **options)[:, :, sampled(queries, 64)]
    seeing = (sample.queries.seen > 0)[..., None]
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close((sample.probabilities @ v.float()) * seeing, output.float() * seeing, rtol=0, atol=tolerance)


def test_three_dimensions_are_one_head():
    q, k, v = (x[:, 0] for x in tensors(9, 9))
    stats, _ = call_stats(fused_call((q, k, v), {"is_causal": True}), queries=64)
    alone, _ = call_stats(fused_call((q[:, None], k[:, None], v[:, None]), {"is_causal": True}), queries=64)
    assert stats == alone
    assert stats.heads == 1


def test_the_first_and_the_last_query_are_always_in_the_sample():
    for size in range(1, 300):
        places = sampled(size, 64)
        assert (places[0], places[-1], len(places)) == (0, size - 1, min(size, 64))
        steps = np.diff(places)
        assert size == 1 or (steps.min() >= 1 and steps.max() - steps.min() <= 1)


def test_large_attention_is_sampled_less():
    q, k, v = tensors(64, 64)
    call = fused_call((q, k, v), {})
    assert take(call, queries=64).probabilities.shape == (2, HEADS, 64, 64)
    assert take(call, queries=64, largest=64 * 64 * HEADS).probabilities.shape == (1, HEADS, 64, 64)
    assert take(call, queries=64, largest=10 * 64 * HEADS).probabilities.shape == (1, HEADS, 10, 64)


def test_queries_that_see_nothing_are_left_out():
    q, k, v = tensors(6, 6)
    mask = torch.ones(BATCH, 1, 6, 6, dtype=torch.bool).tril()
    mask[1, :, :2] = False
    p, logits, allowed = by_definition(q, k, mask)
    stats, _ = call_stats(fused_call((q, k, v), {"attn_mask": mask}), queries=64)
    np.testing.assert_allclose(stats.entropy_per_head, expected(p, logits, allowed, range(6), 0)["entropy"], rtol=1e-5)
    assert call_stats(fused_call((q, k, v), {"attn_mask": mask & False}), queries=64) is None


def test_a_leak_shows_where_causality_is_promised():
    q, k, v = tensors(9, 9)
    stats, _ = call_stats(fused_call((q, k, v), {}), queries=64, causal=True)
    assert stats.causal is True
    assert min(stats.upper_triangle_mass_per_head) > 0.1
    assert max(stats.normalized_entropy_per_head) <= 1


def test_a_nan_in_one_head_is_recorded_as_nan_there():
    q, k, v = tensors(9, 9)
    q[0, 2, 3, 1] = torch.nan
    stats, lowest = call_stats(fused_call((q, k, v), {"is_causal": True}), queries=64)
    assert [value == "NaN" for value in stats.entropy_per_head] == [False, False, True, False]
    assert [value == "NaN" for value in stats.max_attn_per_head] == [False, False, True, False]
    assert math.isnan(lowest)


def test_grids_have_their_own_queries():
    q, k, v = tensors(300, 300)
    p, _, _ = by_definition(q, k, is_causal=True)
    rows = sample_indices(300)
    stats, _ = call_stats(fused_call((q, k, v), {"is_causal": True}), queries=64, grid="nested")
    found = unpack(stats.sampled_qk_grid_32x32_per_head)
    np.testing.assert_allclose(found, p[0][:, rows[:, None], rows], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("value", [-torch.inf, -1e9, -1e4, "smallest"])
def test_a_softmax_tells_which_keys_were_masked(value, dtype):
    q, k, v = tensors(9, 9)
    value = torch.finfo(dtype).min if value == "smallest" else max(value, torch.finfo(dtype).min) if value > -1e30 else value
    logits = (q @ k.transpose(-1, -2) / SIZE**0.5 + added(window(9, 9), value)).to(dtype)
    sdpa_sample, _ = call_stats(fused_call((q, k, v), {"attn_mask": window(9, 9)}), queries=64)
    shown, _ = call_stats(softmax_call(logits), queries=64)
    np.testing.assert_allclose(shown.normalized_entropy_per_head, sdpa_sample.normalized_entropy_per_head, rtol=1e-2)
    assert (shown.keys, shown.causal) == (sdpa_sample.keys, sdpa_sample.causal) == (5, True)


@pytest.mark.parametrize("value", [-torch.inf, -1e9, -1e4])
def test_a_mask_forbids_whatever_it_adds(value):
    q, k, v = tensors(9, 9)
    told = call_stats(fused_call((q, k, v), {"attn_mask": window(9, 9)}), queries=64)
    assert call_stats(fused_call((q, k, v), {"attn_mask": added(window(9, 9), value)}), queries=64) == told


def test_a_sink_beside_the_keys_is_not_taken_for_a_later_key():
    assert softmax_call(torch.zeros(2, HEADS, 9, 10)) is None
    assert softmax_call(torch.zeros(2, HEADS, 9, 9)) is not None


class Fused(Attention):
    """The attention of `TinyGPT` by way of the kernel, however it is called."""

    attend = staticmethod(functional.scaled_dot_product_attention)
    dropout = 0.0

    def forward(self, x):
        batch, length, size = x.shape
        q, k, v = (layer(x).view(batch, length, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = self.attend(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        return self.o(mixed.transpose(1, 2).reshape(batch, length, size))


def by_hand(q, k, v, *, is_causal, dropout_p):
    later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
    logits = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf)
    return functional.dropout(torch.softmax(logits, dim=-1), dropout_p) @ v


WAYS = {
    "functional": functional.scaled_dot_product_attention,
    "bound early": bound_early,
    "builtin": torch._C._nn.scaled_dot_product_attention,
    "by hand": by_hand,
}


def fused_model(way=bound_early, dropout=0.0, **kwargs):
    torch.manual_seed(0)
    model = TinyGPT(**kwargs)
    for block in model.blocks:
        block.attn.__class__ = Fused
        block.attn.attend, block.attn.dropout = way, dropout
        del block.attn.probabilities, block.attn.logits
    return model


def observe(model, guard=None, **options):
    usual = {"modules": (), "probabilities": ("*.probabilities",), "logits": ("*.logits",), "queries": 64, "causal": None}
    rest = {"kv_heads": None, "routers": (), "experts_per_token": None}
    names = frozenset(name for name, _ in model.named_modules())
    return ForwardHooks(model, guard or Guard(), HookOptions(**usual | rest | {"hookable": names} | options))


def attention_of(model, *inputs, **options):
    guard = Guard()
    watching = observe(model, guard, **options)
    watching.attach("q8", frozenset({0, 1}))
    model(*inputs)
    seen = watching.detach()
    assert guard.failures == 0
    return seen


@pytest.mark.parametrize("way", WAYS)
def test_whichever_name_a_model_calls_it_is_that_of_the_probabilities_path(way, tiny, batches):
    tokens = batches(1)[0][0][:2]
    shown = attention_of(tiny(), tokens)
    found = attention_of(fused_model(WAYS[way]), tokens)
    assert set(found.attention) == set(shown.attention) == {"layer.0", "layer.1"}
    for layer, stats in shown.attention.items():
        for field in ("entropy", "normalized_entropy", "sharp_share", "max_attn", "max_logit", "nearest_similarity"):
            name = f"{field}_per_head"
            np.testing.assert_allclose(getattr(found.attention[layer], name), getattr(stats, name), rtol=1e-5, err_msg=name)
        same = ("kind_per_head", "heads", "keys", "causal")
        assert [getattr(found.attention[layer], name) for name in same] == [getattr(stats, name) for name in same]
        grids = [unpack(each.attention[layer].sampled_qk_grid_32x32_per_head) for each in (found, shown)]
        np.testing.assert_allclose(*grids, atol=2 / 255)
    np.testing.assert_allclose(found.entropies, shown.entropies, rtol=1e-5)


def test_a_model_that_shows_its_probabilities_is_not_seen_twice(tiny, batches, monkeypatch):
    monkeypatch.setattr(forward_hooks, "take", lambda *_, **__: pytest.fail("seen twice"))
    assert set(attention_of(tiny(), batches(1)[0][0]).attention) == {"layer.0", "layer.1"}


class Owner(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, HEADS, batch_first=True, **options)

    def forward(self, x, **options):
        return self.attention(x, x, x, attn_mask=torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), **options)[0]


@pytest.mark.parametrize("need_weights", [True, False])
def test_torch_s_own_attention_is_seen(need_weights):
    torch.manual_seed(0)
    model, x = Owner(), torch.randn(2, 9, 16)
    q, k, _ = (
        part.view(2, 9, HEADS, 4).transpose(1, 2)
        for part in functional.linear(x, model.attention.in_proj_weight, model.attention.in_proj_bias).detach().chunk(3, -1)
    )
    p, logits, allowed = by_definition(q, k, is_causal=True)
    original = functional.scaled_dot_product_attention, functional.softmax
    watching = observe(model)
    watching.attach("none", frozenset())
    output = model(x, need_weights=need_weights)
    stats = watching.detach().attention["attention"]
    np.testing.assert_allclose(stats.entropy_per_head, expected(p, logits, allowed, range(9), 0)["entropy"], rtol=1e-5)
    assert stats.causal is True
    assert (functional.scaled_dot_product_attention, functional.softmax) == original
    assert torch.equal(output, model(x, need_weights=need_weights))


def test_frozen_attention_keeps_the_kernel_that_torch_chooses():
    torch.manual_seed(0)
    model, x = nn.Sequential(Owner(), nn.Linear(16, 16)), torch.randn(2, 9, 16)
    model[0].requires_grad_(False).eval()
    output = model(x)
    watching = observe(model)
    watching.attach("none", frozenset())
    assert torch.equal(model(x), output)
    watching.detach()


@pytest.mark.parametrize("way", [bound_early, by_hand])
def test_outputs_and_random_numbers_are_those_without(way, batches, loss_of):
    def train(watched):
        model = fused_model(way, dropout=0.3)
        torch.manual_seed(5)
        watching = observe(model)
        for batch in batches(3):
            if watched:
                watching.attach("q8", frozenset({0}))
            loss_of(model, batch).backward()
        watching.detach()
        return [p.grad for p in model.parameters()], torch.get_rng_state()

    (bare, state), (watched, other) = train(watched=False), train(watched=True)
    assert all(torch.equal(one, two) for one, two in zip(bare, watched, strict=True))
    assert torch.equal(state, other)


def test_only_the_first_call_with_gradients_counts(batches):
    model, (first, second) = fused_model(), [tokens for tokens, _ in batches(2)]
    expected_stats = attention_of(model, first).attention
    watching = observe(model)
    watching.attach("q8", frozenset({0, 1}))
    with torch.no_grad():
        model(second)
    model(first)
    model(second)
    assert watching.detach().attention == expected_stats


def test_layers_are_expected_with_their_heads():
    model = llama()
    expected_parts = [(part.name, part.depth, part.grids) for part in observe(model, probabilities=()).expected]
    assert expected_parts == [("model.layers.0.self_attn", 0, 4), ("model.layers.1.self_attn", 1, 4)]
    assert [part.grids for part in observe(fused_model()).expected] == [2, 2]
    assert [part.name for part in observe(Owner()).expected] == ["attention"]
    assert not observe(model, queries=0).expected


def test_two_observers_of_one_model_do_not_disturb_each_other(batches):
    model, tokens = fused_model(), batches(1)[0][0]
    one, two = observe(model), observe(model)
    one.attach("none", frozenset())
    two.attach("none", frozenset())
    model(tokens)
    assert torch.overrides._get_current_function_mode() is None
    assert one.detach().attention == two.detach().attention != {}


class Checkpointed(nn.Module):
    def __init__(self, model, *, reentrant):
        super().__init__()
        self.model, self.reentrant = model, reentrant

    def forward(self, tokens):
        x = self.model.embed(tokens)
        for block in self.model.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.model.head(self.model.norm(x))


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_recomputed_forward_pass_counts_once(reentrant, batches, loss_of, monkeypatch):
    batch, looks = batches(1)[0], []
    plain = attention_of(fused_model(), batch[0])
    monkeypatch.setattr(forward_hooks, "take", lambda *args, **kwargs: looks.append(1) or take(*args, **kwargs))
    model = Checkpointed(fused_model(), reentrant=reentrant)
    watching = observe(model)
    watching.attach("q8", frozenset({0, 1}))
    loss_of(model, batch).backward()
    assert watching.detach().attention == plain.attention
    assert len(looks) == 2
    assert torch.overrides._get_current_function_mode() is None


class Failing(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.inner, self.error = fused_model(), error

    def forward(self, tokens):
        self.inner(tokens)
        raise self.error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_forward_pass_that_fails_leaves_no_mode_behind(error, batches):
    model, tokens = Failing(error), batches(1)[0][0]
    watching = observe(model)
    watching.attach("none", frozenset())
    with pytest.raises(error):
        model(tokens)
    if error is RuntimeError:
        assert torch.overrides._get_current_function_mode() is None
    watching.detach()
    assert torch.overrides._get_current_function_mode() is None
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


class Noting(nn.Module):
    def forward(self, x):
        self.mode = torch.overrides._get_current_function_mode()
        return x


def test_the_mode_is_there_only_while_something_is_due(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), Noting())
    with Recorder(model, tmp_path, cadence=[Cadence(until=None, every=2)]) as recorder:
        for due in (False, True, False):
            loss = model(torch.ones(1, 2)).sum()
            assert (model[1].mode is not None) == due
            recorder.step(loss)


class Passing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Leaving(nn.Module):
    def __init__(self):
        super().__init__()
        self.mode = Passing()

    def forward(self, x):
        self.mode.__enter__()
        return x


def test_a_mode_that_the_model_leaves_open_stays():
    model = Leaving()
    watching = observe(model)
    watching.attach("none", frozenset())
    model(torch.ones(1))
    assert torch.overrides._get_current_function_mode() is model.mode
    model.mode.__exit__(None, None, None)
    watching.detach()
    assert torch.overrides._get_current_function_mode() is None


def test_a_watch_that_fails_leaves_the_forward_pass_alone(batches, monkeypatch):
    model, tokens, guard = fused_model(by_hand), batches(1)[0][0], Guard()
    output = model(tokens)
    watching = observe(model, guard)
    monkeypatch.setattr(attention_hooks, "_is_attention", lambda *_: 1 / 0)
    watching.attach("none", frozenset())
    assert torch.equal(model(tokens), output)
    assert not watching.detach().attention
    assert guard.failures == 2


def test_a_look_that_fails_leaves_the_forward_pass_alone(batches, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "ckaudit.recorder")
    monkeypatch.setattr(forward_hooks, "take", lambda *_, **__: 1 / 0)
    model, tokens, guard = fused_model(), batches(1)[0][0], Guard()
    expected_output = model(tokens)
    watching = observe(model, guard)
    watching.attach("none", frozenset())
    assert torch.equal(model(tokens), expected_output)
    assert not watching.detach().attention
    assert guard.failures == 2


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor")
@pytest.mark.parametrize(
    ("compiled", "backend"), [("model", "eager"), ("model", "aot_eager"), ("block", "aot_eager"), ("function", "eager")]
)
def test_compiled_models_give_what_they_gave(compiled, backend, train, tmp_path):
    def make():
        torch._dynamo.reset()
        way = torch.compile(by_hand, backend=backend, fullgraph=True) if compiled == "function" else bound_early
        model = fused_model(way)
        if compiled == "block":
            model.blocks[0].compile(backend=backend, fullgraph=True)
        return torch.compile(model, backend=backend) if compiled == "model" else model

    bare, recorded = make(), make()
    train(bare, 4)
    recorder = train(recorded, 4, tmp_path, cadence=[Cadence(until=None, every=2)])
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), recorded.parameters(), strict=True))
    assert recorder._guard.failures == 0


@pytest.mark.filterwarnings("ignore:`torch.jit.*deprecated")
def test_a_part_in_torchscript_leaves_the_rest_observed(tmp_path, batches, train, read):
    model = fused_model()
    model.blocks[1].mlp = torch.jit.script(model.blocks[1].mlp)
    recorder = train(model, 2, tmp_path, cadence=EVERY)
    assert recorder._guard.failures == 0
    found = read(tmp_path, 2)
    assert set(found.attention) == {"layer.0", "layer.1"}
    assert "blocks.0.mlp.1" in found.activations


@pytest.mark.parametrize(("queries", "layers"), [(0, 0), (3, 2)])
def test_how_many_queries_are_looked_at_is_an_argument(queries, layers, tmp_path, batches, train, read):
    train(fused_model(), 1, tmp_path, cadence=EVERY, attention_queries=queries)
    found = read(tmp_path, 1).attention or {}
    assert len(found) == layers
    # Queries 0, 3 and 7 see 1, 4 and 8 keys.
    assert all(stats.entropy_per_head[0] <= (math.log(4) + math.log(8)) / 3 for stats in found.values())


def test_half_precision_around_a_call_does_not_reach_the_numbers():
    q, k, v = tensors(9, 9)
    plain = call_stats(fused_call((q, k, v), {"is_causal": True}), queries=64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call_stats(fused_call((q, k, v), {"is_causal": True}), queries=64) == plain


class Linear(Fused):
    """Attention without a softmax over keys."""

    attend = staticmethod(lambda q, k, v, **_: q.relu() @ (k.relu().transpose(-1, -2) @ v))


def test_attention_that_cannot_be_seen_is_said_once(batches, train, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "ckaudit.recorder")
    model = fused_model()
    model.blocks[1].attn.__class__ = Linear
    model.blocks[1].attn.attend = Linear.attend
    train(model, 3, tmp_path, cadence=EVERY)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == "attention in blocks.1.attn is computed out of sight and not recorded"


class Pair(torch.nn.Module):
    """Two networks that compare what they make of an input, as of MoCo and BYOL: their names are those of projections."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.o = (Convolutions() for _ in range(3))

    def forward(self, x):
        return (self.q(x) * self.k(x)).sum() + self.o(x).sum()


class Convolutions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.first(x).relu().mean((2, 3)))


class Inner(torch.nn.Module):
    """What the attention of some libraries leaves the computation to."""

    def forward(self, q, k, v):
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v


class Outer(torch.nn.Module):
    """A layer of attention whose parts alone tell so, within a block whose class speaks of attention too."""

    def __init__(self, inner):
        super().__init__()
        self.to_q, self.to_k, self.to_v = (torch.nn.Linear(8, 8) for _ in range(3))
        self.attend = inner

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (2, 4)).transpose(1, 2) for layer in (self.to_q, self.to_k, self.to_v))
        return self.attend(q, k, v).transpose(1, 2).flatten(2)


class AttentionBlock(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.layers = torch.nn.ModuleList([Outer(inner)])

    def forward(self, x):
        return self.layers[0](x)


class Unseen(torch.nn.Module):
    def forward(self, q, k, v):
        return q.relu() @ (k.relu().transpose(-1, -2) @ v)


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (Pair(), (2, 1, 6, 6), ""),
        (torch.nn.Sequential(AttentionBlock(Inner())), (2, 5, 8), ""),
        (torch.nn.Sequential(AttentionBlock(Unseen())), (2, 5, 8), "attention in 0.layers.0 is computed out of sight"),
        (
            torch.nn.Sequential(*(AttentionBlock(Unseen()) for _ in range(2))),
            (2, 5, 8),
            "attention in 2 modules, such as 0.layers.0, is computed out of sight",
        ),
    ],
)
def test_only_of_attention_is_said_that_it_is_out_of_sight(model, shape, message, tmp_path, caplog):
    caplog.set_level(logging.WARNING, "ckaudit.recorder")
    with Recorder(model, tmp_path, cadence=EVERY) as recorder:
        for _ in range(2):
            model(torch.randn(shape)).sum().backward()
            recorder.step(1.0)
    assert caplog.text.count("out of sight") == bool(message)
    assert message in caplog.text


def test_a_copied_or_saved_model_leaves_the_observer_behind(batches):
    model, tokens = fused_model(), batches(1)[0][0]
    watching = observe(model)
    watching.attach("none", frozenset())
    copied = copy.deepcopy(model)
    assert torch.equal(copied(tokens), fused_model()(tokens))
    assert not watching.detach().attention


def test_a_llama_is_recorded_from_end_to_end(tmp_path, read):
    model = llama(attention="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(0, 64, (3, 2, 16), generator=torch.Generator().manual_seed(1))
    captured = []

    def attend(*args, **kwargs):
        captured.append((args, kwargs))
        return bound_early(*args, **kwargs)

    with Recorder(model, tmp_path, optimizer=optimizer, cadence=EVERY, vocabulary=64, sequence_length=16) as recorder:
        for step, batch in enumerate(tokens):
            if step == 2:
                with pytest.MonkeyPatch.context() as patch:
                    # The model asks for the name each time; what it is given there still calls the kernel.
                    patch.setattr(functional, "scaled_dot_product_attention", attend)
                    loss = model(input_ids=batch, labels=batch).loss
            else:
                loss = model(input_ids=batch, labels=batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.step(loss, batch=batch)
    assert recorder._guard.failures == 0
    for layer, (args, kwargs) in enumerate(captured):
        stats = read(tmp_path, 3).attention[f"layer.{layer}"]
        q, k = (x.detach() for x in args[:2])
        options = {name: kwargs.get(name) for name in ("attn_mask", "is_causal", "scale", "enable_gqa")}
        p, logits, allowed = by_definition(q, k, **options)
        wanted = expected(p, logits, allowed, range(16), 0)
        np.testing.assert_allclose(stats.entropy_per_head, wanted["entropy"], rtol=1e-5)
        np.testing.assert_allclose(stats.max_logit_per_head, wanted["logit"], rtol=1e-4)
        assert (stats.heads, stats.kv_heads, stats.keys, stats.causal) == (4, 2, 16, True)
    assert not validate([tmp_path]).findings


@pytest.mark.parametrize("mask_shape", [None, (12, 12), (1, 12, 12), (HEADS, 12, 12), (3, 1, 12, 12), (3, HEADS, 12, 12)])
def test_what_a_model_writes_after_its_attention_is_not_seen(mask_shape):
    source = torch.Generator().manual_seed(3)
    q, k = (torch.randn(3, HEADS, 12, SIZE, generator=source) for _ in range(2))
    mask = None if mask_shape is None else torch.rand(mask_shape, generator=source).log()
    call = fused_call((q, k, k), {"attn_mask": mask})
    before, kept = call_stats(call, queries=5, grid="nested"), call.first_sequences(2).copied()
    for written in filter(torch.is_tensor, (q, k, mask)):
        written.fill_(7.0)
    assert call_stats(kept, queries=5, grid="nested") == before
    assert call_stats(call, queries=5, grid="nested") != before
