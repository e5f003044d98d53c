"""What a resume began with: norms against NumPy, optimizers with and without state, and the verdict on each."""

import copy

import msgspec
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from ckaudit.audit import triage
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.recorder import Recorder


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


def train(net, optimizer, folder, steps, *, start=0, load=None):
    """Train, with what is to be loaded loaded after the recorder was made, and return what a checkpoint would keep."""
    source = torch.Generator().manual_seed(1)
    x = torch.randn(8, 4, generator=source)
    with Recorder(net, folder, optimizer=optimizer, start_step=start) as recorder:
        if load is not None:
            load()
        for _ in range(steps):
            optimizer.zero_grad()
            loss = mse_loss(net(x), x[:, :1])
            loss.backward()
            recorder.after_backward()
            optimizer.step()
            recorder.step(loss)
    return copy.deepcopy((net.state_dict(), optimizer.state_dict()))


def adam(net):
    return torch.optim.AdamW(net.parameters(), lr=1e-3)


def sgd(net, momentum=0.0):
    return torch.optim.SGD(net.parameters(), lr=1e-3, momentum=momentum)


def resumed(folder, make=adam, *, forget=(), optimizer_too=True):
    """Train forty steps, stop, and forty more in a new model; return the session and the weights that it began with."""
    first = model()
    weights, state = train(first, make(first), folder, 40)
    second = model(seed=7)
    optimizer = make(second)
    kept = {name: each for name, each in weights.items() if name not in forget}

    def load():
        second.load_state_dict(kept, strict=False)
        if optimizer_too:
            optimizer.load_state_dict(state)

    began = second.state_dict() | kept
    began = {name: each.double().numpy().copy() for name, each in began.items()}
    train(second, optimizer, folder, 40, start=40, load=load)
    found = msgspec.json.decode((folder / "run.json").read_bytes(), type=Manifest)
    return found.sessions, began


def codes(folder):
    return {each.code for each in triage(folder).findings if each.severity != "note"}


def test_norms_are_those_of_what_was_loaded_after_the_recorder_was_made(tmp_path):
    (first, second), began = resumed(tmp_path)
    assert first.weight_norms is msgspec.UNSET
    assert second.weight_norms == pytest.approx({name: np.linalg.norm(each) for name, each in began.items()}, rel=1e-6)
    assert second.optimizer_restored is True
    assert not codes(tmp_path) & {"RESUME002", "RESUME004"}


def test_a_layer_that_was_not_found_is_named(tmp_path):
    resumed(tmp_path, forget=("0.weight", "0.bias"))
    report = triage(tmp_path)
    (found,) = [each for each in report.findings if each.code == "RESUME004"]
    assert {found.where, *found.also} == {"0.weight", "0.bias"}
    assert found.first_step == 41
    assert report.diagnoses[0].cause == "weights_not_restored"


def test_a_state_that_was_not_loaded_is_seen_without_any_jump_of_the_loss(tmp_path):
    (_, second), _ = resumed(tmp_path, optimizer_too=False)
    assert second.optimizer_restored is False
    report = triage(tmp_path)
    assert [each.message for each in report.findings if each.code == "RESUME002"] == [
        "the optimizer held nothing before its first update after the resume from step 40, and does since"
    ]
    assert report.diagnoses[0].cause == "optimizer_state_lost"


@pytest.mark.parametrize(("momentum", "restored"), [(0.0, msgspec.UNSET), (0.9, True)])
def test_an_optimizer_without_state_has_none_to_lose(tmp_path, momentum, restored):
    (_, second), _ = resumed(tmp_path, lambda net: sgd(net, momentum))
    assert second.optimizer_restored is restored
    assert (second.write_errors, second.look_errors) == (0, 0)


def test_half_precision_is_measured_in_single(tmp_path):
    net = model().bfloat16()
    optimizer = sgd(net)
    x = torch.randn(8, 4, dtype=torch.bfloat16)
    for start in (0, 5):
        began = {name: np.linalg.norm(each.detach().double().numpy()) for name, each in net.named_parameters()}
        with Recorder(net, tmp_path, optimizer=optimizer, start_step=start) as recorder:
            for _ in range(5):
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                recorder.step(loss)
    (_, second) = msgspec.json.decode((tmp_path / "run.json").read_bytes(), type=Manifest).sessions
    assert second.weight_norms == pytest.approx(began, rel=1e-6)
    assert not [each for each in triage(tmp_path).findings if each.code == "RESUME004"]
