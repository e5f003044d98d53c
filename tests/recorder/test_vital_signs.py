import numpy as np
import pytest
import torch

from ckaudit.metrics.activations import dead_unit_fraction, residual_rms_p50, residual_rms_p99
from ckaudit.metrics.attention import dead_head_fraction, max_attn_logit, min_normalized_entropy
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.recorder import Recorder
from ckaudit.recorder.hooks.vital_signs import WeightSample
from ckaudit.run.read import read_run


def test_every_25_steps_a_line_has_vital_signs_and_every_50_dead_parts(tiny, train, tmp_path, lines):
    train(tiny(), 160, tmp_path, planned_steps=160)
    having = {
        name: {line["step"] for line in lines(tmp_path) if name in line} for name in ("max_attn_logit", "dead_head_fraction")
    }
    assert {25, 75, 125, 150} <= having["max_attn_logit"]  # and every step that has a checkpoint
    assert 26 not in having["max_attn_logit"]
    line = lines(tmp_path)[124]
    assert line["step"] == 125
    assert set(line) >= {"update_to_weight", "min_normalized_entropy", "residual_rms_p50/blocks.0", "residual_rms_p99/blocks.1"}
    assert not [name for name in line if name.startswith("dead")]


def test_the_movement_of_small_tensors_is_exact(tiny, batches, loss_of, tmp_path, lines):
    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with Recorder(model, tmp_path, optimizer=optimizer) as recorder:
        for step, batch in enumerate(batches(75), 1):
            before = np.concatenate([p.detach().double().numpy().ravel() for p in model.parameters()])
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
            recorder.step(1.0)
            after = np.concatenate([p.detach().double().numpy().ravel() for p in model.parameters()])
            if step == 75:
                expected = np.linalg.norm(after - before) / np.linalg.norm(after)
    assert lines(tmp_path)[74]["update_to_weight"] == pytest.approx(expected, rel=0.05)


def test_a_sample_stands_for_all_elements():
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "a": torch.randn(300, 200, generator=generator),
        "b": torch.randn(7, generator=generator) * 10,
        "c": torch.zeros(0),
    }
    tensors = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
    sample = WeightSample(tensors)
    before, moves = sample.take(), {name: 0.01 * torch.randn(t.shape, generator=generator) for name, t in tensors.items()}
    assert len(before) <= 256 + 7
    for name, tensor in tensors.items():
        tensor.data.add_(moves[name])
    whole = np.sqrt(sum(float((t.detach().double() ** 2).sum()) for t in tensors.values()))
    expected = np.sqrt(sum(float((m.double() ** 2).sum()) for m in moves.values())) / whole
    assert sample.moved(before) == pytest.approx(expected, rel=0.1)
    assert WeightSample({"zero": torch.zeros(3, requires_grad=True)}).moved(torch.zeros(3)) is None


def test_frozen_weights_are_no_part_of_what_moves():
    trained, frozen = torch.ones(4, requires_grad=True), torch.full((400,), 3.0)
    sample = WeightSample({"adapter": trained, "base": frozen})
    before = sample.take()
    trained.data.add_(0.5)
    assert sample.moved(before) == pytest.approx(0.5 / 1.5)
    frozen.requires_grad_()
    assert sample.moved(before) is None


def test_vital_signs_reach_the_metrics(tiny, train, tmp_path):
    train(tiny(), 125, tmp_path)
    run = read_run(tmp_path)
    for metric in (residual_rms_p50, residual_rms_p99, min_normalized_entropy, update_to_weight_global):
        steps = set(metric(run).steps.tolist())
        assert {100, 125} <= steps, metric.name
    assert max_attn_logit(run).points > 0
    for metric in (dead_head_fraction, dead_unit_fraction):
        values = metric(run).values[metric(run).recorded]
        assert ((values >= 0) & (values <= 1)).all()
