"""The plan of a checkpoint: turns, landmarks and sizes, on the shape of a model with 310 tensors and 448 heads."""

import math
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zstandard
from msgspec import UNSET

from ckaudit.contract.budget import apply_plan, bytes_for_black_box, grids_due, landmarks, plan, suffix_for
from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.codec import encode
from ckaudit.contract.io.grids import encode_grid, encode_grids, unpack
from ckaudit.contract.schema.checkpoint import ActivationStats, AttentionStats, Checkpoint
from ckaudit.contract.sizes import SIZES, SizedPart, tensor_part, with_extra_numbers
from ckaudit.recorder.model.budget_planner import newest_that_fit
from ckaudit.recorder.stats.float32_rounding import shortest
from ckaudit.recorder.stats.tensor_stats import weight_stats

sys.path.insert(0, str(Path(__file__).parents[2] / "fixtures"))

from checkpoints.qwen import LAYERS, MATRICES, OBSERVED, SHAPES, TENSORS, encoded, grids_in, history

SOURCE = np.random.default_rng(0)
GRID, QK_GRID = "sampled_grid_32x32", "sampled_qk_grid_32x32_per_head"


def whole():
    """A checkpoint of the model with every statistic and every grid."""
    return msgspec.json.decode(encoded(), type=Checkpoint)


def without(document, *sections):
    """Take the grids of sections away."""
    for section in sections:
        for stats in getattr(document, section).values():
            setattr(stats, QK_GRID if section == "attention" else GRID, UNSET)
    return document


def written(ordinal, budget_kb, suffix, *, last=False, document=None):
    """The checkpoint that a plan leaves, its bytes, and the plan."""
    document = document or whole()
    besides = 0 if document.history is UNSET else len(encode(document.history))
    chosen = plan(TENSORS, LAYERS, OBSERVED, ordinal, budget_kb, suffix=suffix, last=last, besides=besides)
    apply_plan(document, chosen, TENSORS, LAYERS)
    return document, encode(document, suffix), chosen


def recorded(section, field):
    """Names of the entries that have a field."""
    return {name for name, stats in section.items() if getattr(stats, field) is not UNSET}


def test_the_table_is_that_of_the_model():
    assert (len(TENSORS), len(MATRICES), sum(layer.grids for layer in LAYERS), len(OBSERVED)) == (310, 197, 448, 254)
    assert sum(math.prod(shape) for shape in SHAPES.values()) == 596_049_920
    assert check_checkpoint(encoded(), "x").findings == []


@pytest.mark.parametrize(("ordinal", "last"), [(0, False), (1, False), (5, False), (17, False), (28, True)])
def test_packed_files_keep_the_budget_with_all_statistics(ordinal, last):
    document, data, chosen = written(ordinal, 200, ".json.zst", last=last)
    assert len(data) <= 200_000
    assert grids_in(document) >= 12
    assert set(document.left_out) <= {f"weights.*.{GRID}", f"gradients.*.{GRID}", f"attention.*.{QK_GRID}"}
    assert without(document, "weights", "gradients", "attention").weights == without(whole(), "weights").weights
    assert document.gradients == without(whole(), "gradients").gradients
    assert document.activations == whole().activations
    assert 0.85 <= chosen.bytes / len(data) <= 1.25
    assert check_checkpoint(zstandard.ZstdDecompressor().decompress(data), "x").findings == []


@pytest.mark.parametrize("ordinal", [0, 1, 5, 12, 28])
def test_plain_files_keep_the_budget_with_norms_movement_and_heads_of_everything(ordinal):
    document, data, chosen = written(ordinal, 200, ".json")
    assert len(data) <= 200_000
    assert 0.95 <= chosen.bytes / len(data) <= 1.05
    assert grids_in(document) >= 12
    assert recorded(document.weights, "frobenius_norm") == recorded(document.gradients, "norm") == set(SHAPES)
    assert recorded(document.activations, "rms") == {part.name for part in OBSERVED}
    assert document.weight_deltas == whole().weight_deltas
    assert without(document, "attention").attention == without(whole(), "attention").attention
    assert check_checkpoint(data, "x").findings == []


def test_plain_files_name_each_field_that_some_entry_lacks_and_no_other():
    document, data, _ = written(12, 200, ".json")
    before, after = (msgspec.json.decode(text) for text in (encoded(), data))
    lost = set()
    for section in ("weights", "gradients", "weight_deltas", "activations", "attention"):
        for name, stats in before[section].items():
            lost |= {f"{section}.*.{field}" for field in stats if field not in after[section][name]}
            assert after[section][name].items() <= stats.items()
    assert set(document.left_out) == lost - {"weights.*.sampled", "gradients.*.sampled"}
    assert len(set(document.left_out)) == len(document.left_out)


def test_plain_files_have_all_statistics_of_every_layer_in_forty_checkpoints():
    full, distributed, seen = set(), set(), set()
    for ordinal in range(11, 51):
        chosen = plan(TENSORS, LAYERS, OBSERVED, ordinal, 200).chosen
        assert chosen["numbers"] >= chosen["distributions"]
        full, distributed, seen = full | chosen["numbers"], distributed | chosen["distributions"], seen | chosen["activations"]
    assert full == distributed == set(SHAPES)
    assert seen == {part.name for part in OBSERVED}


def test_the_model_is_packed_by_default_and_a_small_one_is_not():
    unknown = [SizedPart(layer.name, layer.depth, 1) for layer in LAYERS]
    assert suffix_for(TENSORS, unknown, OBSERVED, 200) == ".json.zst"
    assert suffix_for(TENSORS, unknown, OBSERVED, None) == ".json"
    assert suffix_for(TENSORS[:90], unknown[:8], OBSERVED[:70], 200) == ".json"


def test_every_grid_fits_six_hundred_kilobytes_and_gradients_eight_hundred():
    document, data, _ = written(3, None, ".json.zst", document=without(whole(), "gradients"))
    assert grids_in(document) == 197 + 448
    assert len(data) <= 600_000
    document, data, chosen = written(3, None, ".json.zst")
    assert grids_in(document) == 2 * 197 + 448
    assert len(data) <= 800_000
    assert document.left_out is UNSET
    assert 0.85 <= chosen.bytes / len(data) <= 1.25


@pytest.mark.parametrize(("suffix", "least"), [(".json.zst", 56), (".json", 8)])
@pytest.mark.parametrize("ordinal", [3, 5])
def test_a_black_box_counts_and_is_as_long_as_the_budget_lets_it_be(suffix, least, ordinal):
    document = whole()
    most = bytes_for_black_box(TENSORS, LAYERS, OBSERVED, ordinal, 200, suffix=suffix)
    document.history = newest_that_fit(history(before=document.step), most)
    kept = len(document.history.steps)
    assert least <= kept <= 64
    assert document.history.steps == list(range(500 - kept, 500))
    document, data, _ = written(ordinal, 200, suffix, document=document)
    assert len(data) <= 200_000
    assert check_checkpoint(encode(document), "x").findings == []


@pytest.mark.parametrize("suffix", [".json", ".json.zst"])
def test_hashes_and_singular_values_count(suffix):
    sizes, document = with_extra_numbers(SIZES, exact=True, spectral=True), whole()
    for place, stats in enumerate((*document.weights.values(), *document.gradients.values())):
        stats.hash = "blake2b:" + SOURCE.bytes(16).hex()
        if place < len(SHAPES):
            stats.spectral_norm = shortest(SOURCE.uniform(1, 9))
    chosen = plan(TENSORS, LAYERS, OBSERVED, 4, 240, suffix=suffix, sizes=sizes)
    apply_plan(document, chosen, TENSORS, LAYERS)
    assert 0.85 <= chosen.bytes / len(encode(document, suffix)) <= 1.25
    assert len(encode(document, suffix)) <= 240_000


def test_without_a_budget_a_black_box_has_any_length():
    assert math.isinf(bytes_for_black_box(TENSORS, LAYERS, OBSERVED, 3, None))


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.zst"])
@pytest.mark.parametrize("budget_kb", [200, 300, 450])
def test_a_larger_budget_never_holds_less(budget_kb, suffix):
    smaller, larger = (plan(TENSORS, LAYERS, OBSERVED, 4, kb, suffix=suffix) for kb in (budget_kb, 2 * budget_kb))
    assert all(smaller.chosen[kind] <= larger.chosen[kind] for kind in smaller.chosen)
    assert larger.bytes <= 2 * budget_kb * 1000


@pytest.mark.parametrize("blocks", [1, 2, 5, 28, 39, 80, 200])
@pytest.mark.parametrize("budget_kb", [10, 200])
def test_every_matrix_and_head_is_seen_in_forty_checkpoints(blocks, budget_kb):
    tensors = [
        SizedPart("embed", None, 1),
        *(SizedPart(f"blocks.{i}.w", i, 1) for i in range(blocks)),
        SizedPart("head", None, 1),
    ]
    layers = [SizedPart(f"layer.{i}", i, 4) for i in range(blocks)]
    for start in (0, 7, 93):
        seen = [plan(tensors, layers, [], ordinal, budget_kb).chosen for ordinal in range(start, start + 40)]
        assert frozenset().union(*(chosen["weights"] for chosen in seen)) == {part.name for part in tensors}
        assert frozenset().union(*(chosen["attention"] for chosen in seen)) == {part.name for part in layers}


def test_landmarks_are_due_first_last_and_every_fifth_time():
    parts = [SizedPart("embed", None, 1), *(SizedPart(f"{i}", i, 7) for i in range(9))]
    assert landmarks([part.depth for part in parts]) == [None, 0, 8, 4]
    for ordinal in (0, 5, 10, 45):
        assert grids_due(parts, ordinal).depths >= {None, 0, 4, 8}
    assert grids_due(parts, 7, last=True).depths >= {None, 0, 4, 8}
    assert grids_due(parts, 7).depths == {6, 7}


def test_turns_depend_on_nothing_but_the_ordinal_and_the_model():
    assert plan(TENSORS, LAYERS, [], 11, 200) == plan(TENSORS, LAYERS, [], 11, 200)
    assert plan(TENSORS, LAYERS, [], 11, 200).chosen["weights"] != plan(TENSORS, LAYERS, [], 12, 200).chosen["weights"]


@pytest.mark.parametrize("ordinal", [0, 1, 14, 28])
def test_unknown_heads_never_hide_a_layer(ordinal):
    unknown = [SizedPart(layer.name, layer.depth, 1) for layer in LAYERS]
    assert grids_due([*TENSORS, *unknown], ordinal).depths >= grids_due([*TENSORS, *LAYERS], ordinal).depths


def test_a_model_has_no_more_grids_than_matrices():
    chosen = plan([SizedPart("a", None), SizedPart("b", None, 1)], [], [], 3, 200).chosen
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
    document = whole()
    for stats in (*document.weights.values(), *document.gradients.values()):
        if stats.sampled_grid_32x32 is not UNSET:
            stats.sampled_grid_32x32 = encode_grid(SOURCE.normal(size=(32, 32)) * 0.02, encoding)
    for stats in document.attention.values():
        values = unpack(stats.sampled_qk_grid_32x32_per_head) * SOURCE.uniform(0.99, 1.0, size=(16, 32, 32))
        stats.sampled_qk_grid_32x32_per_head = encode_grids(values, encoding)
    expected = plan(TENSORS, LAYERS, OBSERVED, 0, None, encoding=encoding, suffix=suffix).bytes
    assert 0.85 <= expected / len(encode(document, suffix)) <= 1.2


def test_what_is_left_out_is_named_once_and_only_then():
    document = Checkpoint(
        schema_version="ck.analysis.v1",
        step=1,
        activations={"a": ActivationStats(rms=1.0, histogram=weight_stats(np.ones(3)).histogram)},
        attention={"layer.0": AttentionStats(heads=1)},
        weights={"w": weight_stats(np.eye(4), grid="q8"), "v": weight_stats(np.ones(4))},
    )
    tensors, layers, modules = [SizedPart("w", 0, 1), SizedPart("v", 0)], [SizedPart("layer.0", 0, 1)], [SizedPart("a", 0)]
    apply_plan(document, plan(tensors, layers, modules, 0, 200), tensors, layers)
    assert document.left_out is UNSET
    for _ in range(2):
        apply_plan(document, plan(tensors, layers, modules, 0, 0), tensors, layers)
        numbers = [f"weights.*.{name}" for name in ("shape", "dtype", "numel", "mean", "std", "min", "max")]
        assert document.left_out == [*numbers, "weights.*.percentiles", "weights.*.histogram", "activations.*.histogram"]
    assert document.weights["w"].sampled_grid_32x32 is not UNSET
    assert document.weights["w"].frobenius_norm == 2.0
    apply_plan(document, plan(tensors, layers, modules, 0, 0, besides=1), tensors, layers)
    assert document.left_out[-2:] == [f"weights.*.{GRID}", f"attention.*.{QK_GRID}"]
    assert document.weights["w"].sampled_grid_32x32 is UNSET
