"""Models inside `torch.func.vmap` and `grad`, as meta-learning runs them: passes in such transforms are not looked at."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from ckaudit.recorder import Recorder


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        one, two, three = (layer(x).unsqueeze(-3) for layer in (self.q, self.k, self.v))
        return nn.functional.scaled_dot_product_attention(one, two, three).squeeze(-3)


def model_and_optimizer():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Attention(), nn.LayerNorm(4), nn.Linear(4, 1))
    return model, torch.optim.SGD(model.parameters(), 0.1)


def task_loss(model, weights, x, y):
    def loss(weights):
        return nn.functional.mse_loss(functional_call(model, weights, (x,)), y)

    slopes = grad(loss)(weights)
    return loss({name: weight - 0.1 * slopes[name] for name, weight in weights.items()})


def losses(model, optimizer, *, steps, recorder=None, plain=False):
    torch.manual_seed(1)
    found = []
    for _ in range(steps):
        x, y = torch.randn(3, 6, 4), torch.randn(3, 6, 1)
        of_tasks = vmap(lambda weights, x, y: task_loss(model, weights, x, y), (None, 0, 0))(dict(model.named_parameters()), x, y)
        loss = of_tasks.mean()
        if plain:
            loss = loss + nn.functional.mse_loss(model(x[0]), y[0])
        optimizer.zero_grad()
        loss.backward()
        if recorder is not None:
            recorder.after_backward()
        optimizer.step()
        if recorder is not None:
            recorder.step(loss)
        found.append(loss.item())
    return found


@pytest.mark.parametrize("plain", [False, True])
def test_passes_inside_a_transform_are_left_alone(tmp_path, read, lines, manifest, caplog, plain):
    bare = losses(*model_and_optimizer(), steps=30, plain=plain)
    model, optimizer = model_and_optimizer()
    with Recorder(model, tmp_path, optimizer=optimizer) as recorder:
        assert losses(model, optimizer, steps=30, recorder=recorder, plain=plain) == bare
    (session,) = manifest(tmp_path).sessions
    assert (session.write_errors, session.look_errors) == (0, 0)
    assert caplog.text == ""
    assert [line["train_loss_raw"] for line in lines(tmp_path)] == pytest.approx(bare)
    checkpoint = read(tmp_path, 20)
    assert set(checkpoint.gradients) == {name for name, _ in model.named_parameters()}
    assert bool(checkpoint.activations) is plain
    assert bool(checkpoint.attention) is plain
    assert not manifest(tmp_path).tensors["4.weight"].no_gradient
