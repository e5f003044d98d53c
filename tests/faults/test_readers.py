"""Whoever reads a run beside its recorder finds no file torn; `readers.py` reads longer."""

import pytest

from tests.faults.readers import read_beside


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_torn_for_who_reads_beside_a_recorder(seed):
    assert read_beside(200, seed) == []
