"""A run of any length is read a file at a time: what stays of each is small."""

import tracemalloc

from ckaudit.validate import validate
from tests.validate.material import checkpoint, name_of, write


def peak(folder) -> int:
    tracemalloc.start()
    validate([folder])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_a_checkpoint_more_costs_less_than_two_kilobytes(tmp_path):
    weights = {f"blocks.{block}.w": {"shape": [64, 64], "dtype": "float32", "mean": 0.0, "std": 0.1} for block in range(300)}
    for folder, count in (("few", 20), ("many", 120)):
        (tmp_path / folder).mkdir()
        for step in range(count):
            write(tmp_path / folder / name_of(10 * step), checkpoint(10 * step, weights=weights, gradients={}, scalars={}))
    validate([tmp_path / "few"])
    few, many = peak(tmp_path / "few"), peak(tmp_path / "many")
    assert many - few < 100 * 2048
