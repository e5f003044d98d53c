"""Paths into checkpoints, decoders that keep only what a path asks for, and the columns that are gathered."""

import msgspec
import numpy as np
import pytest
from msgspec import UNSET

from ckaudit.contract.io.columns import columns_of, table
from ckaudit.contract.schema.checkpoint import AttentionStats, Checkpoint, GradientStats, Histogram, MoeStats, WeightStats
from ckaudit.run.column_builder import ColumnCollector, cells_of, decoder, every_path, flatten_lists, unknown_paths
from ckaudit.run.scalars import FILLED
from tests.metrics.samples import NAN, cells, close

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
    assert FILLED == ("loss", "scalars.*")
    assert (found.step, found.loss, found.scalars, found.session) == (7, 2.0, {"lr": 0.1}, UNSET)


def test_a_narrow_decoder_still_checks_what_it_keeps():
    broken = DOCUMENT.replace(b'"mean":1.0', b'"mean":"high"')
    with pytest.raises(msgspec.ValidationError):
        decoder(frozenset({"weights.*.mean"})).decode(broken)
    assert decoder(frozenset({"weights.*.std"})).decode(broken).weights["w"].std == 2.0


def collected(*rows):
    collector = ColumnCollector("gradients.*.norm")
    for step, labels, values in rows:
        collector.add(step, labels, values)
    return collector.series("1")


def test_unset_is_not_recorded_and_a_word_is_a_number():
    found = collected((1, ("a", "b", "c", "d", "e"), (1.0, UNSET, "NaN", "-Infinity", None)))
    assert close(cells(found), {(1, "a"): 1.0, (1, "c"): NAN, (1, "d"): -np.inf})


def test_tensors_that_come_and_go_share_one_table():
    found = collected((1, ("a", "b"), (1.0, 2.0)), (2, ("b", "c"), (3.0, 4.0)), (3, (), ()))
    assert found.labels == ("a", "b", "c")
    assert cells(found) == {(1, "a"): 1.0, (1, "b"): 2.0, (2, "b"): 3.0, (2, "c"): 4.0}


def test_the_same_tensors_in_another_order_go_to_their_own_columns():
    assert cells(collected((1, ("a", "b"), (1.0, 2.0)), (2, ("b", "a"), (3.0, 4.0))))[2, "a"] == 4.0


def test_steps_are_sorted_and_one_that_comes_twice_keeps_its_order():
    found = collected((30, ("a",), (3.0,)), (10, ("a",), (1.0,)), (30, ("a",), (4.0,)))
    assert (found.steps.tolist(), found.values.ravel().tolist()) == ([10, 30, 30], [1.0, 3.0, 4.0])


def test_many_rows_of_one_step_keep_their_order():
    rows = [(step, ("a",), (float(index),)) for index, step in enumerate([2, 1] * 100)]
    expected = [float(index) for index in [*range(1, 200, 2), *range(0, 200, 2)]]
    assert collected(*rows).values.ravel().tolist() == expected


def test_nothing_collected_is_an_empty_series():
    assert not collected()


def test_truth_values_are_one_and_zero():
    assert collected((1, ("a", "b"), (True, False))).values.tolist() == [[1.0, 0.0]]


def test_heads_are_labelled_by_layer_and_number():
    section = {
        "l.0": AttentionStats(entropy_per_head=[1.0, "NaN"]),
        "l.1": AttentionStats(),
        "l.2": AttentionStats(entropy_per_head=[2.0]),
    }
    labels, values = cells_of(tuple(section), columns_of(section), "entropy_per_head")
    assert labels == ("l.0/head.0", "l.0/head.1", "l.2/head.0")
    assert list(values) == [1.0, "NaN", 2.0]


@pytest.mark.parametrize(
    ("section", "field", "first"),
    [
        ({"w": WeightStats(percentiles=[1.0] * 7)}, "percentiles", "w/percentile.0"),
        ({"m": MoeStats(counts=[5.0, 6.0])}, "counts", "m/expert.0"),
        ({"w": WeightStats(shape=[2, 3])}, "shape", "w/dimension.0"),
    ],
)
def test_parts_are_named_after_what_they_are(section, field, first):
    assert cells_of(tuple(section), columns_of(section), field)[0][0] == first


def test_a_field_nobody_recorded_has_no_cells():
    assert cells_of(("a",), columns_of({"a": GradientStats(norm=1.0)}), "std") == ((), ())


def test_flattening_nothing_gives_nothing():
    assert flatten_lists(("l.0",), [UNSET], "head") == ((), [])


def test_columns_for_reading_are_those_of_the_whole_table():
    section = {"a": GradientStats(norm=1.0), "b": GradientStats(norm="NaN", zero_fraction=0.5), "c": GradientStats()}
    assert columns_of(section) == dict(table(section).columns)
    assert list(columns_of(section)) == ["norm", "zero_fraction"]
    assert columns_of({}) == dict(table({}).columns) == {}
