"""What the loss function was given, as numbers that rules judge, against a hand computation."""

import json
import math

import numpy as np
import pytest

from ckaudit.contract.schema.loss_functions import LossFunctionStats
from ckaudit.metrics.loss import initial_loss_excess
from ckaudit.metrics.loss_function import (
    batch_target_spread,
    explained_share,
    label_smoothing,
    loss_input_misfit,
    loss_term_explained_share,
    loss_term_value,
    loss_to_function_ratio,
    targets_mixed,
)
from ckaudit.run.read import read_run


def of(tmp_path, *sections, losses=None):
    """Return a run whose checkpoints hold these sections, and whose losses are what the functions gave unless told."""
    values = losses or [section.get("value", 1.0) for section in sections]
    for step, (loss, section) in enumerate(zip(values, sections, strict=True), start=1):
        text = json.dumps({"schema_version": "ck.analysis.v1", "step": step, "loss": loss, "loss_function": section})
        (tmp_path / f"analysis_checkpoint_step_{step:08d}.json").write_text(text)
    return read_run(tmp_path, reads=[f"loss_function.{field}" for field in LossFunctionStats.__struct_fields__])


def section(value, constant, batch, *, targets=64, classes=10):
    return {
        "function": "cross_entropy",
        "value": value,
        "constant_value": constant,
        "batch_constant_value": batch,
        "targets": targets,
        "classes": classes,
        "normalized_share": 0.0,
    }


def test_what_is_saved_of_a_constant_guess(tmp_path):
    series = explained_share(of(tmp_path, section(2.3, 2.3, 2.2), section(1.15, 2.3, 2.2), section(4.6, 2.3, 2.2)))
    assert series.values[:, 0] == pytest.approx([0.0, 0.5, -1.0])


def test_a_loss_of_which_the_function_is_a_part_is_not_judged(tmp_path):
    run = of(tmp_path, section(2.3, 2.3, 0.1), section(2.3, 2.3, 0.1), losses=[2.4, 3.9])
    assert explained_share(run).recorded[:, 0].tolist() == [True, False]
    assert batch_target_spread(run).recorded[:, 0].tolist() == [True, False]


def test_of_a_loss_that_cuts_large_errors_the_squares_tell(tmp_path):
    """Of small errors a Huber loss is half of the square; one that is far from that has another part beside it."""
    cut = [section(value, 1.0, 1.0) | {"function": "smooth_l1_loss"} for value in (0.8, 0.4, 0.2, 0.2)]
    series = explained_share(of(tmp_path, *cut, losses=[0.4, 0.2, 0.1, 0.3]))
    assert series.values[:3, 0] == pytest.approx([0.2, 0.6, 0.8])
    assert series.recorded[:, 0].tolist() == [True, True, True, False]


def test_a_loss_whose_sign_was_turned_is_minus_once_its_function(tmp_path):
    ratio = loss_to_function_ratio(of(tmp_path, section(2.3, 2.3, 2.2), section(1.5, 2.3, 2.2), losses=[-2.3, 3.0]))
    assert ratio.values[:, 0] == pytest.approx([-1.0, 2.0])


def test_a_batch_can_be_no_more_varied_than_its_size_allows(tmp_path):
    few = section(6.0, 6.9, 2.7, targets=16, classes=1000)
    series = batch_target_spread(of(tmp_path, section(2.0, 2.3, 0.23), few))
    assert series.values[:, 0] == pytest.approx([0.1, 2.7 / math.log(16)])


def test_fifteen_targets_are_too_few(tmp_path):
    assert not batch_target_spread(of(tmp_path, section(2.0, 2.3, 0.2, targets=15))).recorded.any()


def test_a_rare_class_is_absent_from_batches_by_chance(tmp_path):
    """64 targets of which one in 200 is rare have 2 nats: batches of one class say nothing; with 20 nats they would."""
    run = of(tmp_path, section(0.03, 0.0315, 0.0, classes=2), section(0.3, 0.315, 0.0, classes=2))
    assert batch_target_spread(run).recorded[:, 0].tolist() == [False, True]


def test_what_a_function_does_not_take_depends_on_the_function(tmp_path):
    likelihood = section(2.0, 2.3, 2.2) | {"function": "nll_loss", "normalized_share": 0.25}
    crossed = {"function": "mse_loss", "is_broadcast": True, "targets": 8}
    probabilities = section(2.0, 2.3, 2.2) | {"normalized_share": 1.0}
    series = loss_input_misfit(of(tmp_path, probabilities, likelihood, crossed))
    assert series.labels == ("probabilities", "no log-probabilities", "another shape")
    assert np.array_equal(series.recorded, [[True, False, False], [False, True, False], [False, False, True]])
    assert series.values[series.recorded].tolist() == [1.0, 0.75, 1.0]


def test_a_guess_among_the_classes_that_were_seen_costs_their_log(tmp_path):
    run = of(tmp_path, section(5.9, 2.3, 2.2), section(3.0, 2.3, 2.2))
    assert initial_loss_excess(run).values[:, 0] == pytest.approx([5.9 - math.log(10)])


def test_whether_targets_are_mixed_is_said_of_each_checkpoint(tmp_path):
    sections = [section(2.0, 2.3, 2.2) | {"is_mixed": is_mixed} for is_mixed in (True, False)] + [section(2.0, 2.3, 2.2)]
    series = targets_mixed(of(tmp_path, *sections))
    assert series.values[series.recorded].tolist() == [1.0, 0.0]


def test_smoothing_is_that_of_each_checkpoint(tmp_path):
    sections = [section(2.0, 2.3, 2.2) | {"smoothing": smoothing} for smoothing in (0.1, 0.0)]
    assert label_smoothing(of(tmp_path, *sections)).values[:, 0].tolist() == [0.1, 0.0]


def test_what_each_term_saves_of_a_constant_guess(tmp_path):
    """The own targets of a large batch tell what a guess costs, all so far of a small one, targets that are alike nothing."""
    large = {"targets": 256, "value": 1.0, "constant_value": 4.0, "batch_constant_value": 2.0}
    small = {"targets": 16, "value": 1.0, "constant_value": 4.0, "batch_constant_value": 2.0}
    alike = {"targets": 256, "value": 0.1, "constant_value": 0.0, "batch_constant_value": 0.0}
    document = {"schema_version": "ck.analysis.v1", "step": 1, "loss": 2.1}
    document["loss_terms"] = {"cross_entropy/5": large, "l1_loss/1": alike, "mse_loss/4": small}
    (tmp_path / "analysis_checkpoint_step_00000001.json").write_text(json.dumps(document))
    run = read_run(tmp_path, reads=[f"loss_terms.*.{name}" for name in large])
    saved, values = loss_term_explained_share(run), loss_term_value(run)
    assert dict(zip(saved.labels, saved.values[0], strict=True)) == pytest.approx(
        {"cross_entropy/5": 0.5, "l1_loss/1": np.nan, "mse_loss/4": 0.75}, nan_ok=True
    )
    assert saved.recorded[0].tolist() == [True, False, True]
    assert values.values[0].tolist() == [1.0, 0.1, 1.0]
