import numpy as np
import pytest
import torch

from ckaudit.recorder.batch_facts import MAX_HASHED, fingerprint, name_of

SOURCE = np.random.default_rng(3)
# The first numbers of SplitMix64 from seed 0, as its authors and the Rosetta code give them.
PUBLISHED = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def slow(words):
    """The definition in Python's own integers, with the published generator."""
    total, state = 0, 0
    for word in words:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        mixed = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        total += int(word) * ((mixed ^ (mixed >> 31)) | 1)
    return total % 2**64


def test_the_random_numbers_are_the_published_ones():
    assert [slow([0] * i + [1]) for i in range(3)] == [number | 1 for number in PUBLISHED]


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float32", "float16", "bool"])
def test_it_is_the_sum_of_its_definition(dtype):
    array = (SOURCE.normal(size=(5, 7)) * 9).astype(dtype)
    bits = array.ravel().view(f"int{8 * array.itemsize}")
    assert fingerprint(array) % 2**64 == int(fingerprint(torch.from_numpy(array))) % 2**64 == slow(bits)


def test_half_precision_and_slices_have_the_hash_of_their_bits():
    tensor = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert int(fingerprint(tensor[:, ::2])) % 2**64 == slow(tensor[:, ::2].contiguous().view(torch.int16).ravel().tolist())


def test_the_sum_of_a_tensor_stays_where_it_is():
    tokens = torch.randint(0, 50_000, (8, 33), generator=torch.Generator().manual_seed(1))
    found = fingerprint(tokens)
    assert isinstance(found, torch.Tensor)
    assert int(found) == fingerprint(tokens.numpy())
    assert fingerprint(tokens.to("meta")).device.type == "meta"


def test_a_long_batch_is_sampled_and_one_wrong_row_still_shows():
    tokens = SOURCE.integers(0, 100, (64, 4096))
    other = tokens.copy()
    other[17] = SOURCE.integers(0, 100, 4096)
    assert tokens.size > MAX_HASHED
    assert fingerprint(tokens) != fingerprint(other)
    assert fingerprint(tokens) == fingerprint(tokens.copy())


def test_no_two_of_many_batches_share_a_name_and_the_shape_counts():
    rows = SOURCE.integers(0, 3, (20_000, 4))
    names = {tuple(row): name_of(int(fingerprint(row)), row.shape) for row in rows}
    assert len(set(names.values())) == len(names) == 81
    zeros = [np.zeros(shape, np.int64) for shape in ((6,), (2, 3), (3, 2), (1, 6))]
    assert len({name_of(int(fingerprint(each)), each.shape) for each in zeros}) == 4


def test_elements_of_any_size_are_hashed():
    words = np.array(["ab", "cd"])
    assert fingerprint(words) != fingerprint(words[::-1])
