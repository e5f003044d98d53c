import numpy as np
import pytest
import torch
from msgspec import UNSET
from torch import nn

from ckaudit.recorder.hooks.forward_hooks import chosen_modules, is_activation_function, output_tensor
from ckaudit.recorder.stats.activation_stats import activation_stats, note


def random(shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(2)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 7), (3, 4), (8, 64, 190), (2, 3, 4, 5)])
def test_activations_agree_with_numpy(shape, dtype):
    tensor = random(shape, dtype).relu() * 3 - 0.5 * (random(shape, dtype) > 1)
    whole, stats = tensor.double().numpy(), activation_stats([note(tensor)])[0]
    x = whole.reshape(-1, shape[-1])
    if stats.sampled:
        every = next(n for n in range(1, len(x)) if x[::n].size == stats.sampled)
        assert np.gcd(every, shape[-2]) == 1  # the places of a sequence take turns
        x = x[::every]
        assert 64 * shape[-1] * 0.7 < x.size <= max(2**13, 64 * shape[-1])
    else:
        assert x.size <= 2**13 or len(x) <= 64
    tokens = np.sqrt((x**2).mean(1))
    expected = {
        "mean": x.mean(),
        "std": x.std(),
        "min": whole.min(),
        "max": whole.max(),
        "rms": np.sqrt((x**2).mean()),
        "mean_abs": np.abs(x).mean(),
        "p50": np.percentile(tokens, 50),
        "p99": np.percentile(tokens, 99),
        "sparsity": (x == 0).mean(),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(stats, name), value, rtol=1e-6, atol=1e-12, err_msg=name)
    assert (stats.units, stats.shape, stats.nonfinite_count) == (shape[-1], list(shape), 0)


def test_outliers_lie_beyond_six_standard_deviations():
    tensor = random((100, 100))
    tensor[3, :4] = torch.tensor([50.0, -60.0, 70.0, 5.0])
    x = tensor.double().numpy()
    assert (
        activation_stats([note(tensor, looked_at=2**14)])[0].outlier_rate == np.mean(np.abs(x - x.mean()) > 6 * x.std()) == 3e-4
    )


def test_a_unit_is_dead_where_no_token_moves_it():
    hidden = random((4, 6, 5)).abs() + 0.1
    hidden[..., 1] = 0
    hidden[..., 3] = -9e-4
    hidden[2, 5, 1] = 9.9e-4
    x = hidden.numpy()
    expected = sum(all(abs(x[b, t, j]) < 1e-3 for b in range(4) for t in range(6)) for j in range(5))
    assert activation_stats([note(hidden, count_dead=True)])[0].dead_units == expected == 2
    assert not activation_stats([note(hidden)])[0].dead_units


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_token_among_many_brings_a_unit_to_life(dtype):
    hidden = torch.zeros(30, 64, 40, dtype=dtype)
    hidden[..., ::2] = 1.0
    for unit in range(1, 40, 4):
        hidden[unit % 30, (7 * unit) % 64, unit] = -0.5
    hidden[3, 5, 7] = torch.nan
    x = hidden.double().numpy().reshape(-1, 40)
    expected = sum(bool(np.abs(x[:, unit]).max() < 1e-3) for unit in range(40))
    assert activation_stats([note(hidden, count_dead=True)])[0].dead_units == expected == 9


@pytest.mark.parametrize(("rows", "dead"), [(15, UNSET), (16, 2)])
def test_a_unit_that_is_silent_for_a_few_rows_is_not_called_dead(rows, dead):
    hidden = torch.ones(rows, 5)
    hidden[:, 1:3] = 0
    assert activation_stats([note(hidden, count_dead=True)])[0].dead_units == dead


def test_places_of_a_convolution_are_no_units():
    assert not activation_stats([note(torch.zeros(2, 3, 4, 4), count_dead=True)])[0].dead_units


def test_non_finite_outputs_are_counted_and_left_out():
    tensor = random((3, 4, 5))
    tensor[0, 0, 0], tensor[1, 2, 3] = float("nan"), float("inf")
    x = tensor.double().numpy()
    finite = x[np.isfinite(x)]
    stats = activation_stats([note(tensor)])[0]
    assert stats.nonfinite_count == 2
    np.testing.assert_allclose(
        [stats.mean, stats.std, stats.mean_abs], [finite.mean(), finite.std(), np.abs(finite).mean()], rtol=1e-6
    )
    tokens = np.sqrt((x.reshape(-1, 5) ** 2).mean(1))
    np.testing.assert_allclose(stats.p50, np.percentile(tokens[np.isfinite(tokens)], 50), rtol=1e-6)


def test_nothing_finite_is_recorded_as_nan():
    stats = activation_stats([note(torch.full((2, 3), float("nan")))])[0]
    assert (stats.mean, stats.rms, stats.mean_abs, stats.p50) == ("NaN",) * 4
    assert stats.nonfinite_count == 6


def test_the_default_choice_leaves_out_attention_layers_and_head(tiny):
    chosen = set(chosen_modules(tiny(), None, without=("*.probabilities", "*.logits")))
    block = {"blocks.{}", "blocks.{}.norm1", "blocks.{}.norm2", "blocks.{}.mlp.0", "blocks.{}.mlp.1", "blocks.{}.mlp.2"}
    assert chosen == {"embed", "norm", *(name.format(i) for name in block for i in (0, 1))}


def test_patterns_choose_modules_by_name(tiny):
    assert set(chosen_modules(tiny(), ("blocks.*.attn.o", "head"))) == {"blocks.0.attn.o", "blocks.1.attn.o", "head"}


def test_a_plain_network_is_seen_as_well():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    assert set(chosen_modules(model, None)) == {"0", "1", "2", "4"}


@pytest.mark.parametrize("module", [nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Tanh(), nn.LeakyReLU(), nn.GLU()])
def test_activation_functions_are_known_by_their_class(module):
    assert is_activation_function(module)


@pytest.mark.parametrize("module", [nn.Identity(), nn.Linear(1, 1), nn.Softmax(-1), nn.Dropout(), nn.MultiheadAttention(2, 1)])
def test_other_modules_are_no_activation_functions(module):
    assert not is_activation_function(module)


def test_only_floating_outputs_are_measured():
    assert output_tensor((torch.ones(2), "state")) is not None
    assert output_tensor(torch.ones(2, dtype=torch.long)) is None
    assert output_tensor({"logits": torch.ones(2)}) is None
    assert output_tensor(()) is None
