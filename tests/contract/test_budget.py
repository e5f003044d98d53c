"""The plan of a checkpoint: turns, landmarks and sizes, on the shape of a model with 310 tensors and 448 heads."""

import numpy as np
import pytest
import zstandard
from msgspec import UNSET

from ckaudit.contract.analysis import Checkpoint
from ckaudit.contract.behaviour import ActivationStats, AttentionStats
from ckaudit.contract.budget import Part, due, landmarks, plan, tensor_part
from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.encode import encode
from ckaudit.contract.grids import encode_grid, encode_grids
from ckaudit.contract.left_out import keep
from ckaudit.contract.tensors import DeltaStats
from ckaudit.recorder.activation_stats import activation_stats
from ckaudit.recorder.attention import attention_stats
from ckaudit.recorder.digits import shortest
from ckaudit.recorder.gradient_stats import gradient_stats
from ckaudit.recorder.names import depth_of
from ckaudit.recorder.weights import weight_stats

SOURCE = np.random.default_rng(0)
BLOCK = {
    "self_attn.q_proj": (2048, 1024), "self_attn.k_proj": (1024, 1024), "self_attn.v_proj": (1024, 1024),
    "self_attn.o_proj": (1024, 2048), "self_attn.q_norm": (128,), "self_attn.k_norm": (128,), "mlp.gate_proj": (3072, 1024),
    "mlp.up_proj": (3072, 1024), "mlp.down_proj": (1024, 3072), "input_layernorm": (1024,), "post_attention_layernorm": (1024,),
}  # fmt: skip
SHAPES = {"model.embed_tokens.weight": (151_936, 1024)}
SHAPES |= {f"model.layers.{i}.{name}.weight": shape for i in range(28) for name, shape in BLOCK.items()}
SHAPES |= {"model.norm.weight": (1024,)}
TENSORS = [tensor_part(name, shape, depth_of(name)) for name, shape in SHAPES.items()]
LAYERS = [Part(f"layer.{i}", i, 16) for i in range(28)]
MATRICES = {part.name for part in TENSORS if part.grids}


def small(shape, scale):
    """A tensor with the statistics of one of this shape, small enough to be measured at once."""
    return SOURCE.normal(size=shape if len(shape) == 1 else (64, 64)).astype(np.float32) * np.float32(scale)


def like(stats, shape):
    stats.numel, stats.dtype = int(np.prod(shape)), "bfloat16"
    stats.sampled = 4096 if stats.numel > 2**17 else UNSET
    return stats


def whole(*, weight_grids=True, gradient_grids=True, qk_grids=True, modules=0):
    """A checkpoint of the model with random statistics and every grid that is asked for."""
    checkpoint = Checkpoint(schema_version="ck.analysis.v1", step=500, loss=2.3456789, weights={}, gradients={}, weight_deltas={})
    for name, shape in SHAPES.items():
        weight = checkpoint.weights[name] = like(weight_stats(small(shape, 0.02)), shape)
        gradient = checkpoint.gradients[name] = like(gradient_stats(small(shape, 1.3e-5)), shape)
        weight.shape = list(shape)
        norms = SOURCE.random(3) * (1e-3, 1e-4, 0.1)
        checkpoint.weight_deltas[name] = DeltaStats(**dict(zip(("norm", "relative", "moved"), map(shortest, norms), strict=True)))
        if name in MATRICES:
            weight.sampled_grid_32x32 = encode_grid(SOURCE.normal(size=(32, 32)) * 0.02, "q8") if weight_grids else UNSET
            gradient.sampled_grid_32x32 = encode_grid(SOURCE.normal(size=(32, 32)) * 1e-5, "q8") if gradient_grids else UNSET
    checkpoint.attention = {layer.name: heads(qk_grids=qk_grids) for layer in LAYERS}
    sample = activation_stats(SOURCE.normal(size=(2, 64, 64)).astype(np.float32), count_dead=True)
    checkpoint.activations = {f"model.layers.{i}": sample for i in range(modules)} or UNSET
    return checkpoint


def heads(*, qk_grids):
    logits = np.where(np.tri(64, dtype=bool), SOURCE.normal(size=(1, 16, 64, 64)), -np.inf)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    stats, _ = attention_stats(p, grid="q8" if qk_grids else None)
    stats.max_logit_per_head, stats.kv_heads = [shortest(value) for value in logits.max((0, 2, 3)).tolist()], 8
    return stats


def grids_in(checkpoint):
    tensors = [*checkpoint.weights.values(), *checkpoint.gradients.values()]
    single = sum(stats.sampled_grid_32x32 is not UNSET for stats in tensors)
    return single + sum(16 for stats in checkpoint.attention.values() if stats.sampled_qk_grid_32x32_per_head is not UNSET)


def written(ordinal, budget_kb, suffix, *, last=False, modules=0, **grids):
    """The checkpoint that a plan leaves, its bytes, and the plan."""
    checkpoint = whole(modules=modules, **grids)
    named = [Part(name, depth_of(name)) for name in checkpoint.activations or {}]
    chosen = plan(TENSORS, LAYERS, named, ordinal, budget_kb, suffix=suffix, last=last)
    keep(checkpoint, chosen, TENSORS, LAYERS)
    return checkpoint, encode(checkpoint, suffix), chosen


def test_the_table_is_that_of_the_model():
    assert (len(TENSORS), len(MATRICES), sum(layer.grids for layer in LAYERS)) == (310, 197, 448)
    assert sum(int(np.prod(shape)) for shape in SHAPES.values()) == 596_049_920


@pytest.mark.parametrize(("ordinal", "last"), [(0, False), (1, False), (5, False), (17, False), (28, True)])
def test_packed_files_keep_the_budget_with_all_statistics(ordinal, last):
    checkpoint, data, chosen = written(ordinal, 200, ".json.zst", last=last, modules=28)
    assert len(data) <= 200_000
    assert grids_in(checkpoint) >= 12
    assert all(stats.histogram is not UNSET and stats.percentiles is not UNSET for stats in checkpoint.weights.values())
    assert all(stats.histogram is not UNSET and stats.percentiles is not UNSET for stats in checkpoint.gradients.values())
    assert 0.85 <= chosen.bytes / len(data) <= 1.4  # half of a causal grid is zero, which packs better than expected
    assert check_checkpoint(zstandard.ZstdDecompressor().decompress(data), "x").document is not None


def test_plain_files_keep_every_number_and_every_grid_that_is_due():
    whole_size = len(encode(whole(weight_grids=False, gradient_grids=False, qk_grids=False)))
    for ordinal in (1, 5, 12):
        checkpoint, data, chosen = written(ordinal, 200, ".json")
        assert grids_in(checkpoint) >= 12
        assert all(stats.mean is not UNSET and stats.frobenius_norm is not UNSET for stats in checkpoint.weights.values())
        assert len(data) < 250_000 < whole_size
        assert 0.85 <= chosen.bytes / len(data) <= 1.2
        assert "weights.*.histogram" in checkpoint.left_out
        assert check_checkpoint(data, "x").document is not None


def test_every_grid_fits_six_hundred_kilobytes_and_gradients_eight_hundred():
    checkpoint, data, _ = written(3, None, ".json.zst", gradient_grids=False)
    assert grids_in(checkpoint) == 197 + 448
    assert len(data) <= 600_000
    checkpoint, data, chosen = written(3, None, ".json.zst")
    assert grids_in(checkpoint) == 2 * 197 + 448
    assert len(data) <= 800_000
    assert checkpoint.left_out is UNSET
    assert 0.85 <= chosen.bytes / len(data) <= 1.4  # half of a causal grid is zero, which packs better than expected


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.zst"])
@pytest.mark.parametrize("budget_kb", [200, 300, 450])
def test_a_larger_budget_never_holds_less(budget_kb, suffix):
    smaller, larger = (plan(TENSORS, LAYERS, [], 4, kb, suffix=suffix) for kb in (budget_kb, 2 * budget_kb))
    assert all(smaller.chosen[kind] <= larger.chosen[kind] for kind in smaller.chosen)
    assert larger.bytes <= 2 * budget_kb * 1000


@pytest.mark.parametrize("blocks", [1, 2, 5, 28, 39, 80, 200])
@pytest.mark.parametrize("budget_kb", [10, 200])
def test_every_matrix_and_head_is_seen_in_forty_checkpoints(blocks, budget_kb):
    tensors = [Part("embed", None, 1), *(Part(f"blocks.{i}.w", i, 1) for i in range(blocks)), Part("head", None, 1)]
    layers = [Part(f"layer.{i}", i, 4) for i in range(blocks)]
    for start in (0, 7, 93):
        seen = [plan(tensors, layers, [], ordinal, budget_kb).chosen for ordinal in range(start, start + 40)]
        assert frozenset().union(*(chosen["weights"] for chosen in seen)) == {part.name for part in tensors}
        assert frozenset().union(*(chosen["attention"] for chosen in seen)) == {part.name for part in layers}


def test_landmarks_are_due_first_last_and_every_fifth_time():
    parts = [Part("embed", None, 1), *(Part(f"{i}", i, 7) for i in range(9))]
    assert landmarks([part.depth for part in parts]) == [None, 0, 8, 4]
    for ordinal in (0, 5, 10, 45):
        assert due(parts, ordinal).depths >= {None, 0, 4, 8}
    assert due(parts, 7, last=True).depths >= {None, 0, 4, 8}
    assert due(parts, 7).depths == {6, 7}


def test_turns_depend_on_nothing_but_the_ordinal_and_the_model():
    assert plan(TENSORS, LAYERS, [], 11, 200) == plan(TENSORS, LAYERS, [], 11, 200)
    assert plan(TENSORS, LAYERS, [], 11, 200).chosen["weights"] != plan(TENSORS, LAYERS, [], 12, 200).chosen["weights"]


@pytest.mark.parametrize("ordinal", [0, 1, 14, 28])
def test_unknown_heads_never_hide_a_layer(ordinal):
    unknown = [Part(layer.name, layer.depth, 1) for layer in LAYERS]
    assert due([*TENSORS, *unknown], ordinal).depths >= due([*TENSORS, *LAYERS], ordinal).depths


def test_a_model_has_no_more_grids_than_matrices():
    chosen = plan([Part("a", None), Part("b", None, 1)], [], [], 3, 200).chosen
    assert (chosen["weights"], chosen["distributions"]) == ({"b"}, {"a", "b"})
    assert plan([], [], [], 3, 200).chosen["weights"] == frozenset()


def test_small_matrices_and_no_grids_count_as_what_they_are():
    assert tensor_part("conv", (8, 3, 5, 5), None).cells == 8 * 32
    assert tensor_part("empty", (0, 4), None).grids == 0
    nothing = plan(TENSORS, LAYERS, [], 0, None, encoding="none")
    assert not nothing.chosen["weights"] | nothing.chosen["attention"] | nothing.chosen["gradients"]


@pytest.mark.parametrize(
    ("encoding", "suffix"), [("q8", ".json"), ("q8", ".json.gz"), ("q8", ".json.zst"), ("nested", ".json.zst")]
)
def test_sizes_are_near_what_is_written(encoding, suffix):
    """The constants of `Sizes` against files of random statistics; packing differs between real and random grids."""
    checkpoint = whole(modules=28)
    for stats in (*checkpoint.weights.values(), *checkpoint.gradients.values()):
        if stats.sampled_grid_32x32 is not UNSET:
            stats.sampled_grid_32x32 = encode_grid(SOURCE.normal(size=(32, 32)) * 0.02, encoding)
    for stats in checkpoint.attention.values():
        stats.sampled_qk_grid_32x32_per_head = encode_grids(SOURCE.random(size=(16, 32, 32)), encoding)
    named = [Part(name, depth_of(name)) for name in checkpoint.activations]
    expected = plan(TENSORS, LAYERS, named, 0, None, encoding=encoding, suffix=suffix).bytes
    assert 0.85 <= expected / len(encode(checkpoint, suffix)) <= 1.2


def test_what_is_left_out_is_named_once_and_only_then():
    checkpoint = Checkpoint(
        schema_version="ck.analysis.v1",
        step=1,
        activations={"a": ActivationStats(histogram=weight_stats(np.ones(3)).histogram)},
        attention={"layer.0": AttentionStats(heads=1)},
        weights={"w": weight_stats(np.eye(4), grid="q8"), "v": weight_stats(np.ones(4))},
    )
    tensors, layers = [Part("w", 0, 1), Part("v", 0)], [Part("layer.0", 0, 1)]
    keep(checkpoint, plan(tensors, layers, [Part("a", 0)], 0, 200), tensors, layers)
    assert checkpoint.left_out is UNSET
    keep(checkpoint, plan(tensors, layers, [Part("a", 0)], 0, 0), tensors, layers)
    assert checkpoint.left_out == ["weights.*.histogram", "weights.*.percentiles", "activations.*.histogram"]
    assert checkpoint.weights["w"].sampled_grid_32x32 is not UNSET
