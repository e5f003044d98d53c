import numpy as np
import pytest
import torch
from torch import nn

from ckaudit.recorder.model import gradient_norms as gradients
from ckaudit.recorder.model.optimizers import clip_coefficient
from ckaudit.recorder.stats import tensor_stats


def some(dtypes=(torch.float32,), count=6, scale=1.0):
    source = torch.Generator().manual_seed(1)
    return [(torch.randn(3 + i, 7, generator=source) * scale).to(dtypes[i % len(dtypes)]) for i in range(count)]


@pytest.mark.parametrize(
    "dtypes", [(torch.float32,), (torch.float64, torch.float32), (torch.bfloat16, torch.float16, torch.float32)]
)
def test_norms_agree_with_numpy(dtypes):
    tensors = some(dtypes)
    norms, _ = gradients.norms_of(tensors)
    expected = [np.linalg.norm(tensor.double().numpy()) for tensor in tensors]
    np.testing.assert_allclose(norms, expected, rtol=3e-7)
    np.testing.assert_allclose(tensor_stats.total_norm(expected), np.linalg.norm(expected), rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_of_a_long_gradient_stays_right(dtype):
    tensor = torch.rand(3, 2_000_001, generator=torch.Generator().manual_seed(0)).to(dtype)
    whole, views = gradients.norms_of([tensor, tensor.t(), torch.ones(1)])
    expected = np.linalg.norm(tensor.double().numpy())
    np.testing.assert_allclose(whole, [expected, expected, 1.0], rtol=1e-5)
    assert views is None


def test_half_precision_norms_do_not_overflow():
    norms, _ = gradients.norms_of([torch.full((100, 100), 1e3, dtype=torch.float16)])
    np.testing.assert_allclose(norms, [1e5], rtol=1e-5)


def test_the_norm_of_a_sparse_gradient_counts_repeated_rows_together():
    sparse = torch.sparse_coo_tensor([[1, 1]], torch.tensor([[3.0], [1.0]]), (4, 1), check_invariants=True)
    assert gradients.norms_of([sparse])[0] == [4.0]


def test_one_bad_norm_decides_the_total():
    assert np.isnan(tensor_stats.total_norm([1.0, float("nan"), float("inf")]))
    assert tensor_stats.total_norm([1.0, float("inf")]) == float("inf")


def test_the_top_share_is_the_largest_square_over_all():
    assert tensor_stats.top_share([1.0, 3.0, 2.0]) == 9 / 14
    assert tensor_stats.top_share([0.0, 0.0]) is None
    assert tensor_stats.top_share([1.0, float("nan")]) is None
    assert tensor_stats.top_share([]) is None


def test_missing_and_frozen_gradients_are_not_there():
    used, unused, frozen = (nn.Parameter(torch.ones(2)) for _ in range(3))
    used.grad, frozen.grad = torch.zeros(2), torch.ones(2)
    frozen.requires_grad_(False)
    assert list(gradients.existing_gradients({"used": used, "unused": unused, "frozen": frozen})) == ["used"]


@pytest.mark.parametrize("share", [0.01, 0.99, 1.0, 1.0005, 1.005, 1e5])
@pytest.mark.parametrize("scale", [1.0, 1e-5])
def test_clipping_from_known_norms_is_torchs_own_to_the_bit(share, scale):
    ours, theirs = some(scale=scale), [nn.Parameter(torch.zeros_like(tensor)) for tensor in some()]
    max_norm = share * np.linalg.norm(gradients.norms_of(ours)[0])
    for parameter, gradient in zip(theirs, some(scale=scale), strict=True):
        parameter.grad = gradient
    total = gradients.clip(ours, gradients.norms_of(ours)[1], max_norm)
    assert torch.equal(total, nn.utils.clip_grad_norm_(theirs, max_norm))
    assert all(torch.equal(gradient, parameter.grad) for gradient, parameter in zip(ours, theirs, strict=True))
    before = np.linalg.norm([np.linalg.norm(tensor.numpy()) for tensor in some(scale=scale)])
    expected = some(scale=scale)[0].numpy() * clip_coefficient(max_norm, before)
    np.testing.assert_allclose(ours[0].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_clipping_a_gradient_that_is_not_finite_is_torchs_own(bad):
    ours, theirs = some(), [nn.Parameter(torch.zeros_like(tensor)) for tensor in some()]
    for parameter, gradient in zip(theirs, some(), strict=True):
        parameter.grad = gradient
    ours[2][1, 1] = theirs[2].grad[1, 1] = bad
    total = gradients.clip(ours, gradients.norms_of(ours)[1], 1e6)
    assert torch.equal(total.isnan(), nn.utils.clip_grad_norm_(theirs, 1e6).isnan())
    for gradient, parameter in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(gradient.numpy(), parameter.grad.numpy())


def test_half_precision_and_nothing_are_left_to_torch():
    assert gradients.norms_of(some((torch.bfloat16,)))[1] is None
    assert gradients.norms_of([]) == ([], None)


def test_statistics_are_those_of_the_unscaled_gradient():
    tensor = some()[0]
    scaled, plain = tensor_stats.gradient_stats(tensor * 1024, scale=1024.0), tensor_stats.gradient_stats(tensor)
    assert scaled == plain


def test_a_scale_lies_on_the_gradients_until_they_are_unscaled():
    parameter = nn.Parameter(torch.ones(2))
    optimizer, scaler = torch.optim.SGD([parameter], lr=0.1), torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(parameter.sum()).backward()
    assert gradients.loss_scale_left(scaler) == 8.0
    scaler.unscale_(optimizer)
    assert gradients.loss_scale_left(scaler) == 1.0
    assert gradients.loss_scale_left(None) == 1.0
    assert gradients.loss_scale_left(torch.amp.GradScaler("cpu", enabled=False)) == 1.0
