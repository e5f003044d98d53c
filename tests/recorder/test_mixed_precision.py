import pytest
import torch

from ckaudit.audit import triage
from ckaudit.recorder import Recorder


def scaled_training(model, folder, batches, loss_of, *, steps=12, bad=(5,), call=True, unscale=True, fused=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with Recorder(model, folder, optimizer=optimizer, scaler=scaler, clip_norm=1.0) as recorder:
        for step, batch in enumerate(batches(steps), 1):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            scaler.scale(loss * (float("inf") if step in bad else 1)).backward()
            if unscale:
                scaler.unscale_(optimizer)
            if call:
                recorder.after_backward()
            scaler.step(optimizer)
            scaler.update()
            recorder.step(loss)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("call", "unscale"), [(True, True), (True, False), (False, False)])
def test_a_skipped_step_is_an_attempt(tiny, batches, loss_of, tmp_path, lines, read, call, unscale, fused):
    scaled_training(tiny(), tmp_path, batches, loss_of, call=call, unscale=unscale, fused=fused)
    found = lines(tmp_path)
    assert [line["step"] for line in found] == list(range(1, 13))
    assert [line["steps_seen"] for line in found] == [1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11]
    assert [line["skipped_updates"] for line in found] == [int(step == 5) for step in range(1, 13)]
    assert [line["loss_scale"] for line in found][5:] == [32.0] * 7
    assert read(tmp_path, 10).optimizer.loss_scale == 32.0
    assert read(tmp_path, 10).optimizer.found_inf is False
    assert not list(tmp_path.glob("*_00000006.json"))


def test_scaled_gradients_are_measured_as_the_unscaled_ones(tiny, batches, loss_of, tmp_path, read):
    ways = {"unscaled": {}, "scaled": {"unscale": False}, "fused": {"unscale": False, "call": False, "fused": True}}
    for name, way in ways.items():
        scaled_training(tiny(), tmp_path / name, batches, loss_of, bad=(), **way)
    expected = read(tmp_path / "unscaled", 10).gradients
    for way in ("scaled", "fused"):
        for name, stats in read(tmp_path / way, 10).gradients.items():
            assert stats.norm == pytest.approx(expected[name].norm, rel=1e-5, abs=1e-8)
            assert stats.percentiles == pytest.approx(expected[name].percentiles, rel=2e-3, abs=1e-7)


def test_a_skipped_step_moves_nothing(tiny, batches, loss_of, tmp_path, read):
    scaled_training(tiny(), tmp_path, batches, loss_of, bad=(10,))
    found = read(tmp_path, 10)
    assert {delta.norm for delta in found.weight_deltas.values()} == {0.0}
    assert found.optimizer.found_inf is True


def two_halves(folder, *, steps=10, bad=(), resting=()):
    """Train two halves of a model, each with an optimizer of its own; at some steps the second overflows, at others it rests."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizers = [torch.optim.SGD(half.parameters(), lr=0.01) for half in model]
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    with Recorder(model, folder, optimizer=optimizers, scaler=scaler) as recorder:
        for step in range(1, steps + 1):
            loss = model(torch.ones(8, 4)).square().mean()
            scaler.scale(loss).backward()
            if step in bad:
                model[1].weight.grad.fill_(float("inf"))
            for optimizer in optimizers[: 1 if step in resting else 2]:
                scaler.step(optimizer)
                optimizer.zero_grad()
            scaler.update()
            recorder.step(loss)


@pytest.mark.parametrize(("bad", "resting", "skipped"), [((3, 7), (), (3, 7)), ((), (2, 4, 6), ())])
def test_of_two_optimizers_one_may_overflow_or_rest(tmp_path, lines, bad, resting, skipped):
    two_halves(tmp_path, bad=bad, resting=resting)
    found = lines(tmp_path)
    assert [line["skipped_updates"] for line in found] == [int(step in skipped) for step in range(1, 11)]
    assert [line["steps_seen"] for line in found] == [step - sum(other <= step for other in skipped) for step in range(1, 11)]
    assert not [finding for finding in triage(tmp_path).findings if finding.code == "CLM001"]
