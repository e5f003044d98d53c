"""One statistic, two libraries: NumPy arrays and torch tensors of equal elements give equal entries."""

import numpy as np
import pytest
import torch

from ckaudit.recorder.batch_facts import batch_facts, batch_hash
from ckaudit.recorder.stats.activation_stats import activation_stats, note
from ckaudit.recorder.stats.arrays import bytes_hash, dtype_name, flat, norm
from ckaudit.recorder.stats.attention_stats import attention_stats, max_logits
from ckaudit.recorder.stats.tensor_stats import SpectralNorms, gradient_stats, spectral_norm, weight_stats
from tests.recorder.test_writer import assert_close

SOURCE = np.random.default_rng(4)
DTYPES = [np.float32, np.float64, np.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7, 5), (4, 3, 5, 5), (600, 300), (0, 3)])
def test_tensors_are_measured_alike(shape, dtype):
    array = np.asarray(SOURCE.normal(size=shape) + 0.3, dtype=dtype)
    tensor = torch.from_numpy(array.copy())
    assert_close(
        weight_stats(array, grid="nested", spectral=SpectralNorms("*").measure({"w": array}).get("w"), exact=True),
        weight_stats(tensor, grid="nested", spectral=SpectralNorms("*").measure({"w": tensor}).get("w"), exact=True),
    )
    assert_close(gradient_stats(array, grid="q8", scale=2.0), gradient_stats(tensor, grid="q8", scale=2.0))


def test_non_finite_elements_are_measured_alike():
    array = SOURCE.normal(size=(9, 9)).astype(np.float32)
    array[2, 3], array[4, 4], array[5, 1] = np.nan, np.inf, 0.0
    with np.errstate(invalid="ignore"):
        found = [weight_stats(array), gradient_stats(array), activation_stats([note(array, count_dead=True)])[0]]
    tensor = torch.from_numpy(array)
    for each, expected in zip(
        found, [weight_stats(tensor), gradient_stats(tensor), activation_stats([note(tensor, count_dead=True)])[0]], strict=True
    ):
        assert_close(each, expected)


@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 5, 8), (2, 3, 4, 4)])
def test_activations_are_measured_alike(shape):
    array = SOURCE.normal(size=shape).clip(0).astype(np.float32)
    array[..., 0] = 0
    assert_close(
        activation_stats([note(array, count_dead=True)])[0], activation_stats([note(torch.from_numpy(array), count_dead=True)])[0]
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("causal", "queries", "keys"), [(True, 9, 9), (None, 9, 9), (False, 4, 9), (True, 5, 3), (None, 1, 1)])
def test_attention_is_measured_alike(causal, queries, keys, dtype):
    logits = SOURCE.normal(size=(3, 4, queries, keys)).astype(dtype)
    if causal:
        logits[..., np.triu(np.ones((queries, keys), dtype=bool), keys - queries + 1)] = -np.inf
        logits[:, :, 0, 0] = 0
    weights = np.exp(logits.astype(np.float64))
    p = (weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30)).astype(dtype)
    found, lowest = attention_stats(p, causal=causal, grid="nested")
    expected, lowest_expected = attention_stats(torch.from_numpy(p), causal=causal, grid="nested")
    assert_close(found, expected)
    assert lowest == pytest.approx(lowest_expected)
    assert max_logits(logits) == pytest.approx(max_logits(torch.from_numpy(logits)), nan_ok=True)


def test_batches_are_hashed_and_compared_alike():
    tokens = SOURCE.integers(0, 50, (4, 9))
    pairs = [
        (tokens[:, :-1], tokens[:, 1:]),
        tuple(torch.from_numpy(tokens[:, part].copy()) for part in (slice(-1), slice(1, None))),
    ]
    found, expected = (batch_facts(pair, input_hash=batch_hash(pair), batch_id=3, source="a", vocabulary=50) for pair in pairs)
    assert found == expected
    assert found.target_shift_match == 1.0


def test_complex_and_whole_numbers_are_seen_as_floats():
    array = SOURCE.normal(size=(3, 2)) + 1j * SOURCE.normal(size=(3, 2))
    assert flat(array).tolist() == flat(torch.from_numpy(array)).tolist()
    assert flat(np.arange(4)).dtype == np.float32
    assert dtype_name(np.ones(2, dtype=np.int16)) == dtype_name(torch.ones(2, dtype=torch.int16)) == "int16"


def test_a_slice_has_the_hash_of_its_own_bytes():
    array = SOURCE.normal(size=(6, 6))
    assert bytes_hash(array[:, ::2]) == bytes_hash(array[:, ::2].copy()) == bytes_hash(torch.from_numpy(array)[:, ::2])


def test_norms_of_long_arrays_do_not_lose_their_tail():
    array = np.full(5_000_000, 1e-4, dtype=np.float32)
    exact = float(np.float32(1e-4)) * np.sqrt(array.size)
    assert norm(array) == pytest.approx(exact, rel=1e-12)
    assert spectral_norm(np.diag([3.0, 2.0, 1.0]))[0] == pytest.approx(3.0, rel=1e-6)
