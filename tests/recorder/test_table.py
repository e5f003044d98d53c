import copy
import io

import pytest
import torch
from torch import nn

from ckaudit.contract.schema.tensor_names import depth_of
from ckaudit.recorder.model import tensor_table as table
from ckaudit.recorder.model.tensor_table import kind_of, tensor_table, trainable_count

LINEAR = nn.Linear(4, 4)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("transformer.h.0.attn.c_attn.weight", "attention"),
        ("transformer.h.0.attn.c_proj.weight", "attention"),
        ("transformer.h.0.mlp.c_fc.weight", "mlp"),
        ("transformer.wte.weight", "embedding"),
        ("transformer.ln_f.weight", "norm"),
        ("transformer.h.3.ln_1.bias", "norm"),
        ("model.layers.3.self_attn.q_proj.weight", "attention"),
        ("model.layers.3.mlp.gate_proj.weight", "mlp"),
        ("model.layers.3.input_layernorm.weight", "norm"),
        ("model.layers.3.self_attn.q_norm.weight", "norm"),
        ("model.layers.3.mlp.router.weight", "router"),
        ("model.layers.3.mlp.experts.7.w1.weight", "mlp"),
        ("lm_head.weight", "head"),
        ("bert.encoder.layer.2.attention.output.dense.weight", "attention"),
        ("bert.encoder.layer.2.intermediate.dense.weight", "mlp"),
        ("encoder.layers.1.self_attn.in_proj_weight", "attention"),
        ("encoder.layers.1.linear1.weight", "mlp"),
        ("blocks.0.attn.o.weight", "attention"),
        ("blocks.0.ffn.2.weight", "mlp"),
        ("pos_emb", "embedding"),
        ("unembed.weight", "head"),
        ("classifier.weight", "head"),
        ("embeddings.mask_token", "embedding"),
        ("decoder.mask_token", "embedding"),
        ("decoder.mix_tokens.weight", "other"),
        ("stages.1.blocks.0.attn.qkv.linear.weight", "attention"),
        ("something.weight", "other"),
    ],
)
def test_kinds_follow_the_names_of_the_field(name, kind):
    assert kind_of(name, LINEAR, (4, 4)) == kind


@pytest.mark.parametrize(
    ("owner", "kind"),
    [
        (nn.Embedding(2, 2), "embedding"),
        (nn.RMSNorm(2), "norm"),
        (nn.BatchNorm1d(2), "norm"),
        (nn.Conv2d(1, 1, 1), "conv"),
        (nn.LSTM(2, 2), "recurrent"),
        (nn.GRUCell(2, 2), "recurrent"),
    ],
)
def test_the_type_of_the_module_goes_before_its_name(owner, kind):
    assert kind_of("thing.weight", owner, (2, 2)) == kind


def test_a_convolution_that_is_called_a_head_is_one():
    assert kind_of("decode_head.classifier.weight", nn.Conv2d(4, 3, 1), (3, 4, 1, 1)) == "head"
    assert kind_of("decode_head.fuse.weight", nn.Conv2d(4, 4, 1), (4, 4, 1, 1)) == "conv"


def test_a_gate_that_narrows_is_a_router():
    assert kind_of("layers.0.moe.gate.weight", LINEAR, (8, 512)) == "router"
    assert kind_of("layers.0.mlp.gate.weight", LINEAR, (2048, 512)) == "mlp"


def test_depth_is_the_first_number_among_the_parts():
    assert depth_of("encoder.layer.11.mlp.0.weight") == 11
    assert depth_of("fc1.weight") is None


def test_the_table_describes_every_tensor(tiny):
    model = tiny(tied=True)
    model.blocks[1].mlp[0].weight.requires_grad_(False)
    found = tensor_table(model)
    assert set(found) == {name for name, _ in model.named_parameters(remove_duplicate=False)}
    facts = found["blocks.1.mlp.0.weight"]
    assert (facts.depth, facts.kind, facts.module, facts.shape) == (1, "mlp", "blocks.1.mlp.0", [16, 8])
    assert (facts.dtype, facts.trainable, facts.stride, facts.device) == ("float32", False, 1, "cpu")
    assert found["embed.weight"].tied_to == "head.weight"
    assert not found["head.weight"].tied_to


def test_tied_parameters_are_counted_once_and_frozen_ones_not_at_all(tiny):
    model = tiny(tied=True)
    assert trainable_count(tensor_table(model)) == sum(p.numel() for p in model.parameters())
    model.norm.weight.requires_grad_(False)
    assert trainable_count(tensor_table(model)) == sum(p.numel() for p in model.parameters()) - 8


def test_two_parameters_over_one_storage_are_tied():
    model = nn.Module()
    model.a = nn.Parameter(torch.ones(3, 2))
    model.b = nn.Parameter(model.a.data)
    model.c = nn.Parameter(torch.ones(0))
    model.d = nn.Parameter(torch.ones(0))
    found = tensor_table(model)
    assert [bool(found[name].tied_to) for name in "abcd"] == [False, True, False, False]
    assert trainable_count(found) == 6


def test_one_forward_pass_shows_the_order_of_layers(tiny, batches):
    model = tiny()
    model.extra = nn.Linear(1, 1)
    order = table.ForwardOrder(model)
    model(batches(1)[0][0])
    order.close()
    names = list(order.sort(tensor_table(model)))
    assert names[0] == "embed.weight"
    assert names.index("blocks.0.norm1.weight") < names.index("blocks.0.attn.q.weight") < names.index("blocks.1.norm1.weight")
    assert names[-3:] == ["head.weight", "extra.weight", "extra.bias"]
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_hooks_stay_behind_when_a_model_is_copied_or_saved(tiny, batches):
    model, file = tiny(), io.BytesIO()
    order = table.ForwardOrder(model)
    torch.save(model, file)
    for twin in (copy.deepcopy(model), torch.load(io.BytesIO(file.getvalue()), weights_only=False)):
        twin(batches(1)[0][0])
    assert order.order == {}


def test_wrappers_are_looked_through(tiny):
    model = tiny()
    assert table.unwrapped(torch.compile(model, backend="eager")) is model
    assert table.unwrapped(nn.DataParallel(model)) is model
    assert table.unwrapped(model) is model
