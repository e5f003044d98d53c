import math

import numpy as np
import pytest
import torch
from torch import nn

from ckaudit.recorder import Recorder
from ckaudit.recorder.checks.noise_scale import NoiseScale, common_stride, noise_and_signal
from ckaudit.validate import validate


def gradients_of(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


class Quadratic(nn.Module):
    """The loss |w - x|²/2 of an example x: its gradient w - x has mean w - mu and the covariance of x."""

    def __init__(self, size):
        super().__init__()
        self.w = nn.Parameter(torch.full((size,), 0.5))

    def forward(self, x):
        return ((self.w - x) ** 2).sum(-1).mean() / 2


@pytest.mark.parametrize("divided", [True, False])
def test_the_scale_of_a_quadratic_is_the_one_known(divided):
    size, spread, count, examples = 320, 2.0, 4, 8  # each element is a draw of its own
    source = torch.Generator().manual_seed(0)
    model, noise = Quadratic(size), NoiseScale(smoothing=0.998)
    for _ in range(150):
        model.zero_grad()
        for _ in range(count):
            loss = model(spread * torch.randn(examples, size, generator=source))
            (loss / count if divided else loss).backward()
            noise.add(gradients_of(model), examples)
        found = noise.estimate()
    found = found.values()
    # mu is 0, so that |G|² is 320/4 and the trace of the covariance 320*4.
    assert math.isclose(found["grad_noise_scale"], size * spread**2 / (size * 0.25), rel_tol=0.05)
    share = 1 if divided else count
    assert math.isclose(found["grad_noise_trace"], share**2 * size * spread**2, rel_tol=0.05)
    assert math.isclose(found["grad_noise_signal"], share**2 * size * 0.25, rel_tol=0.05)


def test_both_parts_are_unbiased_with_micro_batches_of_unequal_size():
    """Averages over many updates, of gradients drawn by NumPy."""
    rng, mean, sizes = np.random.default_rng(0), np.array([1.0, -2.0]), [2, 4, 8]
    found = []
    for _ in range(20_000):
        alone = [rng.normal(mean, 3.0 / math.sqrt(size)) for size in sizes]
        parts = [gradient / len(sizes) for gradient in alone]
        found.append(noise_and_signal([part @ part for part in parts], sizes, sum(parts) @ sum(parts)))
    noise, signal = np.mean(found, axis=0)
    error = np.std(found, axis=0) / math.sqrt(len(found))
    assert abs(noise - 18.0) < 4 * error[0]
    assert abs(signal - 5.0) < 4 * error[1]


def test_one_update_is_that_of_gradients_computed_one_by_one(tiny, batches, loss_of):
    model, parts = tiny(), batches(3)
    alone = []
    for batch in parts:
        slopes = torch.autograd.grad(loss_of(model, batch), list(model.parameters()))
        alone.append(np.concatenate([slope.double().numpy().ravel() for slope in slopes]))
    mean = np.mean(alone, axis=0)
    small, big = np.mean([g @ g for g in alone]), mean @ mean
    noise, signal = (small - big) / (1 / 4 - 1 / 12), (12 * big - 4 * small) / (12 - 4)
    scale = NoiseScale(fewest=1)
    for batch in parts:
        (loss_of(model, batch) / 3).backward()
        scale.add(gradients_of(model), 4)
    found = scale.estimate()
    assert math.isclose(found.trace, noise, rel_tol=1e-4)
    assert math.isclose(found.signal, signal, rel_tol=1e-4)
    assert math.isclose(found.values()["grad_noise_scale"], noise / signal, rel_tol=1e-4)


def test_a_loss_scale_and_a_gradient_that_comes_late_change_nothing():
    first, second = torch.tensor([1.0, 2.0]), torch.tensor([3.0])
    plain, scaled = NoiseScale(fewest=1), NoiseScale(fewest=1)
    for factor, noise in ((1.0, plain), (1024.0, scaled)):
        noise.add({"a": first * factor}, 1, scale=factor)
        noise.add({"a": first * 2 * factor, "b": second * factor}, 1, scale=factor)
    squares, total = [5.0, 5.0 + 9.0], 20.0 + 9.0
    expected = noise_and_signal(squares, [1, 1], total)
    found = plain.estimate()
    assert found == scaled.estimate()
    assert (found.trace, found.signal) == pytest.approx(expected)


def test_a_single_backward_pass_says_nothing():
    noise = NoiseScale(fewest=1)
    noise.add({"a": torch.ones(2)}, 1)
    assert noise.estimate() is None
    assert noise.estimate() is None


def test_a_gradient_that_is_not_finite_is_left_out():
    noise = NoiseScale(fewest=1)
    for last in (2.0, math.inf, 2.0):
        noise.add({"a": torch.tensor([1.5])}, 1)
        noise.add({"a": torch.tensor([1.5 + last])}, 1)
        found = noise.estimate()
    expected = noise_and_signal([2.25, 4.0], [1, 1], 12.25)
    assert (found.trace, found.signal) == pytest.approx(expected)


def test_noise_that_hides_the_gradient_has_no_scale():
    noise = NoiseScale(fewest=1)
    noise.add({"a": torch.tensor([1.0])}, 1)
    noise.add({"a": torch.tensor([0.0])}, 1)
    assert noise.estimate().values() == {"grad_noise_trace": 8.0, "grad_noise_signal": -4.0}


def test_a_large_model_is_sampled_evenly_and_across_its_columns():
    shapes = [torch.empty(100, 12), torch.empty(50, 9), torch.empty(7)]
    stride = common_stride(shapes, 200)
    assert stride >= sum(each.numel() for each in shapes) / 200
    assert all(math.gcd(stride, each.shape[-1]) == 1 for each in shapes)
    assert common_stride(shapes, 10**6) == 1


def test_of_a_sample_each_element_counts_for_those_left_out():
    whole, sampled = NoiseScale(fewest=1), NoiseScale(max_elements=20_000, fewest=1)
    for noise in (whole, sampled):
        rng = np.random.default_rng(0)
        total = torch.zeros(400, 501)
        for _ in range(2):
            total = total + torch.from_numpy(rng.normal(1.0, 3.0, (400, 501)))
            noise.add({"a": total}, 1)
    one, other = whole.estimate(), sampled.estimate()
    assert other.trace == pytest.approx(one.trace, rel=0.05)
    assert other.signal == pytest.approx(one.signal, rel=0.3)
    assert other.trace != one.trace


def accumulate(model, folder, batches, loss_of, *, tell):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Recorder(model, folder, optimizer=optimizer) as recorder:
        for step in range(15):
            optimizer.zero_grad()
            for batch in batches(2, seed=step):
                loss = loss_of(model, batch) / 2
                loss.backward()
                if tell:
                    recorder.micro_batch(examples=4)
            recorder.after_backward()
            optimizer.step()
            recorder.step(2 * loss.detach())
    return recorder


def test_a_line_holds_the_scale_from_the_tenth_update_on(tiny, batches, loss_of, tmp_path, lines):
    bare, told = tiny(), tiny()
    accumulate(bare, tmp_path / "bare", batches, loss_of, tell=False)
    recorder = accumulate(told, tmp_path / "told", batches, loss_of, tell=True)
    assert recorder._guard.failures == 0
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), told.parameters(), strict=True))
    found = {line["step"]: line["grad_noise_scale"] for line in lines(tmp_path / "told") if "grad_noise_scale" in line}
    assert min(found) == 10
    assert all(scale > 0 for scale in found.values())
    for line in lines(tmp_path / "told"):
        assert ("grad_noise_trace" in line) == ("grad_noise_signal" in line) == (line["step"] >= 10)
        if "grad_noise_scale" in line:
            assert line["grad_noise_scale"] == pytest.approx(line["grad_noise_trace"] / line["grad_noise_signal"], rel=1e-6)
    assert not validate([tmp_path / "told"]).findings


def test_a_scale_that_the_trainer_logs_stays_alone(tiny, batches, loss_of, tmp_path, lines):
    model = tiny()
    with Recorder(model, tmp_path) as recorder:
        for step in range(12):
            model.zero_grad()
            for batch in batches(2, seed=step):
                loss_of(model, batch).backward()
                recorder.micro_batch()
            recorder.log(grad_noise_scale=7.0)
            recorder.step(1.0)
    assert {line["grad_noise_scale"] for line in lines(tmp_path)} == {7.0}
    assert not any("grad_noise_trace" in line for line in lines(tmp_path))
