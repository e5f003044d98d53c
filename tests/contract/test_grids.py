import numpy as np
import pytest

from ckaudit.contract.io.grids import encode_grid, encode_grids, nest, pack, sample_indices, unpack
from ckaudit.contract.schema.checkpoint import PackedGrid

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 64, 100, 151_936])
def test_indices_are_floor_i_n_over_32(size):
    expected = [i * size // 32 for i in range(32)] if size > 32 else list(range(size))
    assert sample_indices(size).tolist() == expected


@pytest.mark.parametrize("shape", [(32, 32), (3, 7), (4, 32, 32), (1, 1)])
def test_packing_is_off_by_half_a_step_at_most(shape):
    values = RANDOM.normal(size=shape)
    grid = pack(values)
    assert grid.shape == list(shape)
    assert np.abs(unpack(grid) - values).max() <= (values.max() - values.min()) / 255 / 2 * 1.000001


def test_the_extremes_and_constants_are_packed_exactly():
    assert unpack(pack([[-3.0, 5.0]])).tolist() == [[-3.0, 5.0]]
    assert unpack(pack([[0.7, 0.7]])).tolist() == [[0.7, 0.7]]


def test_nested_numbers_have_four_digits_and_words():
    assert nest([[0.123456, float("nan")], [float("-inf"), 12345.0]]) == [[0.1235, "NaN"], ["-Infinity", 12340.0]]
    assert encode_grids([[[0.123456]], [[12345.0]]], "nested") == [[[0.1235]], [[12340.0]]]


def test_a_grid_with_a_nan_is_nested_even_where_bytes_were_asked_for():
    assert encode_grid([[1.0, float("nan")]], "q8") == [[1.0, "NaN"]]
    assert isinstance(encode_grid([[1.0, 2.0]], "q8"), PackedGrid)


def test_stacks_are_read_back_in_either_form():
    values = np.round(RANDOM.normal(size=(2, 3, 3)), 2)
    np.testing.assert_allclose(unpack(encode_grids(values, "nested")), values)
    np.testing.assert_allclose(unpack(encode_grids(values, "q8")), values, atol=0.02)
    np.testing.assert_allclose(unpack([pack(values[0]), pack(values[1])]), values, atol=0.02)


def test_words_in_a_grid_are_read_as_numbers():
    assert np.isnan(unpack([["NaN", 1.0]])[0, 0])
    assert unpack([["-Infinity", 1.0]])[0, 0] == -np.inf


@pytest.mark.parametrize("low", [-1.0, 0.1, 1e-30, 1e300])
def test_what_was_unpacked_packs_to_the_same_bytes(low):
    once = pack(low + abs(low) * RANDOM.random(size=(32, 32)))
    assert pack(unpack(once)) == once


def test_a_range_beyond_the_largest_float_is_nested():
    assert encode_grid([[-1.7e308, 1.7e308]], "q8") == [[-1.7e308, 1.7e308]]


def test_nested_numbers_can_keep_every_digit():
    assert nest([[0.1234567890123, float("nan")]], None) == [[0.1234567890123, "NaN"]]
