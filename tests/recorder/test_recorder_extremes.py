"""What must not cost a run its record, or its memory: a value that is no scalar, and weights of half precision."""

import tracemalloc

import numpy as np

from ckaudit.recorder.model.weight_movement import distances
from ckaudit.recorder.stats.batched_stats import measure


def test_a_value_that_cannot_be_written_costs_its_own_line_and_no_other(tiny, train, tmp_path, lines):
    recorder = train(tiny(), 3, tmp_path, close=False)
    for value in (2**70, "half of a pair: \ud800"):
        recorder.log(odd=value)
        recorder.step(1.0)
        recorder.step(1.0)
    recorder.close()
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4, 5, 7]


def test_tensors_of_half_precision_are_not_widened_all_at_once():
    arrays = [np.full(2**21, 0.5, np.float16) for _ in range(6)]  # 24 MiB; 48 as float32
    for look in (lambda: measure(arrays), lambda: distances(arrays, arrays)):
        tracemalloc.start()
        look()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 16 * 2**20
