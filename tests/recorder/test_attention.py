import math

import numpy as np
import pytest
import torch
from msgspec import UNSET

from ckaudit.contract.io.grids import unpack
from ckaudit.recorder.stats import attention_stats as attention
from ckaudit.recorder.stats.attention_stats import attention_stats, four_dimensional, max_logits


def random(batch=3, heads=4, queries=9, keys=9, *, causal=True, sharpness=3.0, dtype=torch.float32):
    logits = sharpness * torch.randn(batch, heads, queries, keys, generator=torch.Generator().manual_seed(3))
    if causal:
        logits = logits.masked_fill(torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1), -torch.inf)
    return logits.softmax(-1).to(dtype)


def slow_entropy(row):
    return -sum(p * math.log(p) for p in row if p > 0)


def slow(p, visible):
    """Every per-head mean by its definition, query by query."""
    batch, heads, queries, _ = p.shape
    found = {"entropy": [], "normalized": [], "sharp": []}
    for h in range(heads):
        rows = [(slow_entropy(p[b, h, q]), visible(q)) for b in range(batch) for q in range(queries)]
        found["entropy"].append(np.mean([entropy for entropy, _ in rows]))
        found["normalized"].append(np.mean([entropy / math.log(seen) for entropy, seen in rows if seen >= 2]))
        found["sharp"].append(np.mean([entropy < math.log(2) for entropy, seen in rows if seen >= 3]))
    return found


@pytest.mark.parametrize("chunk", [1, 2**22])
@pytest.mark.parametrize(("causal", "queries", "keys"), [(True, 9, 9), (False, 9, 9), (True, 4, 9), (False, 5, 8)])
def test_entropies_agree_with_their_definition(causal, queries, keys, chunk, monkeypatch):
    monkeypatch.setattr(attention, "CHUNK", chunk)
    tensor = random(queries=queries, keys=keys, causal=causal)
    stats, lowest = attention_stats(tensor, causal=causal)
    expected = slow(tensor.double().numpy(), (lambda q: q + 1 + keys - queries) if causal else (lambda q: keys))
    np.testing.assert_allclose(stats.entropy_per_head, expected["entropy"], rtol=1e-6)
    np.testing.assert_allclose(stats.normalized_entropy_per_head, expected["normalized"], rtol=1e-6)
    np.testing.assert_allclose(stats.sharp_share_per_head, expected["sharp"], rtol=1e-6)
    np.testing.assert_allclose(lowest, min(expected["normalized"]), rtol=1e-6)
    assert (stats.heads, stats.keys, stats.causal) == (4, keys, causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_maxima_mass_and_similarity_agree_with_numpy(dtype):
    tensor = random(causal=False, dtype=dtype)
    p, (stats, _) = tensor.double().numpy(), attention_stats(tensor)
    np.testing.assert_allclose(stats.max_attn_per_head, p.max(axis=(0, 2, 3)), rtol=1e-6)
    mass = [np.mean([p[b, h, q, q + 1 :].sum() for b in range(3) for q in range(9)]) for h in range(4)]
    np.testing.assert_allclose(stats.upper_triangle_mass_per_head, mass, rtol=1e-6)
    flat = p.transpose(1, 0, 2, 3).reshape(4, -1)
    cosine = flat @ flat.T / np.outer(np.linalg.norm(flat, axis=1), np.linalg.norm(flat, axis=1))
    np.fill_diagonal(cosine, -1)
    np.testing.assert_allclose(stats.nearest_similarity_per_head, cosine.max(1), rtol=1e-6)


def test_a_mask_is_recognised_by_what_later_keys_get():
    assert attention_stats(random(causal=True))[0].causal is True
    assert not attention_stats(random(causal=False))[0].causal


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 7)])
def test_where_no_key_is_later_nothing_is_said_of_later_keys(queries, keys):
    stats, _ = attention_stats(random(causal=False, queries=queries, keys=keys))
    assert stats.upper_triangle_mass_per_head is UNSET
    assert stats.causal is not True


def test_a_leak_shows_where_causality_is_promised():
    stats, _ = attention_stats(random(causal=False), causal=True)
    assert stats.causal is True
    assert min(stats.upper_triangle_mass_per_head) > 0.2


def test_uniform_attention_has_normalized_entropy_one():
    p = torch.ones(1, 1, 6, 6).tril()
    stats, lowest = attention_stats(p / p.sum(-1, keepdim=True))
    np.testing.assert_allclose(stats.normalized_entropy_per_head, [1.0], rtol=1e-6)
    assert stats.sharp_share_per_head == [0.0]
    assert lowest == pytest.approx(1.0)


def test_a_single_query_with_a_single_key_has_no_normalized_entropy():
    stats, lowest = attention_stats(torch.ones(2, 3, 1, 1), causal=True)
    assert lowest is None
    assert not stats.normalized_entropy_per_head
    assert not stats.sharp_share_per_head
    assert stats.entropy_per_head == [0.0, 0.0, 0.0]


def test_one_head_has_no_neighbour():
    assert not attention_stats(random(heads=1))[0].nearest_similarity_per_head


def test_a_nan_in_one_head_is_recorded_as_nan_there():
    tensor = random()
    tensor[1, 2, 5, 0] = float("nan")
    stats, lowest = attention_stats(tensor, causal=True)
    for values in (
        stats.entropy_per_head,
        stats.normalized_entropy_per_head,
        stats.sharp_share_per_head,
        stats.max_attn_per_head,
    ):
        assert [value == "NaN" for value in values] == [False, False, True, False]
    assert math.isnan(lowest)


def follow(place, queries=12, share=0.9):
    p = torch.zeros(1, 1, queries, queries)
    for q in range(queries):
        p[0, 0, q, : q + 1] = (1 - share) / (q + 1)
        p[0, 0, q, max(0, place(q))] += share
    return p


def test_kinds_are_told_apart():
    heads = torch.cat(
        [follow(lambda q: 0), follow(lambda q: q), follow(lambda q: q - 1), follow(lambda q: (7 * q * q) % (q + 1))], 1
    )
    even = torch.ones(1, 1, 12, 12).tril()
    stats, _ = attention_stats(torch.cat([heads, even / even.sum(-1, keepdim=True)], 1))
    assert stats.kind_per_head == ["first_token", "diagonal", "positional", "content", "uniform"]


def test_grids_hold_the_first_sequence():
    tensor = random(queries=40, keys=40)
    places = np.arange(32) * 40 // 32
    expected = tensor[0].double().numpy()[:, places][:, :, places]
    np.testing.assert_allclose(
        unpack(attention_stats(tensor, grid="nested")[0].sampled_qk_grid_32x32_per_head), expected, rtol=5e-4
    )
    np.testing.assert_allclose(
        unpack(attention_stats(tensor, grid="q8")[0].sampled_qk_grid_32x32_per_head), expected, atol=1 / 500
    )
    assert not attention_stats(tensor)[0].sampled_qk_grid_32x32_per_head


def test_the_largest_logit_is_the_largest_finite_one():
    logits = torch.tensor([[[[1.0, -torch.inf], [5.0, 2.0]], [[torch.nan, torch.inf], [-3.0, -4.0]], [[-torch.inf] * 2] * 2]])
    found = max_logits(logits)
    assert found[:2] == [5.0, -3.0]
    assert math.isnan(found[2])


def test_probabilities_are_found_among_other_outputs():
    p = random()
    assert torch.equal(four_dimensional((torch.ones(2), p)), p)
    assert four_dimensional(torch.ones(3, 3)) is None
    assert four_dimensional(None) is None
