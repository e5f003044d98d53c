"""Optimizers that call a closure for their gradients, as L-BFGS does: what its last call left is recorded."""

import pytest
import torch
from torch import nn

from ckaudit.recorder import Recorder


def model_of(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def trained(folder, make, *, steps=30, asks=False, **facts):
    """Return the losses, the norms of what the last call of each closure left, and how often each was called."""
    model = model_of()
    optimizer = make(model.parameters())
    x = torch.randn(64, 3)
    y, losses, norms, calls = x.prod(1, keepdim=True), [], [], []
    with Recorder(model, folder, optimizer=optimizer, **facts) as recorder:
        for _ in range(steps):
            count = 0

            def closure():
                nonlocal count
                count += 1
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
                if asks and count == 1:
                    recorder.after_backward()
                    norms.append(norm_of(model))
                return loss

            loss = optimizer.step(closure)
            if not asks:
                norms.append(norm_of(model))
            recorder.step(loss)
            losses.append(loss.item())
            calls.append(count)
    return losses, norms, calls


def norm_of(model):
    return torch.stack([parameter.grad.double().norm() for parameter in model.parameters()]).norm().item()


def lbfgs(parameters):
    return torch.optim.LBFGS(parameters, lr=0.5, max_iter=4, line_search_fn="strong_wolfe")


@pytest.mark.parametrize("asks", [False, True])
def test_the_gradient_of_a_closure_is_recorded(tmp_path, lines, read, manifest, asks):
    losses, norms, calls = trained(tmp_path, lbfgs, asks=asks)
    assert max(calls) > 1
    found = lines(tmp_path)
    assert [line["grad_global_norm"] for line in found] == pytest.approx(norms, rel=1e-5)
    assert [line["train_loss_raw"] for line in found] == pytest.approx(losses)
    checkpoint = read(tmp_path, 30)
    assert set(checkpoint.gradients) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert checkpoint.weight_deltas["0.weight"].norm > 0
    assert manifest(tmp_path).sessions[-1].look_errors == 0


def test_a_recorded_closure_trains_as_a_bare_one(tmp_path):
    model, optimizer_losses = model_of(), []
    optimizer = lbfgs(model.parameters())
    x = torch.randn(64, 3)
    y = x.prod(1, keepdim=True)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    optimizer_losses = [optimizer.step(closure).item() for _ in range(30)]
    losses, _, _ = trained(tmp_path, lbfgs)
    assert losses == optimizer_losses


def test_gradients_that_a_closure_clips_are_said_to_be_clipped(tmp_path, read):
    trained(tmp_path, lambda parameters: torch.optim.SGD(parameters, 0.1), steps=10, clip_norm=1.0)
    assert read(tmp_path, 10).gradients_source == "post_clip"
