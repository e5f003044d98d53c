"""Statistics of layers under foreign names: where each goes, what histograms allow, and the verdict that comes of it."""

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ckaudit.audit import triage
from ckaudit.contract.io.codec import encode
from ckaudit.contract.schema.checkpoint import VERSION, Checkpoint
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.layers.histogram_moments import MAX_ERROR, ValueSums, bins_of
from ckaudit.importers.layers.to_checkpoints import LayerStatistics

NAMES = [
    ("l2_norm/grad/model.transformer.blocks.0.attn.Wqkv.weight", "gradients", "norm"),
    ("l2_norm/param/model.transformer.blocks.0.attn.Wqkv.weight", "weights", "frobenius_norm"),
    ("l2_norm/update/model.transformer.blocks.0.attn.Wqkv.weight", "weight_deltas", "norm"),
    ("l2_norm_ratio/update_param/model.transformer.wte.weight", "weight_deltas", "relative"),
    ("layer_grad_l2_norm/blocks.1.mlp.weight", "gradients", "norm"),
    ("optim/grad/transformer.blocks.3.att_proj.weight.norm", "gradients", "norm"),
    ("grad/transformer.blocks.3.att_proj.weight.avg", "gradients", "mean"),
    ("param/transformer.wte.weight.norm", "weights", "frobenius_norm"),
    ("grad/norm/transformer.layers.0.self_attn.q_proj.weight", "gradients", "norm"),
    ("params/norm/embeddings.token_embeddings.weight", "weights", "frobenius_norm"),
    ("updates/norm/transformer.layers.0.mlp.up_proj.weight", "weight_deltas", "norm"),
    ("grads/blocks.0.attention.w_q.weight/mean", "gradients", "mean"),
    ("params/blocks.0.attention.w_q.weight/var", "weights", "std"),
    ("activations/blocks.0.feed_forward/mean", "activations", "mean"),
    ("activations/blocks.0.feed_forward/rms", "activations", "rms"),
    ("activations/average/transformer.blocks.0_output.0", "activations", "mean"),
    ("grad_2.0_norm/encoder.layer.0.weight", "gradients", "norm"),
    ("grad_norm/encoder.layer.0.weight", "gradients", "norm"),
    ("encoder.layer.0.weight/grad_norm", "gradients", "norm"),
    ("update_ratio/encoder.layer.0.weight", "weight_deltas", "relative"),
    ("moe/load_balancing_loss_layer_4", "moe", "aux_loss"),
]
NO_FIELD = [
    "l2_norm/moment/blocks.0.weight",
    "cosine/update_grad/blocks.0.weight",
    "exp_avg_sq/blocks.0.weight.norm",
    "param/blocks.0.weight.max",
    "opt_state/mu/norm/blocks.0.weight",
    "grad_inf_norm/fc.weight",
    "activations/max/blocks.0_output.0",
    "activations/average/blocks.0_input.0",
]
NO_LAYER = [
    "loss",
    "train/loss",
    "grad_norm",
    "train/grad_norm",
    "l2_norm/grad/global",
    "grad/norm/total",
    "params/norm/total",
    "grad_2.0_norm_total",
    "optim/total_grad_norm",
    "optim/clipping_rate",
    "system/gpu.0.memory",
    "eval/pile/CrossEntropyLoss",
    "gradients/fc.weight",
    "step/time.total/mean",
]


@pytest.mark.parametrize(("name", "section", "field"), NAMES, ids=[name for name, _, _ in NAMES])
def test_a_name_finds_its_field(name, section, field):
    layers = LayerStatistics()
    assert layers.take(7, name, 0.25)
    (document,) = layers.documents()
    assert document["step"] == 7
    ((_, entry),) = document[section].items()
    assert entry == {field: 0.5 if name.endswith("/var") else 0.25}
    msgspec.convert({"schema_version": VERSION, **document}, Checkpoint, strict=False)


@pytest.mark.parametrize("name", NO_FIELD)
def test_what_a_checkpoint_has_no_field_for_is_known_and_said(name):
    layers = LayerStatistics()
    assert layers.take(1, name, 1.0)
    assert not layers
    assert [*layers.documents()] == []
    assert any("no field" in note for note in layers.notes())


@pytest.mark.parametrize("name", NO_LAYER)
def test_what_is_no_statistic_of_a_layer_is_left_to_others(name):
    assert not LayerStatistics().take(1, name, 1.0)


def test_names_lose_what_wrappers_put_into_them_and_keep_their_order():
    layers = LayerStatistics()
    for name in ("h.10.mlp.weight", "_orig_mod.h.2.mlp.weight", "module.h.1._fsdp_wrapped_module.mlp.weight"):
        layers.take(1, f"l2_norm/grad/{name}", 1.0)
    assert list(layers.documents()[0]["gradients"]) == ["h.10.mlp.weight", "h.2.mlp.weight", "h.1.mlp.weight"]


def test_place_and_part_in_the_model_follow_from_the_name():
    layers = LayerStatistics()
    names = ["wte.weight", "h.3.attn.c_attn.weight", "h.3.mlp.c_fc.weight", "encoder/layer_2/attention/kernel", "lm_head.weight"]
    for name in names:
        layers.take(1, f"grad_norm/{name}", 1.0)
    facts = {name: (fact.depth, fact.kind) for name, fact in layers.tensors().items()}
    outside = msgspec.UNSET
    assert facts == {
        "wte.weight": (outside, "embedding"),
        "h.3.attn.c_attn.weight": (3, "attention"),
        "h.3.mlp.c_fc.weight": (3, "mlp"),
        "encoder/layer_2/attention/kernel": (2, "attention"),
        "lm_head.weight": (outside, "head"),
    }


def test_values_that_are_no_number_are_kept_as_such_and_those_below_zero_are_not():
    layers = LayerStatistics()
    for index, value in enumerate((math.nan, math.inf, -1.0)):
        layers.take(1, f"grad_norm/h.{index}.weight", value)
    assert layers.documents()[0]["gradients"] == {"h.0.weight": {"norm": "NaN"}, "h.1.weight": {"norm": "Infinity"}}
    assert "1 values below zero" in " ".join(layers.notes())


def test_what_a_run_that_went_back_says_anew_replaces_what_stood_from_there_on():
    layers = LayerStatistics()
    for step, value in [(1, 1.0), (2, 2.0), (3, 3.0), (2, 2.5), (4, 4.0)]:
        layers.take(step, "grad_norm/h.0.weight", value)
    layers.take(3, "grad_norm/h.1.weight", 9.0)
    found = [(each["step"], {name: entry["norm"] for name, entry in each["gradients"].items()}) for each in layers.documents()]
    assert found == [(1, {"h.0.weight": 1.0}), (2, {"h.0.weight": 2.5}), (3, {"h.1.weight": 9.0}), (4, {"h.0.weight": 4.0})]


def test_a_step_said_again_with_the_same_value_takes_nothing_away():
    layers = LayerStatistics()
    for step in (1, 3, 2, 2, 3):
        layers.take(step, "grad_norm/h.0.weight", float(step))
    assert [each["step"] for each in layers.documents()] == [1, 2, 3]


def test_experts_and_heads_become_lists():
    layers = LayerStatistics()
    for expert, load in enumerate((0.5, 0.25, 0.25)):
        layers.take(1, f"moe/layer_3/expert_{expert}/load", load)
        layers.take(1, f"moe/layer_3_expert_{expert}_tokens", load)
        layers.take(1, f"attn_entropy/layer_3/head_{expert}", load)
    assert layers.documents()[0]["moe"] == {"layer.3": {"counts": [0.5, 0.25, 0.25]}}
    assert layers.documents()[0]["attention"] == {"layer.3": {"entropy_per_head": [0.5, 0.25, 0.25]}}


def test_a_layer_without_experts_has_no_auxiliary_loss_of_zero():
    layers = LayerStatistics()
    assert layers.take(1, "moe/load_balancing_loss_layer_0", 0.0)
    assert layers.take(1, "moe/load_balancing_loss_layer_1", 1.25)
    assert layers.documents()[0]["moe"] == {"layer.1": {"aux_loss": 1.25}}


@pytest.mark.parametrize("sample", ["normal", "narrow", "heavy", "positive", "zeros", "offset"])
def test_what_bins_say_is_no_further_off_than_they_claim(sample):
    rng = np.random.default_rng(5)
    values = {
        "normal": rng.normal(0, 0.02, 10_000),
        "narrow": rng.normal(3, 1e-3, 500),
        "heavy": rng.standard_cauchy(5000),
        "positive": rng.exponential(2.0, 4000),
        "zeros": np.zeros(100),
        "offset": rng.uniform(5, 6, 300),
    }[sample]
    counts, edges = np.histogram(values, bins=64)
    bins = bins_of(edges.tolist(), counts.tolist())
    known, worst = bins.statistics()
    width = float(np.diff(edges).max())
    assert known["numel"] == len(values)
    assert np.abs(np.array(known["percentiles"]) - np.percentile(values, (1, 5, 25, 50, 75, 95, 99))).max() <= 1.01 * width
    if "norm" in known:
        assert worst <= MAX_ERROR
        assert abs(known["norm"] / np.linalg.norm(values) - 1) <= worst
    if "std" in known:
        assert known["std"] == pytest.approx(values.std(), rel=MAX_ERROR)
        assert abs(known["mean"] - values.mean()) <= width
    if sample != "zeros":  # NumPy puts values that are all alike into the middle of bins as wide as one
        assert (known["min"], known["max"]) == pytest.approx((values.min(), values.max()), rel=1e-12)
    assert ("norm" in known) == (sample != "zeros")
    assert ("std" in known) == (sample not in ("heavy", "zeros"))


def test_a_norm_is_not_made_of_bins_that_leave_it_open():
    known, worst = bins_of([-1.0, 0.0, 1.0], [5, 5]).statistics()
    assert (known["numel"], worst) == (10, 0.0)
    assert not {"norm", "std", "mean"} & set(known)


def test_bins_of_no_width_hold_zeros_exactly():
    known, worst = bins_of([0.0] * 5, [0, 7, 0, 0]).statistics()
    assert (known["norm"], known["numel"], worst) == (0.0, 7, 0.0)


def test_sums_over_the_values_give_exact_statistics():
    values = np.random.default_rng(7).normal(0.5, 2.0, 999)
    known = ValueSums(999, values.sum(), (values**2).sum(), values.min(), values.max()).statistics()
    assert known["norm"] == pytest.approx(np.linalg.norm(values), rel=1e-12)
    assert known["std"] == pytest.approx(values.std(), rel=1e-9)
    assert (known["mean"], known["min"], known["max"]) == (pytest.approx(values.mean()), values.min(), values.max())


@pytest.mark.parametrize("count", [0, 0.5, -1, math.nan, math.inf])
def test_sums_over_no_whole_number_of_values_say_nothing(count):
    assert ValueSums(count, 1.0, 1.0).statistics() == {}


def test_a_series_at_once_is_what_its_values_are_one_by_one():
    names = [
        "grad_norm/a.weight",
        "params/a.weight/var",
        "moe/layer_1/expert_0/load",
        "moe/load_balancing_loss_layer_0",
        "cosine/update_grad/a.weight",
        "loss",
    ]
    steps, values = np.array([-1, 1, 2, 3]), np.array([0.25, 0.25, 0.0, math.nan])
    one, many = LayerStatistics(), LayerStatistics()
    for name in names:
        taken = [one.take(step, name, value) for step, value in zip(steps.tolist(), values.tolist(), strict=True)]
        assert many.take_series(name, steps, values) == taken[0]
    assert list(many.documents()) == list(one.documents())
    assert many.notes() == one.notes()


def test_many_values_at_once_are_those_taken_one_by_one():
    one, many = LayerStatistics(), LayerStatistics()
    cells = [(1, "a.weight", 0.5), (1, "b.weight", -1.0), (2, "a.weight", math.nan), (2, "b.weight", 2.0)]
    for step, name, value in cells:
        one.put(step, "gradients", name, "norm", value)
    steps, owners, values = np.array([1, 1, 2, 2]), np.array([0, 1, 0, 1]), np.array([0.5, -1.0, math.nan, 2.0])
    many.extend("gradients", "norm", ["a.weight", "b.weight"], steps, owners, values)
    assert list(many.documents()) == list(one.documents())
    assert many.notes() == one.notes()


@pytest.mark.parametrize(
    ("edges", "counts"),
    [
        ([], []),
        ([0, 1], []),
        ([0, 1], [0]),
        ([0, 1, 2], [1, -1]),
        ([1, 0], [1]),
        ([0, math.nan], [1]),
        ([-1e308, 0], [1]),
        ([0, 1], [math.nan]),
    ],
)
def test_what_are_no_bins_is_left_out_and_said(edges, counts):
    layers = LayerStatistics()
    assert layers.take_histogram(1, "gradients/fc.weight", edges, counts)
    assert not layers
    assert "1 histograms are empty" in layers.notes()[0]


def test_tensorboards_outermost_limits_are_cut_off():
    assert bins_of([-1e308, -1, 1, 1e308], [0, 5, 0]).edges.tolist() == [-1.0, 1.0]


def test_a_histogram_goes_where_its_name_says_with_its_norm_and_its_bins():
    values = np.random.default_rng(1).normal(0, 1, 5000)
    counts, edges = np.histogram(values, bins=64)
    layers = LayerStatistics()
    assert layers.take_histogram(1, "gradients/fc.weight", edges.tolist(), counts.tolist())
    assert layers.take_histogram(1, "parameters/fc.weight", edges.tolist(), counts.tolist())
    assert not layers.take_histogram(1, "predictions", edges.tolist(), counts.tolist())
    (document,) = layers.documents()
    assert document["gradients"]["fc.weight"]["norm"] == pytest.approx(np.linalg.norm(values), rel=0.1)
    assert document["weights"]["fc.weight"]["frobenius_norm"] == document["gradients"]["fc.weight"]["norm"]
    assert document["gradients"]["fc.weight"]["histogram"]["counts"] == counts.tolist()
    assert document["gradients"]["fc.weight"]["histogram"]["bins"]["count"] == 64
    msgspec.convert({"schema_version": VERSION, **document}, Checkpoint, strict=False)
    assert "at most" in " ".join(layers.notes())


def test_the_sums_of_a_histogram_stand_above_its_bins():
    layers = LayerStatistics()
    layers.take_histogram(1, "gradients/fc.weight", [-1.0, 1.0], [2], ValueSums(2, 1.0, 0.5, -0.1, 0.7))
    entry = layers.documents()[0]["gradients"]["fc.weight"]
    assert (entry["norm"], entry["mean"], entry["min"], entry["max"]) == (math.sqrt(0.5), 0.5, -0.1, 0.7)
    assert not any("off" in note for note in layers.notes())


STEPS = range(10, 310, 10)
TENSORS = ["norm_1", "attn.Wqkv", "attn.out_proj", "norm_2", "ffn.up_proj", "ffn.down_proj"]


def _grads(step: int, block: int, tensor: str, *, dead: bool, exploding: bool) -> float:
    value = 0.5 * (1 + 0.1 * math.sin(step + block)) * (1 + 0.01 * TENSORS.index(tensor))
    if dead and block == 1 and tensor.startswith("attn"):
        return 0.0
    return value * 10.0 ** (step // 20 - 10) if exploding and block == 3 and step > 200 else value


def _written(folder: Path, layers: LayerStatistics, losses: list[dict[str, float]]) -> Path:
    manifest = Manifest(schema_version="ck.run.v1", tensors=layers.tensors())
    (folder / "run.json").write_bytes(encode(manifest))
    (folder / "scalars.jsonl").write_text("".join(json.dumps(line) + "\n" for line in losses))
    for document in layers.documents():
        name = f"analysis_checkpoint_step_{document['step']:08d}.json"
        (folder / name).write_bytes(encode({"schema_version": VERSION, **document}))
    return folder


@pytest.mark.parametrize(
    "spelled",
    [
        "l2_norm/grad/model._fsdp_wrapped_module.blocks.{}.{}.weight",
        "optim/grad/blocks.{}.{}.weight.norm",
        "grad/norm/transformer.layers.{}.{}.weight",
        "train/grad_2.0_norm/blocks.{}.{}.weight",
    ],
)
@pytest.mark.parametrize("ill", ["", "dead", "exploding"])
def test_a_dead_branch_and_an_exploding_layer_are_found_by_their_names(tmp_path, spelled, ill):
    layers, losses = LayerStatistics(), []
    for step in STEPS:
        total = 0.0
        for block in range(4):
            for tensor in TENSORS:
                value = _grads(step, block, tensor, dead=ill == "dead", exploding=ill == "exploding")
                layers.take(step, spelled.format(block, tensor), value)
                total += value * value
        losses.append({"step": step, "train_loss_raw": 5 - 2 * step / 300, "grad_global_norm": math.sqrt(total)})
    report = triage(_written(tmp_path, layers, losses))
    found = {finding.code: finding for finding in report.findings if finding.severity != "note"}
    if ill == "dead":
        assert set(found) == {"GRAD003"}
        assert "1.attn (both tensors) gets no gradient" in found["GRAD003"].message
        assert (found["GRAD003"].first_step, found["GRAD003"].last_step) == (10, 300)
        assert report.diagnoses[0].cause == "dead_path"
    elif ill == "exploding":
        assert set(found) == {"GRAD001", "GRAD002"}
        assert found["GRAD002"].first_step == 240
        assert "less gradient than the last block" in found["GRAD001"].message
    else:
        assert not found
