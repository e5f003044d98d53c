import json
import math

import numpy as np
import pytest

from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.metrics.gradients import (
    block_gradient_norm,
    boxed_gradient_norm,
    grad_carried_over,
    grad_global_norm,
    grad_to_weight,
    gradient_norm,
    gradient_share,
    gradient_zero_fraction,
    top_gradient_share,
    waterfall_ratio,
)
from ckaudit.run.read import read_run
from tests.metrics.samples import NAN, TENSORS, cells, close, random_run, rows_of, run_of

NORMS = "gradients.*.norm"


def norms(rows, **more):
    return run_of({NORMS: rows}, **more)


def of_step(recorded, step):
    return [value for (at, _), value in recorded.items() if at == step]


def test_gradient_norm_is_what_was_recorded():
    run = random_run()
    assert close(cells(gradient_norm(run)), rows_of(run, NORMS))


def test_zero_fraction_is_what_was_recorded():
    run = random_run()
    assert close(cells(gradient_zero_fraction(run)), rows_of(run, "gradients.*.zero_fraction"))


def test_global_norm_is_the_norm_of_all_gradients_laid_end_to_end():
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(size=(3, 4)) for name in "abc"}
    run = norms({5: {name: float(np.linalg.norm(values)) for name, values in tensors.items()}})
    expected = float(np.linalg.norm(np.concatenate([values.ravel() for values in tensors.values()])))
    assert cells(grad_global_norm(run)) == {(5, "grad_global_norm"): pytest.approx(expected)}


def test_logged_global_norm_counts_and_checkpoints_fill_the_rest():
    run = run_of({NORMS: {2: {"a": 3.0, "b": 4.0}, 5: {"a": 6.0, "b": 8.0}}}, {"grad_global_norm": [1.0, 2.0, 3.0]})
    found = {step: value for (step, _), value in cells(grad_global_norm(run)).items()}
    assert found == {1: 1.0, 2: 2.0, 3: 3.0, 5: 10.0}


def test_global_norm_is_not_recorded_where_a_tensor_is_missing_and_nan_where_one_is_nan():
    run = norms({1: {"a": 3.0, "b": 4.0}, 2: {"a": 3.0}, 3: {"a": NAN, "b": 4.0}})
    assert close(cells(grad_global_norm(run)), {(1, "grad_global_norm"): 5.0, (3, "grad_global_norm"): NAN})


def test_block_norm_against_a_slow_loop():
    run = random_run()
    recorded, expected = rows_of(run, NORMS), {}
    for step in gradient_norm(run).steps:
        for block in ("0", "1"):
            members = [name for name in TENSORS if name.split(".")[1] == block and name.startswith("h.")]
            if all((step, name) in recorded for name in members):
                total = sum(recorded[step, name] ** 2 for name in members)
                expected[int(step), f"h.{block}"] = math.sqrt(total)
    assert close(cells(block_gradient_norm(run)), expected)


EXPERTS = ["h.0.mlp.experts.0.w", "h.0.mlp.experts.1.w"]


def mixture(*gradients):
    """Return a run of one block with two experts."""
    rows = (zip(["h.0.attn.w", *EXPERTS], row, strict=True) for row in gradients)
    return norms({step: {name: value for name, value in row if value is not None} for step, row in enumerate(rows, 1)})


def test_an_expert_without_a_token_adds_nothing_to_the_norms():
    run = mixture((3.0, 4.0, 12.0), (3.0, 4.0, None), (3.0, None, 4.0))
    assert cells(block_gradient_norm(run)) == {(1, "h.0"): 13.0, (2, "h.0"): 5.0, (3, "h.0"): 5.0}
    assert cells(grad_global_norm(run)) == {(step, "grad_global_norm"): value for step, value in ((1, 13.0), (2, 5.0), (3, 5.0))}
    assert cells(gradient_share(run))[2, EXPERTS[0]] == pytest.approx(16 / 25)
    assert cells(gradient_share(run))[2, EXPERTS[1]] == 0.0
    assert (2, EXPERTS[1]) not in cells(gradient_norm(run))


def test_experts_are_not_idle_where_none_has_a_gradient():
    assert {step for step, _ in cells(block_gradient_norm(mixture((3.0, 4.0, 12.0), (3.0, None, None))))} == {1}


def test_blocks_stand_in_the_order_of_depth_and_leave_the_rest_out():
    row = {"lm_head.weight": 9.0, "h.10.w": 1.0, "h.2.w": 2.0, "wte.weight": 9.0, "h.0.w": 3.0}
    found = block_gradient_norm(norms({1: row}))
    assert found.labels == ("h.0", "h.2", "h.10")
    assert found.values.tolist() == [[3.0, 2.0, 1.0]]


def test_the_tensor_table_tells_blocks_that_names_do_not():
    facts = {"x": TensorFacts(depth=1), "y": TensorFacts(depth=0), "h.7.w": TensorFacts()}
    found = block_gradient_norm(norms({1: {"x": 1.0, "y": 2.0, "h.7.w": 3.0}}, tensors=facts))
    assert (found.labels, found.values.tolist()) == (("block.0", "block.1"), [[2.0, 1.0]])


def test_a_block_behind_a_factor_of_zero_is_not_recorded_until_that_has_moved():
    def run(*values):
        return norms(
            {step: {"blocks.0.up": value, "blocks.1.up": 1.0} for step, value in zip([0, 1, 10, 30], values, strict=True)}
        )

    def recorded(*values):
        return [value for (_, label), value in sorted(cells(block_gradient_norm(run(*values))).items()) if label == "blocks.0"]

    assert recorded(0.0, 0.0, 2.0, 3.0) == [2.0, 3.0]
    assert recorded(0.0, 0.0, 0.0, 3.0) == [3.0]
    assert recorded(0.0, 0.0, 0.0, 0.0) == [0.0, 0.0, 0.0, 0.0]
    assert recorded(0.0, 2.0, 0.0, 3.0) == [2.0, 0.0, 3.0]
    assert recorded(2.0, 0.0, 0.0, 0.0) == [2.0, 0.0, 0.0, 0.0]


def test_waterfall_by_hand():
    run = norms({1: {"h.0.w": 0.5, "h.1.w": 4.0, "h.2.w": 2.0}})
    assert waterfall_ratio(run).values.tolist() == [[4.0, 0.5, 1.0]]


def test_a_block_without_any_gradient_has_a_finite_ratio_beyond_every_limit():
    assert cells(waterfall_ratio(norms({1: {"h.0.w": 0.0, "h.1.w": 3.0}})))[1, "h.0"] == pytest.approx(1e12)


def test_waterfall_is_not_recorded_without_the_last_block():
    run = norms(
        {1: {"h.0.w": 1.0, "h.1.w": 0.0}, 2: {"h.0.w": 1.0}, 3: {"h.0.w": 1.0, "h.1.w": 1.0}, 4: {"h.0.w": 1.0, "h.1.w": NAN}}
    )
    expected = {(3, "h.0"): 1.0, (3, "h.1"): 1.0, (4, "h.0"): NAN, (4, "h.1"): NAN}
    assert close(cells(waterfall_ratio(run)), expected)


def test_shares_are_squares_over_their_sum_and_sum_to_one():
    run = norms({1: {"a": 3.0, "b": 4.0}})
    assert close(cells(gradient_share(run)), {(1, "a"): 9 / 25, (1, "b"): 16 / 25})
    random = cells(gradient_share(random_run()))
    whole = [of_step(random, step) for step in {step for step, _ in random}]
    assert all(sum(row) == pytest.approx(1.0) for row in whole if not any(map(math.isnan, row)))


def test_shares_of_a_zero_or_incomplete_gradient_are_not_recorded_and_of_a_nan_one_are_nan():
    run = norms({1: {"a": 0.0, "b": 0.0}, 2: {"a": 1.0}, 3: {"a": NAN, "b": 1.0}})
    assert close(cells(gradient_share(run)), {(3, "a"): NAN, (3, "b"): NAN})
    assert close(cells(top_gradient_share(run)), {(3, "top_gradient_share"): NAN})


def test_huge_gradients_keep_their_shares():
    assert close(cells(gradient_share(norms({1: {"a": 3e100, "b": 4e100}}))), {(1, "a"): 0.36, (1, "b"): 0.64})


def test_top_share_is_the_largest_unless_it_was_logged():
    run = run_of({NORMS: {1: {"a": 3.0, "b": 4.0}, 3: {"a": 1.0, "b": 0.0}}}, {"top_gradient_share": [0.5, 0.6]})
    found = {step: value for (step, _), value in cells(top_gradient_share(run)).items()}
    assert found == {1: 0.5, 2: 0.6, 3: 1.0}


def test_what_is_carried_over_is_what_the_recorder_saw_where_it_looked():
    run = run_of(
        scalars={
            "grad_carried_over": {10: {"grad_carried_over": 0.0}, 20: {"grad_carried_over": 0.75}, 40: {"grad_carried_over": NAN}}
        }
    )
    expected = {(10, "grad_carried_over"): 0.0, (20, "grad_carried_over"): 0.75, (40, "grad_carried_over"): NAN}
    assert close(cells(grad_carried_over(run)), expected)
    assert not grad_carried_over(run_of())


def test_black_boxes_give_a_row_of_every_step_they_hold_once(tmp_path):
    boxes = {50: ([48, 49, 50], {"a": [1.0, 2.0, 3.0], "b": [4.0, None, "NaN"]}), 51: ([49, 50, 51], {"a": [9.0, 9.0, 5.0]})}
    for step, (steps, columns) in boxes.items():
        document = {
            "schema_version": "ck.analysis.v1",
            "step": step,
            "event_step": step,
            "history": {"steps": steps, "loss": [1.0, 1.0, 1.0], "gradient_norms": columns},
        }
        (tmp_path / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))
    found = boxed_gradient_norm(read_run(tmp_path, reads=boxed_gradient_norm.paths))
    expected = {(48, "a"): 1.0, (49, "a"): 2.0, (50, "a"): 3.0, (51, "a"): 5.0, (48, "b"): 4.0, (50, "b"): NAN}
    assert close(cells(found), expected)


def test_grad_to_weight_meets_on_shared_steps_and_tensors():
    run = run_of(
        {
            NORMS: {1: {"a": 1.0, "b": 2.0}, 2: {"b": 3.0, "a": NAN}, 3: {"a": 4.0}},
            "weights.*.frobenius_norm": {0: {"b": 7.0}, 1: {"b": 4.0, "a": 0.0, "c": 1.0}, 2: {"a": 1.0}, 4: {"a": 1.0}},
        }
    )
    assert close(cells(grad_to_weight(run)), {(1, "b"): 0.5, (2, "a"): NAN})
