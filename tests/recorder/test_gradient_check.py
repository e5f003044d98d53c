import math

import numpy as np
import pytest
import torch
from torch import nn

from ckaudit.recorder import Recorder
from ckaudit.recorder.checks.gradient_check import _furthest, check_gradients
from ckaudit.recorder.checks.side_effect_free import own_loss
from ckaudit.validate import validate


class Forgetful(torch.autograd.Function):
    """A square whose backward pass forgets the factor two."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, slope):
        return slope * ctx.saved_tensors[0]


class Squares(nn.Module):
    """Three layers with squares between them; the one after `wrong` has the wrong derivative."""

    def __init__(self, wrong=None):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
        self.wrong = wrong

    def forward(self, x):
        for place, layer in enumerate(self.layers):
            x = Forgetful.apply(layer(x)) if place == self.wrong else layer(x) ** 2
        return x


def sum_of(model, batch):
    return model(batch).sum()


def test_a_right_model_passes(tiny, batches):
    found = check_gradients(tiny(), batches(1)[0], own_loss)
    assert found.passed
    assert found.worst_error < 1e-6
    assert set(found.errors) == {name for name, _ in tiny().named_parameters()}


def test_a_wrong_backward_pass_is_caught_and_named():
    torch.manual_seed(0)
    model, batch = Squares(wrong=1), torch.randn(4, 3, dtype=torch.float32)
    found = check_gradients(model, batch, sum_of)
    assert not found.passed
    # Half the gradient: the difference is half of the larger, in that layer and in what comes before it.
    assert found.wrong == [f"layers.{place}.{part}" for place in (0, 1) for part in ("weight", "bias")]
    assert math.isclose(found.worst_error, 0.5, rel_tol=1e-6)
    assert found.worst_tensor == "layers.1.bias"
    assert check_gradients(Squares(), batch, sum_of).passed


def test_the_worst_tensor_is_the_last_of_about_equals():
    assert _furthest({"a": 0.5, "b": 0.4999, "c": 1e-4, "d": 0.0}) == "b"
    assert _furthest({"a": 4e-4, "b": 0.0}) == "a"
    assert _furthest({"a": math.nan, "b": 1.0}) == "a"
    assert _furthest({"a": 0.0}) is None


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_model_that_casts_to_single_precision_is_checked_in_double(attention):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=17,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        attn_implementation=attention,
    )
    tokens = torch.randint(0, 17, (2, 6))
    found = check_gradients(transformers.LlamaForCausalLM(config), {"input_ids": tokens, "labels": tokens}, own_loss)
    assert found.passed
    assert found.elements > 30


def test_a_loss_in_single_precision_cannot_be_checked():
    with pytest.raises(TypeError, match="float32"):
        check_gradients(nn.Linear(2, 2), torch.ones(1, 2), lambda model, batch: model(batch).sum().type(torch.FloatTensor))


def test_a_gradient_that_is_missing_is_caught():
    class Detached(nn.Linear):
        def forward(self, x):
            return nn.functional.linear(x, self.weight.detach(), self.bias)

    found = check_gradients(Detached(3, 2), torch.randn(4, 3), sum_of)
    assert (found.worst_tensor, found.worst_error) == ("weight", pytest.approx(1.0))
    assert found.errors["bias"] < 1e-6


def test_every_element_of_a_small_tensor_is_compared_with_numpy():
    """The loss is a polynomial, whose slopes NumPy gives in closed form."""
    torch.manual_seed(0)
    model, batch = nn.Linear(2, 1, bias=False).double(), torch.randn(5, 2, dtype=torch.float64)
    x, w = batch.numpy(), model.weight.detach().numpy().ravel()
    slopes = (4 * (x @ w)[:, None] ** 3 * x).sum(0)

    class Reported(torch.autograd.Function):
        @staticmethod
        def forward(ctx, weight):
            return ((batch @ weight.T) ** 4).sum()

        @staticmethod
        def backward(ctx, slope):
            return torch.from_numpy(slopes * np.array([1.0, 1.001])).reshape(1, 2)

    found = check_gradients(model, batch, lambda model, _: Reported.apply(model.weight), per_tensor=9)
    assert found.elements == 2
    assert math.isclose(found.worst_error, 0.001 / 1.001, rel_tol=1e-3)


def test_a_kink_is_no_fault():
    """At 2e-6 from the corner of the absolute value the wide difference straddles it and the narrow one does not."""
    model = nn.Module()
    model.w = nn.Parameter(torch.tensor([2e-6], dtype=torch.float64))
    assert check_gradients(model, None, lambda model, _: 3 * model.w.abs().sum()).passed


def test_a_nan_is_the_worst_error():
    model = nn.Module()
    model.a, model.w = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
    found = check_gradients(model, None, lambda model, _: (model.w / model.w * model.a.detach() + model.a * 0).sum())
    assert math.isnan(found.worst_error)
    assert not found.passed


def test_model_gradients_mode_and_random_numbers_stay(tiny, batches, loss_of):
    model = tiny()
    model.dropout = nn.Dropout(0.5)
    loss_of(model, batches(1)[0]).backward()
    before = {name: (p.clone(), p.grad.clone()) for name, p in model.named_parameters()}
    numbers = torch.get_rng_state()
    check_gradients(model, batches(1)[0], lambda model, batch: loss_of(model, batch) + model.dropout(torch.ones(3)).sum() * 0)
    assert torch.equal(numbers, torch.get_rng_state())
    assert model.training
    assert all(torch.equal(p, before[name][0]) and torch.equal(p.grad, before[name][1]) for name, p in model.named_parameters())


@pytest.mark.parametrize("wrong", [None, 0])
def test_a_checkpoint_says_where_gradients_are_furthest_off(tmp_path, read, wrong):
    torch.manual_seed(0)
    model, batch = Squares(wrong), torch.randn(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Recorder(model, tmp_path, optimizer=optimizer) as recorder:
        for step in (1, 2, 3):
            if step == 2:
                found = recorder.check_gradients(batch, sum_of)
            optimizer.zero_grad()
            loss = sum_of(model, batch)
            loss.backward()
            recorder.after_backward()
            optimizer.step()
            recorder.step(loss)
    parity = read(tmp_path, 2).parity
    assert read(tmp_path, 2).triggers == ["manual"]
    assert read(tmp_path, 2).weight_deltas
    assert (parity.gradient_worst_tensor or None) == found.worst_tensor
    assert parity.gradient_error == pytest.approx(found.worst_error)
    assert (parity.gradient_error > 0.4) == (wrong is not None)
    assert not read(tmp_path, 3).parity
    assert not validate([tmp_path]).findings
    assert recorder._guard.failures == 0


def test_a_loss_that_fails_is_counted(tiny, tmp_path):
    with Recorder(tiny(), tmp_path) as recorder:
        assert recorder.check_gradients(None, lambda _model, _batch: 1 / 0) is None
        assert recorder._guard.failures == 1
