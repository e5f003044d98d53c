import numpy as np
import pytest
import torch
from msgspec import json
from torch import nn
from torch.nn import functional
from transformers import BertConfig, BertLMHeadModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ckaudit.contract.schema.manifest import Cadence, Manifest
from ckaudit.recorder import Recorder
from ckaudit.recorder.hooks.attention_hooks import has_prefix, keeps_order, stated_direction
from ckaudit.run.read import read_run
from tests.recorder.test_attention_of_models import MODELS, SIZES, VOCABULARY

LENGTH = 12
EVERY = [Cadence(until=None, every=1)]


def directions(model, folder, inputs, **options):
    """Return what run.json says of a model's attention after a step in which it was given each of the inputs."""
    recorder = Recorder(model, folder, cadence=EVERY, **options)
    for keywords in inputs:
        loss = model(**keywords)[0].float().square().mean()
        loss.backward()
        recorder.step(loss)
        model.zero_grad()
    recorder.close()
    return json.decode((folder / "run.json").read_bytes(), type=Manifest).attention or {}


def tokens(count=LENGTH):
    return torch.randint(3, VOCABULARY, (2, count), generator=torch.Generator().manual_seed(1))


def batch():
    return [{"input_ids": tokens(), "labels": tokens()}]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("kind", "config", "expected"),
    [
        (*MODELS["gpt2"], {"causal"}),
        (*MODELS["bert"], {"bidirectional"}),
        (LlamaForCausalLM, LlamaConfig(**SIZES), {"causal"}),
        (BertLMHeadModel, BertConfig(**SIZES, is_decoder=True), {"causal"}),
    ],
)
def test_the_models_of_a_library_say_which_way_they_look(tmp_path, attention, kind, config, expected):
    model = kind._from_config(config, attn_implementation=attention)
    found = directions(model, tmp_path, batch())
    assert (found.keys(), {*found.values()}) == ({"layer.0", "layer.1"}, expected)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["t5", "bart"])
def test_two_halves_of_the_same_length_have_three_kinds_of_attention(tmp_path, attention, name):
    kind, config = MODELS[name]
    found = directions(kind._from_config(config, attn_implementation=attention), tmp_path, batch())
    crossing = {layer for layer in found if "EncDec" in layer or "encoder_attn" in layer}
    assert len(crossing) == 2
    assert {found[layer] for layer in crossing} == {"cross"}
    assert {way for layer, way in found.items() if "encoder." in layer} == {"bidirectional"}
    assert {found[layer] for layer in found if "decoder." in layer and layer not in crossing} == {"causal"}


class Layer(nn.Module):
    """Attention of one head that is given its mask."""

    def __init__(self, **attributes):
        super().__init__()
        self.attn = nn.Linear(8, 24)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x, mask):
        query, key, value = self.attn(x).unsqueeze(1).chunk(3, -1)
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)[:, 0]


class Stack(nn.Module):
    def __init__(self, mask, **attributes):
        super().__init__()
        self.blocks = nn.ModuleList(Layer(**attributes) for _ in range(2))
        self.mask = mask

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x, self.mask)
        return (x,)


def stack_directions(folder, mask, **attributes):
    torch.manual_seed(0)
    return directions(Stack(mask, **attributes), folder, [{"x": torch.randn(2, LENGTH, 8)}])


CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
PREFIX = CAUSAL | (torch.arange(LENGTH) < 5)


@pytest.mark.parametrize(
    ("mask", "attributes", "expected"),
    [
        (CAUSAL, {}, None),
        (torch.ones_like(CAUSAL), {}, None),
        (CAUSAL, {"is_causal": True}, "causal"),
        (torch.ones_like(CAUSAL), {"is_causal": True}, "causal"),
        (CAUSAL.roll(1, 1) | CAUSAL, {"is_causal": True}, "causal"),
        (PREFIX, {}, "prefix"),
        (PREFIX, {"is_causal": True}, "prefix"),
        (PREFIX, {"is_causal": False}, "prefix"),
        (CAUSAL, {"is_causal": False}, "causal"),
        (torch.ones_like(CAUSAL), {"is_causal": False}, "bidirectional"),
    ],
)
def test_a_mask_tells_a_prefix_and_never_excuses_a_leak(tmp_path, mask, attributes, expected):
    found = stack_directions(tmp_path, mask, **attributes)
    assert found == ({} if expected is None else dict.fromkeys(["layer.0", "layer.1"], expected))


@pytest.mark.parametrize(("causal", "expected"), [(True, {"causal"}), (False, {"bidirectional"}), (None, set())])
def test_the_user_s_word_stands_for_modules_that_say_nothing(tmp_path, causal, expected):
    model = Stack(CAUSAL)
    assert {*directions(model, tmp_path, [{"x": torch.randn(2, LENGTH, 8)}], causal=causal).values()} == expected


def masses(folder, mask):
    """Return the weight on later tokens that a step of a stack with this mask leaves in its checkpoint."""
    stack_directions(folder, mask)
    found = read_run(folder).series("attention", "upper_triangle_mass_per_head")
    return found.values


def test_what_a_prefix_reads_both_ways_is_no_weight_on_later_tokens(tmp_path):
    assert not masses(tmp_path / "prefix", PREFIX).any()
    assert (masses(tmp_path / "shifted", PREFIX | CAUSAL.roll(1, 1)) > 0.01).all()
    assert (masses(tmp_path / "full", torch.ones_like(CAUSAL)) > 0.1).all()


def test_the_user_s_word_that_a_model_is_not_causal_is_not_doubted(tmp_path):
    model = Stack(PREFIX, is_causal=False)
    assert {*directions(model, tmp_path, [{"x": torch.randn(2, LENGTH, 8)}], causal=False).values()} == {"bidirectional"}


@pytest.mark.parametrize(("lengths", "expected"), [((6, 6), True), ((6, 4), True), ((6, 2), False), ((1, 1), False)])
def test_padding_is_told_from_a_mask_that_keeps_the_order(lengths, expected):
    own = np.arange(6)
    in_order = np.stack([np.tri(6, dtype=bool) & (own < length) for length in lengths])
    assert keeps_order(in_order, own) is expected
    both_ways = np.stack([np.broadcast_to(own < length, (6, 6)) for length in lengths])
    assert not keeps_order(both_ways, own)


@pytest.mark.parametrize("length", range(2, 9))
def test_a_prefix_is_told_from_leaks_by_definition(length):
    own = np.arange(length)
    order = np.tri(length, dtype=bool)
    for size in range(length + 1):
        # A single token looks at nothing but itself, and a prefix of all tokens is no prefix.
        assert has_prefix((order | (own < size))[None], own) == (2 <= size < length)
    full = np.ones((length, length), bool)
    padding = own < length - 1
    assert not has_prefix((full & padding)[None], own)
    assert not has_prefix(np.tri(length, k=1, dtype=bool)[None], own)


def test_groups_of_tokens_that_see_each_other_are_read_both_ways():
    own, group = np.arange(9), np.array([0, 1, 2, 2, 2, 3, 4, 4, 5])
    assert has_prefix((group <= group[:, None])[None], own)


def test_a_sequence_without_a_prefix_excuses_none_that_leaks():
    own, order = np.arange(6), np.tri(6, dtype=bool)
    assert not has_prefix(np.stack([order, np.ones_like(order)]), own)
    assert has_prefix(np.stack([order, order | (own < 3)]), own)


def test_the_class_says_causal_or_that_it_is_not():
    kinds = {name: type(name, (nn.Module,), {})() for name in ("CausalSelfAttention", "NonCausalAttention", "CrossAttention")}
    assert [stated_direction("attn", module) for module in kinds.values()] == ["causal", None, "cross"]


def test_cross_attention_added_to_a_decoder_only_model(tmp_path):
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=4, add_cross_attention=True)
    model = GPT2LMHeadModel(config)
    inputs = [{"input_ids": tokens(), "labels": tokens(), "encoder_hidden_states": torch.randn(2, LENGTH, 32)}]
    assert sorted(directions(model, tmp_path, inputs).values()) == ["causal", "cross"]
