import math

import numpy as np
import pytest
import torch
from msgspec import UNSET
from torch import nn

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from ckaudit.recorder.loop.overhead_meter import OverheadMeter
from ckaudit.recorder.model.gradient_norms import difference_norms
from ckaudit.recorder.model.weight_movement import distances
from ckaudit.recorder.stats.arrays import ROW, square_sum

SOURCE = torch.Generator().manual_seed(11)


def random(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=SOURCE, dtype=torch.float64).to(dtype)


def expected(ones, others):
    return [float(np.linalg.norm((a.double() - b.double()).numpy().ravel())) for a, b in zip(ones, others, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_of_differences_agree_with_numpy(dtype):
    ones = [random(*shape, dtype=dtype) for shape in ((), (1,), (7, 3), (300, 411))]
    others = [one + 1e-3 * random(*one.shape, dtype=dtype) for one in ones]
    others.append(random(2_000_000, dtype=dtype))  # more than torch sums rightly at once
    ones.append(random(2_000_000, dtype=dtype))
    right = expected(ones, others)
    np.testing.assert_allclose(difference_norms(ones, others), right, rtol=2e-5)


@pytest.mark.parametrize("far", [1e-30, 1e-22, 1e-17, 1e25])
def test_a_difference_whose_square_float32_cannot_hold_has_its_norm(far):
    ones, others = [torch.full((50,), far)], [torch.zeros(50)]
    assert difference_norms(ones, others)[0] == pytest.approx(far * math.sqrt(50), rel=1e-6)


def test_no_difference_is_zero_and_nan_is_nan():
    same, nan, endless = torch.ones(4), torch.tensor([1.0, math.nan]), torch.tensor([math.inf, 1.0])
    zero, unknown, infinite = difference_norms([same, nan, endless], [same.clone(), torch.ones(2), torch.ones(2)])
    assert (zero, infinite) == (0.0, math.inf)
    assert math.isnan(unknown)


def test_parameters_keep_their_values_and_no_history_is_made():
    weight = torch.nn.Parameter(random(5))
    before, copy = weight.detach().clone(), weight.detach().clone() - 1.0
    assert difference_norms([weight], [copy])[0] == pytest.approx(math.sqrt(5))
    assert torch.equal(weight.detach(), before)
    assert not copy.requires_grad


@pytest.mark.parametrize("odd", [torch.ones(4).to_sparse(), torch.ones(4, dtype=torch.bfloat16)])
def test_other_tensors_are_measured_one_by_one(odd):
    ones, others = [torch.ones(3), odd], [torch.zeros(3), (odd.to_dense() * 2 if odd.is_sparse else odd * 2)]
    assert difference_norms(ones, others) is None
    (first, _), (second, size) = distances(ones, others, sizes=[1.0, 7.0])
    assert (first, second, size) == (pytest.approx(math.sqrt(3)), 2.0, 7.0)


@pytest.mark.parametrize("size", [0, 1, ROW - 1, ROW, ROW + 1, 3 * ROW, 5 * ROW + 17])
def test_squares_are_summed_over_whole_rows_and_what_is_left(size):
    values = random(size, dtype=torch.float64).numpy()
    assert float(square_sum(values)) == pytest.approx(math.fsum((values**2).tolist()), rel=1e-13)
    values[:1] = math.nan
    assert math.isnan(square_sum(values)) is bool(size)


def test_a_checkpoint_that_is_built_again_does_not_take_differences_for_weights(tiny, train, tmp_path, read, monkeypatch):
    train(tiny(), 10, tmp_path / "right")
    cost, fails = OverheadMeter.cost, iter([True])

    def failing(self, in_step, writing):
        if self.durations and len(self.durations) == 10 and next(fails, False):
            raise RuntimeError("no clock")
        return cost(self, in_step, writing)

    monkeypatch.setattr(OverheadMeter, "cost", failing)
    train(tiny(), 10, tmp_path / "again")
    assert not next(fails, False)  # the tenth step had no checkpoint, until the end
    known, again = (read(tmp_path / name, 10).weight_deltas for name in ("right", "again"))
    assert len(again) > 20  # of a tensor that began as zeros nothing is known then
    for name, delta in again.items():
        assert not delta.norm
        assert delta.moved == known[name].moved


@pytest.mark.parametrize(("dtype", "rate"), [(torch.bfloat16, 1e-5), (torch.bfloat16, 1e-2), (torch.float16, 1e-5)])
def test_updates_that_round_to_none_are_counted_element_by_element(tmp_path, read, dtype, rate):
    torch.manual_seed(0)
    model = nn.Linear(32, 32).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    recorder = Recorder(model, tmp_path, optimizer=optimizer, cadence=[Cadence(until=None, every=1)])
    before = model.weight.detach().double().clone()
    model(torch.randn(8, 32, dtype=dtype)).float().square().mean().backward()
    optimizer.step()
    recorder.step(1.0)
    recorder.close()
    same = sum(old == new for old, new in zip(before.ravel().tolist(), model.weight.double().ravel().tolist(), strict=True))
    assert read(tmp_path, 1).weight_deltas["weight"].unchanged == pytest.approx(same / 1024)


def test_single_precision_loses_no_updates(tmp_path, read):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    recorder = Recorder(model, tmp_path, optimizer=optimizer, cadence=[Cadence(until=None, every=1)])
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    recorder.step(1.0)
    recorder.close()
    assert read(tmp_path, 1).weight_deltas["weight"].unchanged is UNSET
