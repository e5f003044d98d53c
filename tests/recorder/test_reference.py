import numpy as np
import pytest
import torch

from ckaudit.recorder.model.weight_movement import Reference, copies, movement
from ckaudit.recorder.stats.tensor_stats import SpectralNorms, spectral_norm

SOURCE = torch.Generator().manual_seed(4)


def random(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=SOURCE).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (64, 64), ()])
def test_small_tensors_move_exactly(shape, dtype):
    old, new = random(*shape, dtype=dtype), random(*shape, dtype=dtype)
    a, b = old.double().numpy(), new.double().numpy()
    expected = np.linalg.norm((b - a).ravel()) / np.linalg.norm(a.ravel())
    np.testing.assert_allclose(Reference.take({"w": old}).moved({"w": new})["w"], expected, rtol=1e-7)


def test_large_tensors_move_by_what_their_samples_say():
    old = random(400, 300)
    new = old + 0.01 * random(400, 300)
    expected = np.linalg.norm((new - old).numpy()) / np.linalg.norm(old.numpy())
    assert Reference.take({"w": old}).moved({"w": new})["w"] == pytest.approx(expected, rel=0.05)


def test_what_was_saved_is_loaded_again(tmp_path):
    tensors = {"a": random(3, 4), "b": random(), "c": random(100, 100), "d": random(5, dtype=torch.float64)}
    saved = Reference.take(tensors)
    saved.save(tmp_path / "reference.npz")
    loaded = Reference.load(tmp_path / "reference.npz")
    later = {name: tensor + 0.5 for name, tensor in tensors.items()}
    assert list(loaded.entries) == list(tensors)
    assert max(entry.values.size for entry in loaded.entries.values()) <= 4_096
    assert loaded.moved(later) == saved.moved(later)
    assert list(loaded.moved(later)) == list(tensors)
    assert min(loaded.moved(later).values()) > 0


def test_a_reference_of_nothing_is_saved_too(tmp_path):
    Reference.take({}).save(tmp_path / "reference.npz")
    assert Reference.load(tmp_path / "reference.npz").entries == {}


def test_movement_that_has_no_meaning_is_not_recorded():
    reference = Reference.take({"zero": torch.zeros(3), "w": torch.ones(3)})
    assert reference.moved({"zero": torch.ones(3), "w": torch.ones(4), "new": torch.ones(3)}) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_deltas_agree_with_numpy(dtype):
    before = {"a": random(30, 7, dtype=dtype), "b": random(11, dtype=dtype)}
    after = {name: (tensor + 0.01 * random(*tensor.shape)).to(dtype) for name, tensor in before.items()}
    deltas, ratio = movement(after, copies(before), None)
    old, new = ({name: tensor.double().numpy() for name, tensor in part.items()} for part in (before, after))
    for name in before:
        norm = np.linalg.norm(new[name] - old[name])
        np.testing.assert_allclose(
            [deltas[name].norm, deltas[name].relative], [norm, norm / np.linalg.norm(new[name])], rtol=1e-6
        )
    whole = [np.concatenate([part[name].ravel() for name in before]) for part in (old, new)]
    np.testing.assert_allclose(ratio, np.linalg.norm(whole[1] - whole[0]) / np.linalg.norm(whole[1]), rtol=1e-6)


def test_copies_do_not_follow_the_weights():
    weights = {"w": torch.ones(3)}
    before = copies(weights)
    weights["w"] += 1
    assert movement(weights, before, None)[0]["w"].norm == pytest.approx(3**0.5)


def test_a_tensor_of_zeros_has_no_relative_movement():
    deltas, ratio = movement({"w": torch.zeros(2)}, {"w": torch.zeros(2)}, None)
    assert deltas["w"].norm == 0
    assert not deltas["w"].relative
    assert ratio is None


def test_nan_weights_move_by_nan():
    deltas, ratio = movement({"w": torch.tensor([float("nan")])}, {"w": torch.ones(1)}, None)
    assert (deltas["w"].norm, deltas["w"].relative) == ("NaN", "NaN")
    assert np.isnan(ratio)


def test_without_a_copy_only_the_distance_from_the_start_is_known():
    reference = Reference.take({"w": torch.ones(4)})
    deltas, ratio = movement({"w": torch.full((4,), 3.0)}, {}, reference)
    assert (deltas["w"].moved, ratio) == (2.0, None)
    assert not deltas["w"].norm


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 7), (40, 30), (16, 3, 3, 3)])
def test_the_spectral_norm_is_the_largest_singular_value(shape):
    tensor = random(*shape)
    expected = np.linalg.svd(tensor.double().numpy().reshape(shape[0], -1), compute_uv=False)[0]
    assert expected * (1 + 1e-6) >= spectral_norm(tensor)[0] >= expected * 0.999
    assert SpectralNorms(["w*"]).measure({"w1": tensor, "b": tensor}) == {"w1": pytest.approx(expected, rel=1e-3)}


def test_the_spectral_norm_of_zeros_is_zero_and_of_a_nan_nan():
    assert spectral_norm(torch.zeros(4, 3))[0] == 0
    assert np.isnan(spectral_norm(torch.full((2, 2), float("nan")))[0])
    assert SpectralNorms(["*"]).measure({"vector": torch.ones(3), "empty": torch.zeros(0, 3)}) == {}


def test_a_direction_that_was_found_before_is_found_again_in_few_rounds():
    old, change = random(60, 40).double(), random(60, 40).double()
    _, direction = spectral_norm(old)
    new = old + 0.003 * change
    expected = np.linalg.svd(new.numpy(), compute_uv=False)[0]
    warm, cold = spectral_norm(new, start=direction, rounds=3)[0], spectral_norm(new, rounds=3)[0]
    assert warm == pytest.approx(expected, rel=1e-3)
    assert expected - warm < (expected - cold) / 10


def test_a_direction_that_has_become_another_is_found():
    norms = SpectralNorms(["w"])
    assert norms.measure({"w": torch.diag(torch.tensor([9.0, 1.0, 0.5]))}) == {"w": pytest.approx(9.0)}
    assert norms.measure({"w": torch.diag(torch.tensor([1.0, 0.5, 7.0]))}) == {"w": pytest.approx(7.0, rel=1e-5)}
