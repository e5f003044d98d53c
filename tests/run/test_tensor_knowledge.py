import pytest
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.run.run import Run
from ckaudit.run.tensors import TensorTable, loss_vocabulary


def test_an_encoder_and_a_decoder_have_blocks_of_their_own():
    names = ["encoder.block.3.layer.0.SelfAttention.q.weight", "decoder.block.3.layer.0.SelfAttention.q.weight"]
    assert TensorTable({}).blocks(names) == ["encoder.block.3", "decoder.block.3"]


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("layer1.0.conv1.weight", "layer1.0"),
        ("swin.layers.0.blocks.1.mlp.fc1.weight", "swin.layers.0.blocks.1"),
        ("resnet.encoder.stages.2.layers.1.layer.0.convolution.weight", "resnet.encoder.stages.2.layers.1"),
        ("lora_A.0.weight", None),
        ("embeddings.0.weight", None),
        ("heads.1.weight", None),
        ("classifier.4.weight", None),
        ("decode_head.layers.0.weight", None),
        ("time_mlp.2.weight", None),
        ("git.visual_projection.visual_projection.0.weight", None),
        ("gpt2_heads_up.h.0.weight", "gpt2_heads_up.h.0"),
        ("timeseries.layers.1.weight", "timeseries.layers.1"),
        ("h.3.mlp.experts.5.w1", "h.3"),
    ],
)
def test_blocks_bear_the_name_of_their_module(name, block):
    assert TensorTable({}).block(name) == block


def test_stacks_stay_together_in_the_order_of_depth():
    given = ["encoder.block.10", "encoder.block.9", "decoder.block.0"]
    assert TensorTable({}).in_depth_order(given) == ["encoder.block.9", "encoder.block.10", "decoder.block.0"]


@pytest.mark.parametrize(
    ("kind", "vocabulary", "expected"),
    [
        (UNSET, UNSET, "unknown"),
        (UNSET, 100, "nats_per_token"),
        ("other", 100, "other"),
        ("nats_per_token", UNSET, "nats_per_token"),
    ],
)
def test_what_a_loss_counts(kind, vocabulary, expected):
    manifest = Manifest(schema_version="ck.run.v1", loss_kind=kind, vocabulary=vocabulary)
    assert Run("run", manifest=manifest).loss_kind == expected


@pytest.mark.parametrize(
    ("kind", "vocabulary", "expected"),
    [(UNSET, UNSET, None), (UNSET, 100, 100), ("other", 100, None), ("nats_per_token", 100, 100), (UNSET, 0, None)],
)
def test_a_uniform_guess_is_known_of_losses_of_tokens_alone(kind, vocabulary, expected):
    assert loss_vocabulary(Manifest(schema_version="ck.run.v1", loss_kind=kind, vocabulary=vocabulary)) == expected
