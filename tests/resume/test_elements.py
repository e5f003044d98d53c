"""Bits against arithmetic: what torch and NumPy call not finite is what is counted."""

import numpy as np
import pytest

from ckaudit.resume.content import ELEMENTS
from ckaudit.resume.scan import SCRATCH, Counter

FLOATS = [name for name, element in ELEMENTS.items() if element.mask and not name.startswith("complex")]


@pytest.mark.parametrize("name", FLOATS)
def test_every_bit_pattern_of_a_float_is_told_as_torch_tells_it(torch, name):
    element = ELEMENTS[name]
    words = np.arange(256 ** min(element.size, 2), dtype=f"<u{min(element.size, 2)}")
    if element.size > 2:  # the high bytes decide; low ones tell infinity from NaN
        words = (words.astype(f"<u{element.size}") << (8 * (element.size - 2))) | 1
    values = torch.frombuffer(bytearray(words.tobytes()), dtype=getattr(torch, name)).to(torch.float64)
    expected = ~torch.isfinite(values).numpy()
    counter = Counter(element)
    found = [counter.count(word.tobytes()) == 1 for word in words] if element.size == 1 else None
    assert counter.count(words.tobytes()) == expected.sum() > 0
    if found is not None:
        assert found == expected.tolist()


@pytest.mark.parametrize("count", [0, 1, SCRATCH // 4 - 1, SCRATCH // 4, SCRATCH // 4 + 1, SCRATCH])
def test_counts_do_not_depend_on_the_blocks(count):
    values = np.random.default_rng(0).standard_normal(count).astype("<f4")
    values[::7] = np.nan
    values[3::7] = -np.inf
    assert Counter(ELEMENTS["float32"]).count(values.tobytes()) == np.count_nonzero(~np.isfinite(values))


def test_big_endian_and_complex_numbers():
    values = np.array([1, np.nan, np.inf, 0, -1e38], ">f4")
    assert Counter(ELEMENTS["float32"], big_endian=True).count(values.tobytes()) == 2
    both = np.array([1 + 2j, complex(np.nan, 1), complex(1, np.inf)], "<c8")
    assert Counter(ELEMENTS["complex64"]).count(both.tobytes()) == 2


@pytest.mark.parametrize("name", ["int64", "uint8", "bool"])
def test_whole_numbers_are_always_finite(name):
    assert Counter(ELEMENTS[name]).count(b"\xff" * 64) == 0
