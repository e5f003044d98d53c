import pytest
import torch
from msgspec import UNSET
from torch import nn
from transformers import BertConfig, BertModel
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from ckaudit.recorder.model.tensor_table import ForwardOrder, is_table_of_sinusoids, tensor_table


def facts_of(model, *inputs):
    """Return the tensor table of a model after one forward pass."""
    order = ForwardOrder(model)
    model(*inputs)
    order.close()
    return order.sort(tensor_table(model))


def reasons(model, *inputs):
    """Return why no gradient is to be expected, of the tensors where one is told."""
    return {name: facts.no_gradient for name, facts in facts_of(model, *inputs).items() if facts.no_gradient}


def names(model, part):
    return {name for name, _ in model.named_parameters() if name.startswith(f"{part}.")}


def sinusoids(length, channels):
    """Return the table of Vaswani et al. 2017, section 3.5, written out."""
    table = torch.zeros(length, channels)
    for place in range(length):
        for pair in range(channels // 2):
            angle = torch.tensor(place / 10_000 ** (2 * pair / channels))
            table[place, 2 * pair], table[place, 2 * pair + 1] = angle.sin(), angle.cos()
    return table


def test_tables_of_sinusoids_are_known_by_their_rows():
    table = sinusoids(12, 16)
    with_token = torch.cat([torch.zeros(1, 16), table])[None]
    assert is_table_of_sinusoids(table)
    assert is_table_of_sinusoids(with_token)
    assert is_table_of_sinusoids(MarianSinusoidalPositionalEmbedding(12, 16).create_weight())
    assert not is_table_of_sinusoids(torch.zeros(12, 16))
    assert not is_table_of_sinusoids(table[0])


@pytest.mark.parametrize("channels", [16, 512, 4096])
@pytest.mark.parametrize("spread", [0.02, 0.5**0.5, 1.0])
def test_drawn_tables_are_none_whatever_their_spread(channels, spread):
    torch.manual_seed(0)
    assert not is_table_of_sinusoids(spread * torch.randn(64, channels))


def test_a_frozen_table_of_sinusoids_is_told_and_a_frozen_table_that_was_drawn_is_not():
    model = nn.ModuleDict({"fixed": nn.Embedding(12, 16), "drawn": nn.Embedding(12, 16), "learnt": nn.Embedding(12, 16)})
    with torch.no_grad():
        model["fixed"].weight.copy_(sinusoids(12, 16))
        model["learnt"].weight.copy_(sinusoids(12, 16))
    model["fixed"].requires_grad_(False)
    model["drawn"].requires_grad_(False)
    told = {name: facts.no_gradient for name, facts in tensor_table(model).items() if facts.no_gradient}
    assert told == {"fixed.weight": "fixed_table"}


class Pooled(nn.Module):
    """A BERT whose hidden states are averaged: its own pooling layer runs for nothing, and a head is never called."""

    def __init__(self):
        super().__init__()
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        self.bert = BertModel(BertConfig(vocab_size=20, max_position_embeddings=8, **sizes))
        self.head, self.other = nn.Linear(16, 3), nn.Linear(16, 5)
        self.final_norm = nn.LayerNorm(16)

    def forward(self, tokens):
        return self.head(self.bert(tokens).last_hidden_state.mean(1))


def test_a_model_in_a_sequence_is_no_block_and_its_pooling_layer_is_unused():
    model = nn.Sequential(Pooled(), nn.ReLU())
    table = tensor_table(model)
    assert {facts.block for facts in table.values() if facts.block} == {"0.bert.encoder.layer.0"}
    assert table["0.bert.encoder.layer.0.output.dense.weight"].depth == 0
    assert table["0.bert.embeddings.word_embeddings.weight"].depth is table["0.head.weight"].block is UNSET
    found = {name for name, reason in reasons(model, torch.ones(2, 4, dtype=torch.long)).items() if reason == "unused"}
    assert found == names(model, "0.bert.pooler") | names(model, "0.other")


def test_parts_that_a_forward_pass_has_no_use_for_are_told_and_a_forgotten_normalization_is_not():
    model = Pooled()
    found = {name for name, reason in reasons(model, torch.ones(2, 4, dtype=torch.long)).items() if reason == "unused"}
    assert found == names(model, "bert.pooler") | names(model, "other")


class Recurrent(nn.Module):
    """An embedding, a recurrence and a head."""

    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(5, 4), nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 5)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0])


def test_a_frozen_part_is_used_though_no_gradient_of_it_is_in_the_graph():
    model = Recurrent()
    model.lstm.requires_grad_(False)
    assert "unused" not in reasons(model, torch.ones(2, 4, dtype=torch.long)).values()


class Optional(nn.Module):
    """A block with a bare token, positions, and a projection, of which some blocks or all make no use."""

    def __init__(self, *, uses_projection):
        super().__init__()
        self.local, self.to_all, self.mask_token = nn.Linear(4, 4), nn.Linear(4, 4), nn.Parameter(torch.ones(4))
        self.pos_bias = nn.Parameter(torch.ones(4))
        self.uses_projection = uses_projection

    def forward(self, x):
        return self.local(x) + (self.to_all(x) if self.uses_projection else 0)


def test_what_no_block_reads_is_switched_off_and_what_one_of_them_forgets_is_not():
    off = nn.ModuleDict({"layers": nn.ModuleList(Optional(uses_projection=False) for _ in range(3))})
    forgotten = nn.ModuleDict({"layers": nn.ModuleList(Optional(uses_projection=place != 1) for place in range(3))})

    def unused(model):
        model.forward = lambda x: model.layers[2](model.layers[1](model.layers[0](x)))
        return {name for name, reason in reasons(model, torch.ones(2, 4)).items() if reason == "unused"}

    tokens = {f"layers.{place}.mask_token" for place in range(3)}
    assert unused(off) == tokens | {name for place in range(3) for name in names(off, f"layers.{place}.to_all")}
    assert unused(forgotten) == tokens


class Stacked(nn.Module):
    """A head, and a stack of two layers of which some are called."""

    def __init__(self, called):
        super().__init__()
        self.head, self.deep, self.called = nn.Linear(4, 4), nn.Module(), called
        self.deep.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        for place in self.called:
            x = self.deep.layers[place](x)
        return self.head(x)


@pytest.mark.parametrize(
    ("called", "off"), [([], {f"deep.layers.{place}.{kind}" for place in (0, 1) for kind in ("weight", "bias")}), ([0], set())]
)
def test_a_whole_stack_that_is_not_called_is_switched_off_and_one_block_of_it_is_forgotten(called, off):
    assert {name for name, reason in reasons(Stacked(called), torch.ones(2, 4)).items() if reason == "unused"} == off


class Cut(nn.Module):
    """An encoder, a middle part and a head, of which one path may be cut."""

    def __init__(self, cut):
        super().__init__()
        self.encoder, self.middle, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.cut = cut

    def forward(self, x):
        x = self.encoder(x)
        x = self.middle(x.detach() if self.cut == "encoder" else x)
        return self.head(x.detach() if self.cut == "middle" else x)


@pytest.mark.parametrize("cut", [None, "encoder", "middle"])
def test_a_part_that_is_cut_off_is_not_called_unused(cut):
    assert reasons(Cut(cut), torch.randn(2, 4)) == {}


class Skipping(nn.Module):
    """Two blocks of which the second is never called."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.blocks[0](x))


def test_a_block_that_is_never_called_is_no_unused_part():
    assert reasons(Skipping(), torch.randn(2, 4)) == {}


class Normed(nn.Module):
    """A convolution beside the stream, of which a part makes the weight."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 1))

    def forward(self, x):
        x = self.first(x)
        return self.head(x + self.conv(x.transpose(1, 2)).relu().transpose(1, 2))


def test_a_module_whose_weight_is_made_by_a_part_of_it_is_no_unused_part():
    model = Normed()
    model.conv.requires_grad_(False)
    assert "unused" not in reasons(model, torch.randn(2, 5, 3)).values()


@pytest.mark.parametrize(
    ("layer", "norm", "shape", "expected"),
    [
        (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), (2, 3, 8, 8), True),
        (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False), (2, 3, 8, 8), True),
        (nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), (2, 3, 8), True),
        (nn.ConvTranspose2d(3, 4, 2), nn.BatchNorm2d(4), (2, 3, 8, 8), True),
        (nn.Linear(3, 4), nn.BatchNorm1d(4), (5, 3), True),
        (nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), (2, 3, 8, 8), True),
        (nn.Conv2d(3, 4, 3), nn.GroupNorm(4, 4), (2, 3, 8, 8), True),
        (nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), (2, 3, 8, 8), False),
        (nn.Conv2d(3, 4, 3), nn.GroupNorm(1, 4), (2, 3, 8, 8), False),
        (nn.Linear(3, 4), nn.LayerNorm(4), (5, 3), False),
        (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval(), (2, 3, 8, 8), False),
        (nn.Conv2d(3, 4, 3), nn.Sequential(nn.ReLU(), nn.BatchNorm2d(4)), (2, 3, 8, 8), False),
        (nn.Linear(3, 8), nn.Sequential(nn.Unflatten(1, (2, 4)), nn.BatchNorm1d(2)), (5, 3), False),
    ],
)
def test_a_bias_straight_before_a_normalization_is_told_exactly_where_its_gradient_cancels(layer, norm, shape, expected):
    torch.manual_seed(0)
    model = nn.ModuleDict({"layer": layer.double(), "norm": norm.double()})
    model.forward = lambda x: norm(layer(x))
    x = torch.randn(shape, dtype=torch.float64)
    assert ("layer.bias" in reasons(model, x)) is expected
    out = model(x)
    (out * torch.randn_like(out)).sum().backward()
    cancels = float(layer.bias.grad.norm()) < 1e-9 * float(layer.weight.grad.norm())
    assert cancels is expected


@pytest.mark.parametrize(
    ("scale", "norm", "expected"),
    [
        ((8,), nn.BatchNorm1d(8), True),
        ((), nn.BatchNorm1d(8), True),
        ((), nn.LayerNorm(8), True),
        ((1,), nn.LayerNorm(8), True),
        ((), nn.GroupNorm(2, 8), True),
        ((8,), nn.LayerNorm(8), False),
        ((8,), nn.GroupNorm(2, 8), False),
        ((8,), nn.Identity(), False),
    ],
)
def test_a_scale_straight_before_a_normalization_is_told_exactly_where_its_gradient_cancels(scale, norm, expected):
    torch.manual_seed(0)
    model = nn.ModuleDict({"layer": nn.Linear(3, 8).double(), "norm": norm.double()})
    model.scale = nn.Parameter(torch.full(scale, 1.5, dtype=torch.float64))
    model.forward = lambda x: norm(model.scale * model["layer"](x))
    x = torch.randn(32, 3, dtype=torch.float64)
    assert ("scale" in reasons(model, x)) is expected
    out = model(x)
    (out * torch.randn_like(out)).sum().backward()
    # The small number that a normalization adds to the variance leaves a little.
    cancels = float(model.scale.grad.norm()) < 1e-3 * float(model["layer"].weight.grad.norm())
    assert cancels is expected


def test_a_normalization_straight_before_another_has_neither_scale_nor_bias_of_its_own():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4))
    assert reasons(model, torch.randn(8, 3)) == dict.fromkeys(["0.bias", "1.weight", "1.bias"], "taken_out_by_norm")


def test_heads_that_stand_side_by_side_have_no_depth():
    model = nn.ModuleDict({"layers": nn.ModuleList([Pooled()]), "projection": nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 2)])})
    table = tensor_table(model)
    assert table["projection.1.weight"].block is table["projection.1.weight"].depth is UNSET
    assert table["layers.0.head.weight"].depth == 0
