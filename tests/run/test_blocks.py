"""Columns computed block by block hold what they would hold computed at once, in less memory."""

import tracemalloc

import numpy as np
import pytest

from ckaudit.run.blocks import BLOCK_ROWS, blocks, by_blocks
from ckaudit.run.robust import decimal_step, least_decimal_step, resolution
from ckaudit.run.series import single
from ckaudit.run.spikes import passing_peaks

ROWS = 2 * BLOCK_ROWS + 17


def test_blocks_cover_every_row_once():
    assert np.concatenate([np.arange(ROWS)[rows] for rows in blocks(ROWS)]).tolist() == list(range(ROWS))
    assert list(blocks(0)) == []


def test_what_is_computed_by_blocks_is_what_is_computed_at_once():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, ROWS))
    np.testing.assert_array_equal(by_blocks(lambda a, b: a / np.abs(b), one, other), one / np.abs(other))
    np.testing.assert_array_equal(by_blocks(np.greater, one, other, dtype=bool), one > other)


def test_the_least_decimal_step_is_that_of_the_number_with_most_decimals():
    values = np.round(np.random.default_rng(0).normal(size=ROWS), 3)
    values[[0, BLOCK_ROWS, -1]] = 2.5, 0.0625, 1.0
    assert least_decimal_step(values) == decimal_step(values).min() == 1e-4
    assert resolution(values)[[0, BLOCK_ROWS, -1]].tolist() == [0.1, 2.0**-11, 1.0]


@pytest.mark.parametrize(
    ("broken", "is_copied"), [([], False), ([0, 1, 2], False), ([ROWS - 1], False), ([5], True), ([0, 5, ROWS - 1], True)]
)
def test_finite_points_are_those_that_are_finite(broken: list[int], *, is_copied: bool):
    values = np.arange(float(ROWS))
    values[broken] = np.nan
    steps, found = single("loss", "1", np.arange(ROWS), values).finite_points()
    assert steps.tolist() == found.tolist() == [row for row in range(ROWS) if row not in broken]
    assert np.shares_memory(found, values) is not is_copied


def test_no_points_are_finite_where_none_is():
    for values in (np.full(3, np.nan), np.empty(0)):
        steps, found = single("loss", "1", np.arange(len(values)), values).finite_points()
        assert len(steps) == len(found) == 0


def test_peaks_of_a_long_log_take_six_times_the_memory_of_its_losses():
    values = np.round(np.random.default_rng(0).normal(3.0, 0.01, 10 * BLOCK_ROWS), 4)
    values[5 * BLOCK_ROWS] = 90.0
    tracemalloc.start()
    try:
        peaks = passing_peaks(values)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(first, last) for first, last, _ in peaks] == [(5 * BLOCK_ROWS, 5 * BLOCK_ROWS)]
    assert most < 6 * values.nbytes
