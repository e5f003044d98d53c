"""Complex weights, as of a Fourier neural operator: each number is two of the statistics, the real and the imaginary part."""

import numpy as np
import pytest
import torch
from torch import nn

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from ckaudit.recorder.checks.curvature import hessian_trace
from ckaudit.recorder.checks.gradient_check import check_gradients
from ckaudit.recorder.checks.noise_scale import common_stride
from ckaudit.recorder.hooks.vital_signs import WeightSample
from ckaudit.recorder.model.weight_movement import Reference
from ckaudit.recorder.stats.batched_stats import sweep
from ckaudit.recorder.stats.tensor_stats import spectral_norm
from ckaudit.validate import validate

SOURCE = np.random.default_rng(0)


def drawn(*shape):
    return torch.from_numpy(SOURCE.normal(size=shape) + 1j * SOURCE.normal(size=shape)).to(torch.complex64)


class Spectral(nn.Module):
    """A layer that mixes channels frequency by frequency."""

    def __init__(self, channels=48, modes=9):
        super().__init__()
        self.weight = nn.Parameter(drawn(channels, channels, modes) / channels)
        self.gains = nn.Parameter(torch.ones(modes, dtype=torch.complex64))
        self.out = nn.Linear(channels, channels)

    def forward(self, x):
        modes = torch.fft.rfft(x.transpose(1, 2))[..., : len(self.gains)] * self.gains
        mixed = torch.fft.irfft(torch.einsum("bim,iom->bom", modes, self.weight), n=x.shape[1])
        return self.out(mixed.transpose(1, 2))


def squared(model, batch):
    return ((model(batch) - batch) ** 2).mean()


def parts_of(tensors):
    """Return the real and imaginary parts of all tensors, in float64."""
    return np.concatenate([np.stack([v.real, v.imag]).ravel() for v in (t.detach().numpy().astype(complex) for t in tensors)])


def test_a_training_is_recorded_whole(tmp_path, read, lines):
    torch.manual_seed(0)
    model = Spectral()
    optimizer, everything = torch.optim.Adam(model.parameters(), 1e-3), [*model.parameters()]
    first = parts_of([model.weight])
    cadence = (Cadence(until=None, every=10),)
    with Recorder(model, tmp_path, optimizer=optimizer, cadence=cadence, spectral_norms=["weight"], exact=True) as recorder:
        for step in range(1, 31):
            before = parts_of(everything)
            loss = squared(model, torch.randn(4, 32, 48))
            optimizer.zero_grad()
            loss.backward()
            recorder.after_backward()
            gradient = parts_of([model.weight.grad])
            optimizer.step()
            recorder.step(loss)
            if step == 25:
                after = parts_of(everything)
                moved = np.linalg.norm(after - before) / np.linalg.norm(after)
    assert recorder._guard.failures == 0
    assert lines(tmp_path)[24]["update_to_weight"] == pytest.approx(moved, rel=0.1)
    last, weight = read(tmp_path, 30), parts_of([model.weight])
    assert last.weights["weight"].frobenius_norm == pytest.approx(np.linalg.norm(weight), rel=1e-5)
    assert last.gradients["weight"].norm == pytest.approx(np.linalg.norm(gradient), rel=1e-5)
    matrix = model.weight.detach().reshape(48, -1).numpy()
    assert last.weights["weight"].spectral_norm == pytest.approx(np.linalg.svd(matrix, compute_uv=False)[0], rel=1e-4)
    distance = np.linalg.norm(weight - first) / np.linalg.norm(first)
    assert last.weight_deltas["weight"].moved == pytest.approx(distance, rel=0.05)
    assert not [finding for finding in validate([tmp_path]).findings if finding.severity != "note"]


def test_a_resume_knows_the_norms_of_its_weights(tmp_path, manifest):
    model = Spectral(6, 3)
    with Recorder(model, tmp_path, start_step=10, optimizer=(optimizer := torch.optim.Adam(model.parameters()))) as recorder:
        whole = np.linalg.norm(parts_of([model.weight]))
        squared(model, torch.randn(4, 8, 6)).backward()
        optimizer.step()
        recorder.step(1.0)
    (session,) = manifest(tmp_path).sessions
    assert (session.write_errors, session.look_errors) == (0, 0)
    assert session.weight_norms["weight"] == pytest.approx(whole, rel=1e-5)


def test_samples_see_imaginary_parts_too():
    tensor = drawn(300, 200)
    tensor.imag.mul_(10)
    (swept,) = sweep([tensor], exact_up_to=1000)
    assert np.sqrt(np.mean(swept.sample**2)) == pytest.approx(np.sqrt(np.mean(parts_of([tensor]) ** 2)), rel=0.1)
    tensor.requires_grad_()
    sample, reference = WeightSample({"w": tensor}), Reference.take({"w": tensor})
    before, whole = sample.take(), np.linalg.norm(parts_of([tensor]))
    move = 0.01 * drawn(300, 200)
    move.imag.mul_(10)
    tensor.data.add_(move)
    way = np.linalg.norm(parts_of([move]))
    assert sample.moved(before) == pytest.approx(way / np.linalg.norm(parts_of([tensor])), rel=0.2)
    assert reference.moved({"w": tensor})["w"] == pytest.approx(way / whole, rel=0.05)
    assert common_stride([tensor], 1000) % 2


def test_a_reference_of_other_samples_is_left_alone():
    tensor = drawn(300, 200)
    reference = Reference.take({"w": tensor, "b": torch.ones(3)})
    shorter = {"w": Reference.take({"w": tensor[:, :30]}).entries["w"]}
    odd = Reference({**reference.entries, "w": type(shorter["w"])(1.0, (300, 200), shorter["w"].values)})
    assert odd.moved({"w": tensor, "b": torch.ones(3)}) == {"b": 0.0}


@pytest.mark.parametrize("shape", [(5, 7), (4, 3, 2)])
def test_the_largest_singular_value_is_that_of_the_complex_matrix(shape):
    tensor = drawn(*shape)
    expected = np.linalg.svd(tensor.reshape(shape[0], -1).numpy(), compute_uv=False)[0]
    assert spectral_norm(tensor)[0] == pytest.approx(expected, rel=1e-5)
    assert spectral_norm(tensor.numpy())[0] == pytest.approx(expected, rel=1e-5)


def test_the_trace_of_curvature_counts_both_parts():
    weights, values = drawn(6), torch.tensor([1.0, 2, 3, 4, 5, 6])
    weights.requires_grad_()
    # Its Hessian is diagonal: 2 v for the real and 6 v for the imaginary parts, and so is every estimate exact.
    loss = (values * (weights.real**2 + 3 * weights.imag**2)).sum()
    assert hessian_trace(loss, [weights], samples=2, seed=0).trace == pytest.approx(8 * 21)


class Conjugated(torch.autograd.Function):
    """Passes values on, and the gradient with its imaginary part turned round."""

    @staticmethod
    def forward(_ctx, value):
        return value.clone()

    @staticmethod
    def backward(_ctx, gradient):
        return gradient.conj()


def test_gradients_are_checked_in_both_parts():
    model, batch = Spectral(6, 3), torch.randn(4, 8, 6)
    right = check_gradients(model, batch, squared)
    assert right.passed
    assert set(right.errors) == {"weight", "gains", "out.weight", "out.bias"}

    def wrong(model, batch):
        kept = model.gains
        modes = torch.fft.rfft(batch.transpose(1, 2))[..., :3] * Conjugated.apply(kept)
        mixed = torch.fft.irfft(torch.einsum("bim,iom->bom", modes, model.weight), n=8)
        return ((model.out(mixed.transpose(1, 2)) - batch) ** 2).mean()

    assert check_gradients(model, batch, wrong, per_tensor=6).wrong == ["gains"]
