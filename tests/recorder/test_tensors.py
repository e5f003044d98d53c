import hashlib

import numpy as np
import pytest
import torch

from ckaudit.contract.io.codec import significant
from ckaudit.contract.io.grids import unpack
from ckaudit.recorder.stats.arrays import dense
from ckaudit.recorder.stats.batched_stats import measure, sweep
from ckaudit.recorder.stats.float32_rounding import shorten, shorten_all, significant_all
from ckaudit.recorder.stats.quantiles import quantiles_of, spread_of, stride_of
from ckaudit.recorder.stats.tensor_stats import gradient_stats, weight_stats
from tests.loops import for_each

LEVELS = (1, 5, 25, 50, 75, 95, 99)
SHAPES = [(1,), (2,), (7,), (3, 5), (1, 1), (64, 33), (4, 3, 5, 5), (30_000,), (150, 200)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def random(shape, dtype=torch.float32, seed=0, offset=0.3):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + offset).to(dtype)


def as_numpy(tensor):
    return tensor.double().numpy().ravel()


@for_each("dtype", DTYPES)
@for_each("shape", SHAPES)
def test_weights_agree_with_numpy(shape, dtype):
    tensor = random(shape, dtype)
    x, stats = as_numpy(tensor), weight_stats(tensor)
    assert (stats.shape, stats.numel, stats.dtype) == (list(shape), x.size, str(dtype).removeprefix("torch."))
    found = [stats.mean, stats.std, stats.min, stats.max, stats.frobenius_norm]
    np.testing.assert_allclose(found, [x.mean(), x.std(), x.min(), x.max(), np.linalg.norm(x)], rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(stats.percentiles, np.percentile(x, LEVELS), rtol=5e-4)
    assert stats.nonfinite_count == 0


@for_each("dtype", DTYPES)
@for_each("shape", SHAPES)
def test_gradients_agree_with_numpy(shape, dtype):
    tensor = random(shape, dtype)
    tensor.reshape(-1)[::3] = 0
    x, stats = as_numpy(tensor), gradient_stats(tensor)
    found = [stats.norm, stats.mean, stats.std, stats.min, stats.max, stats.zero_fraction]
    expected = [np.linalg.norm(x), x.mean(), x.std(), x.min(), x.max(), np.mean(x == 0)]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(stats.percentiles, np.percentile(x, LEVELS), rtol=5e-4)


@pytest.mark.parametrize("shape", [(3,), (64, 33), (30_000,)])
def test_histograms_agree_with_numpy(shape):
    tensor = random(shape)
    x, stats = as_numpy(tensor), weight_stats(tensor)
    counts, edges = np.histogram(x, bins=16)
    assert stats.histogram.counts == counts.tolist()
    assert stats.histogram.bins.count == 16
    np.testing.assert_allclose(stats.histogram.bins.range, [edges[0], edges[-1]], rtol=1e-7)


@pytest.mark.parametrize("value", [0.0, 3.0, -1e20])
def test_equal_elements_fall_into_one_bin_inside_its_range(value):
    _, (found,) = spread_of([np.full(5, value)], ())
    low, high = found.bins.range
    assert low < value < high
    assert sum(found.counts) == max(found.counts) == 5


def moments(values, **options):
    """The moments of one tensor."""
    return sweep([values], magnitudes=True, **options)[0].moments


def test_chunks_merge_to_the_whole():
    values = random((10_007,), torch.float64, offset=1e3)
    whole, pieces = moments(values), moments(values, chunk=1_000)
    np.testing.assert_allclose([pieces.mean, pieces.std, pieces.norm], [whole.mean, whole.std, whole.norm], rtol=1e-13)
    assert (pieces.min, pieces.max, pieces.numel) == (whole.min, whole.max, whole.numel)


def test_a_large_mean_does_not_drown_the_spread():
    tensor = torch.tensor([1e4, 1e4 + 1 / 64, 1e4 - 1 / 64], dtype=torch.float32)
    np.testing.assert_allclose(weight_stats(tensor).std, as_numpy(tensor).std(), rtol=1e-7)


@pytest.mark.parametrize("chunk", [3, 1_000])
def test_non_finite_elements_are_counted_and_left_out(chunk):
    tensor = random((500,))
    tensor[[3, 77, 400]] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    x = as_numpy(tensor)[np.isfinite(as_numpy(tensor))]
    found = moments(tensor, chunk=chunk)
    assert (found.nonfinite, found.finite) == (3, 497)
    np.testing.assert_allclose([found.mean, found.std, found.min, found.max], [x.mean(), x.std(), x.min(), x.max()])
    assert np.isnan(found.norm)


def test_the_norm_of_a_nan_is_nan_and_of_an_infinity_infinite():
    assert gradient_stats(torch.tensor([1.0, float("nan")])).norm == "NaN"
    assert gradient_stats(torch.tensor([1.0, float("inf")])).norm == "Infinity"
    assert weight_stats(torch.tensor([1.0, -float("inf")])).frobenius_norm == "Infinity"


def test_nothing_finite_gives_the_word_and_no_histogram():
    stats = weight_stats(torch.full((4,), float("nan")))
    assert (stats.mean, stats.std, stats.min, stats.max) == ("NaN",) * 4
    assert stats.percentiles == ["NaN"] * 7
    assert stats.nonfinite_count == 4
    assert not stats.histogram


def test_an_empty_tensor_says_so():
    stats = weight_stats(torch.zeros(0, 3))
    assert (stats.numel, stats.shape, stats.nonfinite_count) == (0, [0, 3], 0)
    assert not stats.mean
    assert gradient_stats(torch.zeros(0)).numel == 0


def test_a_scalar_tensor_is_a_tensor():
    assert weight_stats(torch.tensor(2.5)).mean == 2.5


def test_large_tensors_are_sampled_and_say_so():
    tensor = random((1_000, 300))
    stats = weight_stats(tensor)
    stride = stride_of(tensor.shape)
    x = as_numpy(tensor)[::stride]
    assert stats.sampled == x.size == sum(stats.histogram.counts)
    assert 3_000 < x.size <= 4_096
    np.testing.assert_allclose(stats.percentiles, np.percentile(x, LEVELS), rtol=5e-4)
    np.testing.assert_allclose(stats.mean, as_numpy(tensor).mean(), rtol=1e-7)


@pytest.mark.parametrize("shape", [(4_096,), (4_097,), (1_024, 4_096), (151_936, 1_024), (64, 64, 3, 3), ()])
def test_samples_are_bounded_and_see_every_column(shape):
    stride, numel = stride_of(shape), int(np.prod(shape, dtype=np.int64))
    places = np.arange(0, numel, stride)
    assert places.size <= 4_096
    if numel > 4_096:
        assert np.unique(places % shape[-1]).size == min(shape[-1], places.size)


def test_a_grid_holds_the_elements_at_the_sampled_rows_and_columns():
    tensor = random((64, 5, 20))
    matrix, rows = tensor.reshape(64, 100).double().numpy(), np.arange(32) * 64 // 32
    expected = matrix[rows][:, np.arange(32) * 100 // 32]
    np.testing.assert_allclose(unpack(weight_stats(tensor, grid="nested").sampled_grid_32x32), expected, rtol=5e-4)
    np.testing.assert_allclose(unpack(weight_stats(tensor, grid="q8").sampled_grid_32x32), expected, atol=0.02)
    assert not weight_stats(random((64,)), grid="q8").sampled_grid_32x32
    assert not weight_stats(tensor).sampled_grid_32x32


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_hash_is_that_of_the_exact_bytes(dtype):
    tensor = random((5, 4), dtype)
    data = tensor.contiguous().view(torch.uint8).numpy().tobytes()
    assert weight_stats(tensor, exact=True).hash == "blake2b:" + hashlib.blake2b(data, digest_size=16).hexdigest()
    assert weight_stats(tensor.t(), exact=True).hash != weight_stats(tensor, exact=True).hash


def test_a_sparse_gradient_is_measured_as_the_dense_one():
    sparse = torch.sparse_coo_tensor(
        [[1, 4, 1]], torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), (6, 2), check_invariants=True
    )
    assert gradient_stats(sparse) == gradient_stats(sparse.to_dense())


def test_quantiles_are_linear_between_neighbours():
    assert quantiles_of([np.array([1.0, 2.0, 4.0])], (0, 25, 50, 75, 100)) == [[1.0, 1.5, 2.0, 3.0, 4.0]]


def test_shortened_numbers_name_the_same_float32():
    for value in np.random.default_rng(0).normal(size=200).astype(np.float32) * np.float32(1e-5):
        assert np.float32(shorten(float(value))) == value
    assert shorten(1e-300) == 1e-300
    assert shorten(0.0) == 0.0


def many():
    """Tensors of all kinds side by side: long, empty, half-broken, of several types."""
    broken = random((300, 7), seed=5)
    broken[[3, 77], 2] = torch.tensor([float("nan"), float("inf")])
    given = [random(shape, dtype, seed=3) for shape in SHAPES for dtype in DTYPES[:3]]
    return [
        *given,
        broken,
        torch.zeros(0, 3),
        torch.full((4,), float("nan")),
        random((1_000, 300)),
        torch.zeros(5),
        torch.ones(3, 2),
    ]


@pytest.mark.parametrize("chunk", [1_000, 2**22])
@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_tensors_measured_together_and_apart_are_the_same(chunk, scale):
    together = measured(scale=scale, chunk=chunk)
    for tensor, found in zip(many(), together, strict=True):
        (alone,) = measured([tensor], scale=scale)
        assert found[1:] == alone[1:]
        for name in alone[0].__struct_fields__:
            np.testing.assert_allclose(getattr(found[0], name), getattr(alone[0], name), rtol=1e-12, err_msg=name)


def measured(tensors=None, **options):
    """The moments of tensors, magnitudes among them, and what is told of their distributions."""
    tensors = many() if tensors is None else tensors
    told, swept = measure(tensors, **options), sweep(tensors, magnitudes=True, **options)
    return [
        (moments.moments, one.percentiles, one.histogram, one.sampled, moments.sample.size)
        for one, moments in zip(told, swept, strict=True)
    ]


def test_tensors_measured_on_their_device_and_here_are_the_same(monkeypatch):
    here = measured(scale=8.0)
    for module in ("arrays", "batched_stats"):
        monkeypatch.setattr(f"ckaudit.recorder.stats.{module}.is_on_accelerator", lambda array: isinstance(array, torch.Tensor))
    monkeypatch.setattr("ckaudit.recorder.stats.batched_stats.dense_as_numpy", dense)
    for found, expected in zip(measured(scale=8.0), here, strict=True):
        assert found[1:] == expected[1:]
        for name in expected[0].__struct_fields__:
            wanted = getattr(expected[0], name)
            np.testing.assert_allclose(getattr(found[0], name), wanted, rtol=1e-7, atol=1e-12, err_msg=name)


def test_numbers_shortened_together_and_apart_are_the_same():
    random_numbers = np.random.default_rng(0)
    values = random_numbers.normal(size=500) * 10.0 ** random_numbers.uniform(-36, 37, 500)
    assert shorten_all(values) == [shorten(value) for value in values.tolist()]


def test_rows_of_numbers_are_rounded_as_each_is():
    random_numbers = np.random.default_rng(1)
    values = random_numbers.normal(size=(500, 7)) * 10.0 ** random_numbers.uniform(-30, 30, (500, 1))
    values[0, :5] = [0.0, np.nan, np.inf, -np.inf, 999.95]
    values[1] = [0.1, 0.00099999999, 1e-13, 1e15, 12345.0, -1234.5, 1233.5]
    assert significant_all(values) == [significant(row) for row in values.tolist()]
    assert significant_all(values[1:2]) == [significant(values[1].tolist())]
