from statistics import mean

import pytest

from ckaudit.metrics.hardware import comm_time_frac, compute_time_frac, dataloader_stall_frac, gpu_mem_used, gpu_util
from tests.metrics.samples import NAN, cells, close, run_of

PARTS = [(dataloader_stall_frac, "input_time"), (comm_time_frac, "comm_time"), (compute_time_frac, "compute_time")]


@pytest.mark.parametrize(("metric", "part"), PARTS, ids=[metric.name for metric, _ in PARTS])
def test_parts_of_the_step_are_means_over_ranks_and_else_as_logged(metric, part):
    whole = {10: {"rank.0": 2.0, "rank.1": 4.0}, 20: {"rank.0": 2.0, "rank.1": NAN}, 30: {"rank.0": 0.0}}
    some = {10: {"rank.0": 0.5, "rank.1": 3.0}, 20: {"rank.0": 0.1, "rank.1": 1.0}, 30: {"rank.0": 1.0}}
    logged = {metric.name: {20: {metric.name: 0.9}, 25: {metric.name: 0.3}}}
    found = cells(metric(run_of({"rank_facts.step_time": whole, f"rank_facts.{part}": some}, logged)))
    expected = {10: mean([0.25, 0.75]), 20: 0.05, 25: 0.3}
    assert close(found, {(step, metric.name): value for step, value in expected.items()})


def test_memory_is_that_logged_or_the_fullest_ranks():
    ranks = {"rank_facts.memory_used": {10: {"rank.0": 5.0, "rank.1": 7.0}, 20: {"rank.0": 6.0}}}
    assert cells(gpu_mem_used(run_of(ranks))) == {(10, "gpu_mem_used"): 7.0, (20, "gpu_mem_used"): 6.0}
    logged = {"gpu_mem_used": {1: {"0": 3.0, "1": 4.0}}}
    assert cells(gpu_mem_used(run_of(ranks, logged))) == {(1, "0"): 3.0, (1, "1"): 4.0}


def test_utilisation_by_device():
    assert cells(gpu_util(run_of(scalars={"gpu_util": {1: {"0": 98.0, "1": 12.0}}}))) == {(1, "0"): 98.0, (1, "1"): 12.0}
