"""Many places by one name: exactly all of a module, a layer or the model, and nothing else."""

import pytest

from ckaudit.run.tensor_groups import group_of, known_places
from tests.cases import run_of

BLOCK = ("attn_norm", "attn.q", "attn.k", "attn.v", "attn.out", "mlp_norm", "mlp.up", "mlp.down")
TENSORS = frozenset(["tokens.weight", *(f"blocks.{index}.{part}.weight" for index in range(12) for part in BLOCK)])
GPT = frozenset(
    f"h.{index}.{part}" for index in range(2) for part in ("ln_1.weight", "ln_1.bias", "attn.c.weight", "mlp.c.weight")
)
HEADS = frozenset(f"layer.{layer}/head.{head}" for layer in range(3) for head in range(4))
BLOCKS = frozenset(f"blocks.{index}" for index in range(12))


def name(places, noun="tensors", known=TENSORS):
    group = group_of(list(places), [(noun, known)])
    return group and group.as_place()


def inside(*prefixes, known=TENSORS):
    return {place for place in known if place.startswith(prefixes)}


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (inside("blocks.2."), "all 8 tensors of blocks.2"),
        (inside("blocks.1."), "all 8 tensors of blocks.1"),  # and not those of blocks.10 and blocks.11
        (inside("blocks.1.attn."), "all 4 tensors of blocks.1.attn"),
        (inside("blocks.1.attn"), "all 5 tensors of blocks.1.attn"),  # with its norm
        (inside("blocks.1.mlp"), "all 3 tensors of blocks.1.mlp"),
        (TENSORS, "all 97 tensors"),
        (inside("blocks.1.", "blocks.10."), "all 16 tensors of blocks.1 and blocks.10"),
    ],
)
def test_all_tensors_of_a_module_bear_its_name(places, expected):
    assert name(places) == expected


@pytest.mark.parametrize(
    "places",
    [
        inside("blocks.2.") - {"blocks.2.attn.q.weight"},
        inside("blocks.2.") | {"blocks.3.attn.q.weight"},
        inside("blocks.1.", "blocks.2.", "blocks.3."),
        {"blocks.1.attn.q.weight"},
        {"blocks.1.attn.q.weight", "blocks.2.attn.q.weight"},
        {"blocks.1.attn.q.weight", "blocks.1.attn.k.weight"},
        {"loss", "grad_global_norm"},
        {"tokens.weight", "somewhere else"},
        set(),
    ],
)
def test_fewer_more_or_scattered_places_have_no_name(places):
    assert name(places) is None


def test_a_norm_with_a_name_of_its_own_is_named_beside_its_module():
    assert name(inside("h.0.ln_1", "h.0.attn", known=GPT), known=GPT) == "all 3 tensors of h.0.attn and h.0.ln_1"


def test_heads_are_those_of_a_layer_or_of_the_model():
    assert name(HEADS, "heads", HEADS) == "all 12 heads"
    assert name(inside("layer.0", known=HEADS), "heads", HEADS) == "all 4 heads of layer.0"
    assert name(inside("layer.0", "layer.2", known=HEADS), "heads", HEADS) == "all 8 heads of layer.0 and layer.2"
    assert name(inside("layer.0", known=HEADS) - {"layer.0/head.3"}, "heads", HEADS) is None
    assert name({"layer.0/head.0", "layer.1/head.0"}, "heads", HEADS) is None


def test_a_group_is_the_subject_of_a_sentence_too():
    group = group_of(sorted(inside("blocks.2.")), [("tensors", TENSORS)])
    assert group is not None
    assert group.as_subject(" by step 20") == "blocks.2 (all 8 tensors by step 20)"
    whole = group_of(sorted(HEADS), [("heads", HEADS)])
    assert whole is not None
    assert whole.as_subject() == "the model (all 12 heads)"


def test_a_run_knows_its_places_by_kind():
    cells = {"steps": [10], "value": 1.0}
    run = run_of(
        {
            "name": "x",
            "facts": {"tensors": {"blocks.0.w": {"depth": 0}, "blocks.0.still": {"depth": 0, "trainable": False}}},
            "sections": {
                "weights.*.frobenius_norm": {"labels": ["blocks.0.w", "blocks.1.w", "head.w"], **cells},
                "activations.*.rms": {"labels": ["blocks.0", "blocks.1", "blocks.1.mlp.experts.0", "head"], **cells},
                "attention.*.entropy_per_head": {"labels": ["layer.0/head.0", "layer.0/head.1"], **cells},
                "attention.*.keys": {"labels": ["layer.0"], **cells},
            },
        }
    )
    known = known_places(run)
    assert group_of(["blocks.0.w", "head.w"], known) is None
    told = {
        "all 4 tensors": ["blocks.0.w", "blocks.0.still", "blocks.1.w", "head.w"],
        "all 3 trainable tensors": ["blocks.0.w", "blocks.1.w", "head.w"],
        "both trainable tensors of blocks": ["blocks.0.w", "blocks.1.w"],
        "both heads": ["layer.0/head.0", "layer.0/head.1"],
        "both blocks": ["blocks.1", "blocks.0"],
        "all 4 modules": ["blocks.0", "blocks.1", "blocks.1.mlp.experts.0", "head"],
    }
    for expected, places in told.items():
        group = group_of(places, known)
        assert group is not None
        assert group.as_place() == expected
