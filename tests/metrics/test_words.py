import gzip
import json

import pytest

from ckaudit.metrics.words import element_type, optimizer_adapts, replica_agreement, tensors_without_optimizer, tensors_written
from ckaudit.run.column_builder import OPTIMIZERS
from ckaudit.run.read import read_run
from tests.metrics.samples import NAN, cells, close, run_of

READS = (
    "weights.*.dtype",
    "activations.*.dtype",
    "optimizer.trainable_without_optimizer",
    "optimizer.written",
    "rank_facts.parameter_hash",
    "optimizer.name",
)


@pytest.fixture
def written(tmp_path):
    """A run of two checkpoints and two ranks, spelt out as files."""

    def write(name, step, **parts):
        document = {"schema_version": "ck.analysis.v1", "step": step, **parts}
        with gzip.open(tmp_path / f"analysis_checkpoint_step_{step:08d}{name}.json.gz", "wt") as file:
            json.dump(document, file)

    write(
        "",
        10,
        weights={"w": {"dtype": "float32"}, "v": {"dtype": "int4"}},
        activations={"a": {"dtype": "bfloat16"}, "b": {}},
        optimizer={"trainable_without_optimizer": [], "name": "SGD"},
    )
    write(
        "",
        20,
        weights={"w": {"dtype": "float16"}, "v": {"dtype": "int4"}},
        activations={"a": {"dtype": "float32"}, "b": {}},
        optimizer={"trainable_without_optimizer": ["w", "v"], "written": ["v"], "name": "AdamW"},
    )
    write("", 30, optimizer={"name": "SGD+Adam"})
    write("", 40, optimizer={"state_finite": True})
    for step, hashes in ((10, ("sum64:ab", "sum64:ab", "sum64:ab")), (20, ("sum64:ab", "sum64:ab", "sum64:cd"))):
        for rank, word in enumerate(hashes):
            write(f".rank{rank:03d}", step, rank=rank, rank_facts={"parameter_hash": word})
    return read_run(tmp_path, reads=READS)


def test_types_are_numbers_that_are_equal_where_the_types_are(written):
    found = cells(element_type(written))
    other = found.pop((10, "weights/v"))
    assert other == found.pop((20, "weights/v")) > 5
    expected = {(10, "weights/w"): 0.0, (20, "weights/w"): 2.0, (10, "activations/a"): 1.0, (20, "activations/a"): 0.0}
    assert found == expected


def test_tensors_that_no_group_holds_have_a_column_each_beside_their_number(written):
    series = tensors_without_optimizer(written)
    assert cells(series) == {
        (10, "tensors_without_optimizer"): 0.0,
        (20, "tensors_without_optimizer"): 2.0,
        (20, "w"): 1.0,
        (20, "v"): 1.0,
    }


def test_agreement_is_the_share_of_the_commonest_hash(written):
    assert close(cells(replica_agreement(written)), {(10, "replica_agreement"): 1.0, (20, "replica_agreement"): 2 / 3})


def test_one_rank_agrees_with_nobody():
    run = run_of({"rank_facts.parameter_hash": {10: {"rank.0": 7.0, "rank.1": NAN}, 20: {"rank.0": 7.0}}})
    assert list(cells(replica_agreement(run))) == [(10, "replica_agreement")]


def test_sgd_goes_by_the_gradient_adam_divides_it_and_of_others_nothing_is_said(written):
    assert cells(optimizer_adapts(written)) == {(10, "optimizer_adapts"): 0.0, (20, "optimizer_adapts"): 1.0}


def test_optimizers_whose_steps_are_not_the_rates_are_left_out():
    names = {step: {"optimizer.name": float(OPTIMIZERS.index(name))} for step, name in enumerate(OPTIMIZERS)}
    found = {OPTIMIZERS[step]: value for (step, _), value in cells(optimizer_adapts(run_of({"optimizer.name": names}))).items()}
    assert set(OPTIMIZERS) - set(found) == {"Adagrad", "Adadelta", "Adafactor"}
    assert [name for name, value in found.items() if value == 0] == ["SGD"]


def test_tensors_that_were_written_to_are_counted_and_named(written):
    assert cells(tensors_written(written)) == {(20, "tensors_written"): 1.0, (20, "v"): 1.0}
