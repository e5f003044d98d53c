import msgspec
import pytest
from msgspec import UNSET

from ckaudit.contract.schema.checkpoint import Checkpoint, GradientStats, Histogram, WeightStats
from ckaudit.run.column_builder import ALWAYS, decoder, every_path, unknown_paths

DOCUMENT = msgspec.json.encode(
    Checkpoint(
        schema_version="ck.analysis.v1",
        step=7,
        loss=2.0,
        scalars={"lr": 0.1},
        weights={"w": WeightStats(mean=1.0, std=2.0, histogram=Histogram(bins=[0.0, 1.0], counts=[3.0]))},
        gradients={"w": GradientStats(norm=4.0)},
    )
)


@pytest.mark.parametrize(
    "path",
    [
        "weights.*.mean",
        "attention.*.entropy_per_head",
        "attention.*.causal",
        "optimizer.clip_norm",
        "optimizer.found_inf",
        "weights.*.percentiles",
        "moe.*.counts",
        "parity.loss_diff",
        "cost.ms",
        "loss",
        "scalars.*",
    ],
)
def test_every_number_has_its_path(path):
    assert path in every_path()


@pytest.mark.parametrize(
    "path",
    [
        "weights.*.histogram",
        "weights.*.sampled_grid_32x32",
        "attention.*.sampled_qk_grid_32x32_per_head",
        "history.loss",
        "weights.*.dtype",
        "attention.*.kind_per_head",
        "step",
        "optimizer.groups",
        "data.token_histogra",
    ],
)
def test_what_is_no_number_has_none(path):
    assert path not in every_path()


def test_a_misspelt_path_is_named():
    assert unknown_paths(["weights.*.mean", "weights.*.maen", "wieghts.*.mean"]) == ["weights.*.maen", "wieghts.*.mean"]


def test_a_decoder_keeps_what_was_asked_for_and_skips_the_rest():
    found = decoder(frozenset({"weights.*.mean"})).decode(DOCUMENT)
    assert msgspec.structs.asdict(found.weights["w"]) == {"mean": 1.0}
    assert not hasattr(found, "gradients")


def test_a_decoder_always_keeps_identity_loss_and_scalars():
    found = decoder(frozenset()).decode(DOCUMENT)
    assert ALWAYS == ("loss", "scalars.*")
    assert (found.step, found.loss, found.scalars, found.session) == (7, 2.0, {"lr": 0.1}, UNSET)


def test_a_narrow_decoder_still_checks_what_it_keeps():
    broken = DOCUMENT.replace(b'"mean":1.0', b'"mean":"high"')
    with pytest.raises(msgspec.ValidationError):
        decoder(frozenset({"weights.*.mean"})).decode(broken)
    assert decoder(frozenset({"weights.*.std"})).decode(broken).weights["w"].std == 2.0
