import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from ckaudit.recorder.checks.curvature import hessian_trace
from ckaudit.validate import validate


def exact_hessian(loss, parameters):
    """Return the whole Hessian in float64, a row for each element."""
    slopes = torch.autograd.grad(loss, parameters, create_graph=True)
    rows = []
    for slope in torch.cat([each.reshape(-1) for each in slopes]):
        row = torch.autograd.grad(slope, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([each.reshape(-1) for each in row]))
    return torch.stack(rows).double().numpy()


@pytest.fixture
def small():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x, y = torch.randn(6, 3), torch.randint(0, 2, (6,))
    return model, lambda: nn.functional.cross_entropy(model(x), y)


def test_the_estimate_is_the_exact_trace_within_its_error(small):
    model, loss = small
    exact = np.trace(exact_hessian(loss(), list(model.parameters())))
    found = hessian_trace(loss(), list(model.parameters()), samples=400, seed=0)
    assert abs(found.trace - exact) < 4 * found.standard_error
    assert found.standard_error < 0.1 * exact


def test_each_sample_is_a_quadratic_form_of_signs(small):
    model, loss = small
    hessian = exact_hessian(loss(), list(model.parameters()))
    source = torch.Generator().manual_seed(5)
    signs = [torch.randint(0, 2, p.shape, generator=source, dtype=torch.int8) * 2 - 1 for p in model.parameters()]
    v = np.concatenate([sign.numpy().ravel() for sign in signs]).astype(float)
    found = hessian_trace(loss(), list(model.parameters()), samples=1, seed=5)
    assert math.isclose(found.trace, v @ hessian @ v, rel_tol=1e-4)
    assert math.isnan(found.standard_error)


def test_a_diagonal_hessian_is_exact_with_one_vector():
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    unused = torch.ones(3, requires_grad=True)
    found = hessian_trace((w**3).sum(), [w, unused], samples=2, seed=0)
    assert (found.trace, found.standard_error) == (18.0, 0.0)


def test_a_plane_does_not_bend():
    w = torch.ones(3, requires_grad=True)
    assert hessian_trace(w.sum(), [w], samples=2, seed=0).trace == 0


def test_gradients_mode_and_random_numbers_stay(tiny, batches, loss_of, tmp_path):
    model, (batch,) = tiny(), batches(1)
    model.dropout = nn.Dropout(0.5)
    loss_of(model, batch).backward()
    before = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    numbers = torch.get_rng_state()
    with Recorder(model, tmp_path) as recorder:
        found = recorder.measure_curvature(lambda: model.dropout(loss_of(model, batch)[None]).sum(), samples=2)
        again = recorder.measure_curvature(loss_of(model, batch), samples=2)
        recorder.step(1.0)
    assert found.trace == pytest.approx(again.trace)
    assert torch.equal(numbers, torch.get_rng_state())
    assert model.training
    assert all(torch.equal(p.grad, kept) for p, kept in zip(model.parameters(), before, strict=False))
    assert recorder._guard.failures == 0


def test_a_loss_can_still_be_differentiated_afterwards(tiny, batches, loss_of, tmp_path):
    (batch,) = batches(1)
    bare, measured = tiny(), tiny()
    loss_of(bare, batch).backward()
    with Recorder(measured, tmp_path) as recorder:
        loss = loss_of(measured, batch)
        recorder.measure_curvature(loss)
        loss.backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(bare.parameters(), measured.parameters(), strict=True))


class Fused(nn.Linear):
    def forward(self, x):
        q = super().forward(x)
        return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)


def test_a_loss_through_fused_attention_is_refused_with_a_way_that_works(tmp_path, caplog):
    model, x = Fused(8, 8), torch.randn(1, 2, 4, 8)
    with Recorder(model, tmp_path) as recorder:
        loss = (model(x) ** 2).mean()
        assert recorder.measure_curvature(loss) is None
        with sdpa_kernel(SDPBackend.MATH):
            plain = (model(x) ** 2).mean()
        by_function = recorder.measure_curvature(lambda: (model(x) ** 2).mean(dim=None))
        assert recorder.measure_curvature(plain).trace == pytest.approx(by_function.trace)
    assert "measure_curvature(lambda: criterion(model(inputs), targets))" in caplog.text
    assert "sdpa_kernel(SDPBackend.MATH)" in caplog.text
    loss.backward()  # the graph is whole
    assert recorder._guard.failures == 1


def test_fused_attention_is_replaced_by_its_plain_form(tmp_path, lines):
    model, x = Fused(8, 8), torch.randn(1, 2, 4, 8)
    with Recorder(model, tmp_path) as recorder:
        found = recorder.measure_curvature(lambda: (model(x) ** 2).mean(dim=None))
        recorder.step(1.0)
    assert recorder._guard.failures == 0
    assert lines(tmp_path)[0]["curvature_trace_est"] == found.trace
    assert lines(tmp_path)[0]["curvature_trace_error"] == found.standard_error
    assert not validate([tmp_path]).findings


def test_a_loss_without_a_graph_is_counted(tiny, tmp_path):
    with Recorder(tiny(), tmp_path) as recorder:
        assert recorder.measure_curvature(torch.ones(())) is None
        assert recorder.measure_curvature(lambda: torch.ones((), requires_grad=True), samples=0) is None
        assert recorder._guard.failures == 2


def test_what_is_measured_is_not_taken_for_the_step(tiny, batches, loss_of, tmp_path, read):
    """At a due step hooks wait for the first forward pass, which must be the training's own."""

    def recorded(folder, *, measure):
        model, (batch, other) = tiny(), batches(2)
        with Recorder(model, folder, cadence=[Cadence(until=None, every=1)]) as recorder:
            for _ in range(2):
                if measure:
                    recorder.measure_curvature(lambda: loss_of(model, other), samples=1)
                loss_of(model, batch).backward()
                recorder.step(1.0)
        assert recorder._guard.failures == 0
        return read(folder, 2)

    bare, measured = recorded(tmp_path / "bare", measure=False), recorded(tmp_path / "measured", measure=True)
    assert bare.activations == measured.activations
    assert bare.attention == measured.attention
