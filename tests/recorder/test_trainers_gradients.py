import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import nn

from ckaudit.recorder import Recorder
from ckaudit.recorder.model.optimizers import optimizer_state, undone_clipping
from ckaudit.recorder.model.tensor_table import hookable


def backward(model, batch, loss_of):
    model.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    return loss, {name: np.linalg.norm(p.grad.double().numpy()) for name, p in model.named_parameters()}


def norms_in(checkpoint):
    return {name: stats.norm for name, stats in checkpoint.gradients.items()}


def keep_elsewhere(model):
    """Move gradients to `main_grad`, as Megatron does, except that of the head, which keeps none at all."""
    for name, parameter in model.named_parameters():
        parameter.main_grad = None if name.startswith("head") else parameter.grad.double()
        parameter.grad = None


def main_grad(parameter):
    return getattr(parameter, "main_grad", None)


@pytest.mark.parametrize("grad_of", [main_grad, None])
def test_gradients_that_live_elsewhere_are_brought_or_not_recorded(tiny, batches, loss_of, tmp_path, read, lines, grad_of):
    model = tiny()
    expected = {}
    with Recorder(model, tmp_path, grad_of=grad_of) as recorder:
        for batch in batches(10):
            loss, expected = backward(model, batch, loss_of)
            keep_elsewhere(model)
            recorder.after_backward()
            recorder.step(loss)
    if grad_of is None:
        assert not read(tmp_path, 10).gradients
        assert "grad_global_norm" not in lines(tmp_path)[-1]
        return
    del expected["head.weight"]
    assert norms_in(read(tmp_path, 10)) == pytest.approx(expected, rel=1e-6)
    assert lines(tmp_path)[-1]["grad_global_norm"] == pytest.approx(np.linalg.norm([*expected.values()]), rel=1e-6)


def test_clipping_scales_the_own_gradients_whatever_is_measured(tiny, batches, loss_of, tmp_path, read):
    model, (batch,) = tiny(), batches(1)
    _, before = backward(model, batch, loss_of)
    with Recorder(model, tmp_path, grad_of=lambda p: p.grad * 7) as recorder:
        total = recorder.clip_grad_norm_(0.01)
    assert float(total) == pytest.approx(np.linalg.norm([*before.values()]), rel=1e-6)
    assert float(nn.utils.get_total_norm([p.grad for p in model.parameters()])) == pytest.approx(0.01, rel=1e-3)


def test_the_optimizer_does_not_bring_gradients_that_need_all_ranks(tiny, batches, loss_of, tmp_path, lines):
    asked, model = [], tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(model, tmp_path, optimizer=optimizer, grad_of=asked.append) as recorder:
        backward(model, batches(1)[0], loss_of)
        optimizer.step()
        recorder.step(1.0)
    assert not asked


def test_other_ranks_bring_gradients_too(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("ckaudit.recorder.loop.session.rank_and_world_size", lambda: (1, 2))
    asked, model = [], tiny()
    recorder = Recorder(model, tmp_path / "run", grad_of=asked.append)
    recorder.after_backward()
    recorder.close()
    assert len(asked) == len([*model.parameters()])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("limit", "knows"), [(0.05, True), (50.0, False), (50.0, True)])
def test_clipped_gradients_are_rescaled_where_the_factor_is_known(tiny, batches, loss_of, tmp_path, read, lines, limit, knows):
    model, expected = tiny(), {}
    with Recorder(model, tmp_path) as recorder:
        for batch in batches(10):
            loss, expected = backward(model, batch, loss_of)
            total = nn.utils.clip_grad_norm_(model.parameters(), limit)
            recorder.after_clipping(limit, total if knows else None)
            recorder.step(loss)
    found = read(tmp_path, 10)
    total = np.linalg.norm([*expected.values()])
    assert found.gradients_source == "rescaled"
    assert norms_in(found) == pytest.approx(expected, rel=1e-4)
    assert lines(tmp_path)[-1]["grad_global_norm"] == pytest.approx(total, rel=1e-4)


def test_clipped_gradients_of_unknown_factor_stay_as_read(tiny, batches, loss_of, tmp_path, read):
    model, limit = tiny(), 0.05
    with Recorder(model, tmp_path) as recorder:
        for batch in batches(10):
            loss, _ = backward(model, batch, loss_of)
            nn.utils.clip_grad_norm_(model.parameters(), limit)
            recorder.after_clipping(limit)
            recorder.step(loss)
    found = read(tmp_path, 10)
    assert found.gradients_source == "post_clip"
    assert np.linalg.norm([*norms_in(found).values()]) == pytest.approx(limit, rel=1e-3)


@pytest.mark.parametrize(
    ("max_norm", "now", "before", "expected"),
    [(1.0, 0.5, None, 1.0), (1.0, 1.0, None, None), (1.0, 0.9999, None, None), (1.0, 1.0, 4.0, 0.25), (1.0, 0.3, 0.3, 1.0)],
)
def test_the_factor_of_a_clipping(max_norm, now, before, expected):
    assert undone_clipping(max_norm, now, before) == (None if expected is None else pytest.approx(expected, rel=1e-5))


@pytest.mark.parametrize("before", [float("inf"), float("nan")])
def test_a_clipping_of_no_finite_norm_cannot_be_undone(before):
    assert undone_clipping(1.0, float("nan"), before) is None


def test_values_that_come_later_join_the_line_of_the_step_before(tiny, tmp_path, lines):
    with Recorder(tiny(), tmp_path) as recorder:
        recorder.log_after(val_loss=4.0)
        recorder.step(3.0)
        recorder.log_after(val_loss=2.5, train_loss_raw=9.0, step=7)
        recorder.log_after(val_loss=2.6)
        recorder.step(2.0)
    found = [(line["step"], line.get("train_loss_raw"), line.get("val_loss")) for line in lines(tmp_path)]
    assert found == [(0, None, 4.0), (1, 3.0, None), (1, None, 2.5), (2, 2.0, None)]


def test_a_value_before_the_first_step_of_a_resume_has_no_line(tiny, tmp_path, lines):
    with Recorder(tiny(), tmp_path, start_step=5) as recorder:
        recorder.log_after(val_loss=4.0)
        recorder.step(3.0)
    assert [line["step"] for line in lines(tmp_path)] == [6]


def test_prepared_objects_of_accelerate_are_taken(tiny, batches, loss_of, tmp_path, read, lines):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, expected = tiny(), []
    prepared, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with Recorder(prepared, tmp_path, optimizer=optimizer, scaler=accelerator.scaler, clip_norm=0.1) as recorder:
        for batch in batches(20):
            with accelerator.accumulate(prepared):
                loss = loss_of(prepared, batch)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    expected.append({name: np.linalg.norm(p.grad.double().numpy()) for name, p in model.named_parameters()})
                    recorder.after_backward()
                    accelerator.clip_grad_norm_(prepared.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
                if accelerator.sync_gradients:
                    recorder.step(loss, batch=batch)
    found = read(tmp_path, 10)
    assert found.gradients_source == "pre_clip"
    assert norms_in(found) == pytest.approx(expected[9], rel=1e-5)
    assert (found.optimizer.name, found.optimizer.trainable_without_optimizer) == ("SGD", [])
    assert lines(tmp_path)[-1]["steps_seen"] == 10


def test_an_optimizer_of_copies_misses_nothing():
    model = nn.Linear(2, 2)
    copies = torch.optim.SGD([p.detach().clone() for p in model.parameters()], lr=0.1)
    half = torch.optim.SGD([model.weight], lr=0.1)
    named = dict(model.named_parameters())
    assert not optimizer_state((copies,), named, [0.1], finite=None).trainable_without_optimizer
    assert optimizer_state((half,), named, [0.1], finite=None).trainable_without_optimizer == ["bias"]


def test_modules_inside_a_compiled_one_are_not_hookable(tiny):
    model = tiny()
    names = {name for name, _ in model.named_modules()}
    assert hookable(model) == names
    assert hookable(torch.compile(model, backend="eager")) == set()
    model.blocks[1].compile(backend="eager")
    assert hookable(model) == {name for name in names if not name.startswith("blocks.1")}


def test_a_compiled_model_trains_the_same_and_its_norms_are_recorded(tiny, train, tmp_path, read, caplog):
    plain, recorded = tiny(), tiny()
    train(torch.compile(plain, backend="aot_eager"), 12)
    train(torch.compile(recorded, backend="aot_eager"), 12, tmp_path)
    assert all(map(torch.equal, plain.parameters(), recorded.parameters()))
    assert not read(tmp_path, 10).activations
    assert read(tmp_path, 10).gradients.keys() == dict(recorded.named_parameters()).keys()
    assert [record.getMessage() for record in caplog.records if "compiled" in record.getMessage()] == [
        "the model is compiled: activations and attention inside it are not recorded"
    ]
