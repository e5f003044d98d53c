"""Every formula of the dashboard's sheet, F1 to F10, against an independent computation in float64.

The relative error that is allowed stands beside each. Numbers are written with the digits of a float32: 6e-8 of them is rounding.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from ckaudit.recorder.model.gradient_norms import norms_of
from ckaudit.recorder.stats.activation_stats import activation_stats, dead_units, note
from ckaudit.recorder.stats.attention_stats import attention_stats
from ckaudit.recorder.stats.batched_stats import STRETCH, sweep
from ckaudit.recorder.stats.tensor_stats import spectral_norm, total_norm

WRITTEN = 1e-7
SIZES = [1, 2, 17, 1_000, 65_537, 1_000_000]


def normal(*shape, seed=0, mean=0.3, dtype=torch.float32):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + mean).to(dtype)


def moments(values, **options):
    """The moments of one tensor."""
    return sweep([values], **options)[0].moments


@pytest.mark.parametrize("size", SIZES)
def test_f1_to_f3_mean_and_variance_are_those_of_welfords_loop(size):
    tensor = normal(size, seed=size)
    mean = m2 = 0.0
    for n, x in enumerate(tensor.double().tolist(), 1):
        before = mean
        mean += (x - mean) / n
        m2 += (x - before) * (x - mean)
    for chunk in (2**22, 777) if size < 100_000 else (2**22, 99_999):  # one block, and many merged
        found = moments(tensor, chunk=chunk)
        assert found.mean == pytest.approx(mean, rel=1e-10)
        assert found.m2 == pytest.approx(m2, rel=1e-10)
        assert found.std == pytest.approx(math.sqrt(m2 / size), rel=1e-10)


def test_f1_to_f3_a_large_sum_does_not_swallow_small_steps():
    """Drill DR-4: a running sum of float32 loses what is a ten-millionth of it."""
    tensor = torch.full((500_000,), 1e4) + torch.tensor([0.0, 1.0]).repeat(250_000)
    found = moments(tensor)
    assert (found.mean, found.std) == (10_000.5, 0.5)
    running = np.cumsum(tensor.numpy(), dtype=np.float32)[-1] / 500_000
    assert abs(running - 10_000.5) > 0.5


OFFSET, UNIT, POOL = 10**9, 1024, 2**20


class Stream(np.ndarray):
    """Many elements that take no memory: stretches of one pool, now from here and now from there."""

    def __getitem__(self, place):
        start = self.offset_of(place.start)
        return self.pool[start : start + place.stop - place.start]

    def reshape(self, *_):
        return self

    @staticmethod
    def offset_of(start):
        return start // STRETCH * 7_919 % (POOL - STRETCH)


def stream(size, bits):
    """Return a stream whose elements are `OFFSET` and `bits`, whole numbers, over `UNIT`: a float64 holds each exactly."""
    made = np.broadcast_to(np.zeros(1), (size,)).view(Stream)
    made.pool = OFFSET + bits / UNIT
    assert np.array_equal((made.pool - OFFSET) * UNIT, bits)
    return made


def exactly(size, bits):
    """Return mean and M2 of a stream as fractions, from sums of whole numbers."""
    sums, squares = ([0, *np.cumsum(each).tolist()] for each in (bits, bits**2))
    first = second = 0
    for place in range(0, size, STRETCH):
        start = Stream.offset_of(place)
        end = start + min(STRETCH, size - place)
        first, second = first + sums[end] - sums[start], second + squares[end] - squares[start]
    return OFFSET + Fraction(first, size * UNIT), (second - Fraction(first * first, size)) / UNIT**2


@pytest.mark.parametrize("size", [STRETCH + 1, 1_000_003, 10**8])
@pytest.mark.parametrize("shape", ["noise", "ramp"])
def test_f1_to_f3_stretches_far_from_zero_are_merged_without_loss(size, shape):
    noise = np.random.default_rng(size).normal(0, 1, POOL)
    bits = np.rint(UNIT * (noise if shape == "noise" else np.sort(noise))).astype(np.int64)
    mean, m2 = exactly(size, bits)
    found = moments(stream(size, bits))
    assert found.finite == size
    assert float(abs(Fraction(found.mean) - mean)) < 16 * math.ulp(OFFSET)
    # The means of stretches are good to their last bit, so their differences to this share of the spread (Chan et al. 1983).
    condition = float(mean) / math.sqrt(m2 / size)
    assert float(abs(Fraction(found.m2) / m2 - 1)) < 4 * condition * np.finfo(float).eps
    # Of the textbook's difference of two large numbers not one digit would be left.
    assert condition**2 * np.finfo(float).eps > 1


@pytest.mark.parametrize(
    "stretches",
    [
        ("a billion, then little", [1e9, 1e-9, 1e-9, 1e-9]),
        ("to and fro", [1e9, -1e9] * 50),
        ("upwards", [10.0**power for power in range(-9, 10)]),
        ("one far away at the end", [0.0] * 99 + [1e9]),
    ],
    ids=lambda pair: pair[0],
)
@pytest.mark.parametrize("chunk", [1, 7, 1_000])
def test_f1_to_f3_the_order_of_stretches_does_not_matter(stretches, chunk):
    rng = np.random.default_rng(3)
    values = np.concatenate([level + rng.normal(0, 1, 50) for level in stretches[1]])
    exact = [Fraction(value) for value in values.tolist()]
    mean = sum(exact) / len(exact)
    m2 = sum((value - mean) ** 2 for value in exact)
    for order in (values, values[::-1].copy(), np.sort(values)):
        found = moments(order, chunk=chunk)
        assert float(abs(Fraction(found.mean) - mean)) <= 1e-14 * np.abs(values).max()
        assert float(abs(Fraction(found.m2) / m2 - 1)) < 1e-12


@pytest.mark.parametrize("shapes", [[(1,)], [(3, 5), (7,)], [(1_000, 1_000), (333,), (4, 4, 3, 3)]])
def test_f4_the_global_norm_is_the_root_of_all_squares(shapes):
    gradients = [normal(*shape, seed=index) for index, shape in enumerate(shapes)]
    whole = np.concatenate([g.double().numpy().ravel() for g in gradients])
    assert total_norm(norms_of(gradients)[0]) == pytest.approx(np.sqrt((whole**2).sum()), rel=1e-5)  # one float32 sum per tensor


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 7), (3, 40, 64)])
def test_f5_mean_absolute_activation(shape):
    tensor = normal(*shape, mean=-0.2)
    assert activation_stats([note(tensor)])[0].mean_abs == pytest.approx(np.abs(tensor.double().numpy()).mean(), rel=WRITTEN)


@pytest.mark.parametrize("shape", [(1, 1), (64, 1), (40, 30), (200, 300), (1_000, 1_000)])
def test_f6_and_f7_the_largest_singular_value(shape):
    tensor = normal(*shape, mean=0.0)
    expected = np.linalg.svd(tensor.double().numpy(), compute_uv=False)[0]
    # A random square matrix has no gap between its first two values: the hardest case for power iteration.
    assert spectral_norm(tensor)[0] == pytest.approx(expected, rel=2e-3)
    assert spectral_norm(tensor)[0] <= expected * (1 + 1e-9)


@pytest.mark.parametrize("shape", [(1, 16, 4), (4, 16, 1_000), (10, 100, 1_000)])
def test_f8_dead_neurons(shape):
    tensor = normal(*shape, mean=-1.0).relu()
    tensor[..., ::3] *= 5e-4
    dead = sum(np.abs(tensor.double().numpy()[..., unit]).max() < 1e-3 for unit in range(shape[-1]))
    assert (
        activation_stats([note(tensor, count_dead=True)])[0].dead_units == dead == int(dead_units(tensor.reshape(-1, shape[-1])))
    )


@pytest.mark.parametrize(("heads", "queries"), [(1, 1), (3, 8), (4, 100)])
def test_f9_and_f10_entropy_and_sharp_queries(heads, queries):
    logits = normal(2, heads, queries, queries, mean=0.0) * torch.linspace(0.1, 40, heads)[:, None, None]
    later = torch.ones(queries, queries, dtype=torch.bool).triu(1)
    p = logits.masked_fill(later, -math.inf).softmax(-1)
    stats, _ = attention_stats(p, causal=True)
    for head in range(heads):
        rows = [p[b, head, q, : q + 1].double().tolist() for b in range(2) for q in range(queries)]
        entropies = [-math.fsum(x * math.log(x) for x in row if x > 0) for row in rows]
        assert stats.entropy_per_head[head] == pytest.approx(np.mean(entropies), rel=1e-6, abs=1e-9)
        assert all(0 <= h <= math.log(len(row)) + 1e-6 for h, row in zip(entropies, rows, strict=True))
        able = [h < math.log(2) for h, row in zip(entropies, rows, strict=True) if len(row) >= 3]
        if able:
            assert stats.sharp_share_per_head[head] == pytest.approx(np.mean(able), abs=1e-6)
