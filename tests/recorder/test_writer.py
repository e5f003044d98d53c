"""The writer against the PyTorch recorder on one training, and its own life: due steps, events, resuming, failures."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import UNSET
from torch import nn

from ckaudit.audit import triage
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder, Writer
from ckaudit.recorder.loop.triggers import EventThresholds
from ckaudit.validate import validate

ROOT = Path(__file__).parents[2]
STEPS, RATE = 30, 0.1
EVERY_FIFTH = [Cadence(until=None, every=5)]
SOURCE = np.random.default_rng(5)
BATCHES = [(SOURCE.normal(size=(16, 6)), SOURCE.integers(0, 3, 16)) for _ in range(STEPS)]
START = {
    "fc1.weight": SOURCE.normal(size=(40, 6)) * 0.4,
    "fc1.bias": SOURCE.normal(size=40) * 0.1,
    "fc2.weight": SOURCE.normal(size=(3, 40)) * 0.2,
    "fc2.bias": SOURCE.normal(size=3) * 0.1,
}


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 3)
        self.double().load_state_dict({name: torch.from_numpy(value) for name, value in START.items()})

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


def by_hand(w, x, y):
    """Loss, gradients and module outputs of the MLP by their formulas."""
    before = x @ w["fc1.weight"].T + w["fc1.bias"]
    hidden = np.maximum(before, 0)
    logits = hidden @ w["fc2.weight"].T + w["fc2.bias"]
    logits_over_top = logits - logits.max(1, keepdims=True)
    total = np.exp(logits_over_top).sum(1, keepdims=True)
    loss = (np.log(total) - logits_over_top[range(len(y)), y][:, None]).mean()
    back = (np.exp(logits_over_top) / total - np.eye(3)[y]) / len(y)
    inner = (back @ w["fc2.weight"]) * (before > 0)
    gradients = {"fc1.weight": inner.T @ x, "fc1.bias": inner.sum(0), "fc2.weight": back.T @ hidden, "fc2.bias": back.sum(0)}
    return loss, gradients, {"fc1": before, "act": hidden, "fc2": logits}


def write_run(folder, **options):
    weights = START
    with Writer(folder, cadence=EVERY_FIFTH, **options) as writer:
        writer.checkpoint(0, weights=weights)
        for step, (x, y) in enumerate(BATCHES, 1):
            loss, gradients, outputs = by_hand(weights, x, y)
            updated = {name: weight - RATE * gradients[name] for name, weight in weights.items()}
            due = writer.is_due(step)
            norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
            writer.step(step, loss=loss, learning_rate=RATE, batch=(x, y), grad_global_norm=norm)
            if due:
                writer.checkpoint(step, weights=updated, gradients=gradients, previous=weights, activations=outputs)
            weights = updated
    return writer


def record_run(folder, **options):
    model = MLP()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    with Recorder(model, folder, optimizer=optimizer, cadence=EVERY_FIFTH, **options) as recorder:
        for x, y in BATCHES:
            loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
            optimizer.zero_grad()
            loss.backward()
            recorder.after_backward()
            optimizer.step()
            recorder.step(loss, batch=(torch.from_numpy(x), torch.from_numpy(y)))


def assert_close(found, expected, place=""):
    """Equal structures, and equal numbers but for rounding; a grid's bytes may differ by one."""
    if hasattr(expected, "__struct_fields__"):
        assert type(found) is type(expected), place
        for name in expected.__struct_fields__:
            if name == "data":
                continue
            assert_close(getattr(found, name), getattr(expected, name), f"{place}.{name}")
    elif isinstance(expected, dict):
        assert list(found) == list(expected), place
        for name, value in expected.items():
            assert_close(found[name], value, f"{place}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for index, value in enumerate(expected):
            assert_close(found[index], value, f"{place}[{index}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=2e-6, abs=1e-12), place
    else:
        assert found == expected, place


@pytest.mark.parametrize("options", [{}, {"grids": "nested"}, {"spectral_norms": ["fc?.weight"], "suffix": ".json.zst"}])
def test_numpy_and_torch_write_equal_numbers(tmp_path, read, lines, options):
    write_run(tmp_path / "numpy", **options)
    record_run(tmp_path / "torch", **options)
    for step in range(0, STEPS + 1, 5):
        found, expected = read(tmp_path / "numpy", step), read(tmp_path / "torch", step)
        for section in ("weights", "gradients", "weight_deltas", "activations", "data", "loss", "gradients_source", "left_out"):
            assert_close(getattr(found, section), getattr(expected, section), f"{step}.{section}")
        for name in (
            ("train_loss_raw", "learning_rate", "grad_global_norm", "update_to_weight", "top_gradient_share") if step else ()
        ):
            assert found.scalars[name] == pytest.approx(expected.scalars[name], rel=2e-6)
    ours, theirs = (
        [line["train_loss_raw"] for line in lines(tmp_path / each) if "train_loss_raw" in line] for each in ("numpy", "torch")
    )
    assert ours == pytest.approx(theirs, rel=1e-9)
    assert len(ours) == STEPS


def test_the_folder_is_valid_and_judged_like_the_recorded_one(tmp_path):
    write_run(tmp_path / "numpy", seed=3, vocabulary=3)
    record_run(tmp_path / "torch", seed=3, vocabulary=3)
    assert not [finding for finding in validate([tmp_path / "numpy"]).findings if finding.severity != "note"]
    found, expected = (triage(tmp_path / name) for name in ("numpy", "torch"))
    different = {
        each.name
        for each, other in zip(found.checks, expected.checks, strict=True)
        if each.outcome != other.outcome and not each.code.startswith("SYS")
    }
    # A writer knows of no modules, no optimizer, no backward passes and no loss function.
    of_training = {"dropout_rate_high", "frequent_clipping", "gradients_carried_over", "missing_in_optimizer"}
    assert different == of_training | {"loss_inputs_wrong", "batches_of_one_kind"}
    assert found.severity in (None, "note")


def test_a_finding_of_the_torch_run_is_found_in_the_numpy_run_too(tmp_path, monkeypatch):
    wrong = [(x, y) if step < 20 else (x * 1e3, y) for step, (x, y) in enumerate(BATCHES)]
    monkeypatch.setattr(f"{__name__}.BATCHES", wrong)
    write_run(tmp_path / "numpy")
    record_run(tmp_path / "torch")
    # How fast this machine ran is no part of what both have recorded.
    found, expected = (
        {(each.code, each.severity) for each in triage(tmp_path / name).findings if not each.code.startswith("SYS")}
        for name in ("numpy", "torch")
    )
    assert found == expected != set()


def test_torch_is_never_imported(tmp_path):
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np; from ckaudit import Writer\n"
        "p = np.tril(np.ones((1, 2, 4, 4))); w = {'blocks.0.fc.weight': np.eye(4, dtype=np.float16)}\n"
        "with Writer(sys.argv[1]) as writer:\n"
        "    writer.checkpoint(0, weights=w); writer.step(1, loss=1.0)\n"
        "    given = {'activations': {'act': np.ones((2, 3))}, 'attention': {'layer.0': (p, p)}}\n"
        "    writer.checkpoint(1, weights=w, gradients=w, previous=w, **given)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, cwd=ROOT)
    assert b'"write_errors":0' in (tmp_path / "run.json").read_bytes()
    assert (tmp_path / "analysis_checkpoint_step_00000001.json").exists()


def test_attention_is_told_with_and_without_logits(tmp_path, read):
    logits = np.where(np.tri(6, dtype=bool), SOURCE.normal(size=(2, 3, 6, 6)), -np.inf)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    with Writer(tmp_path) as writer:
        writer.step(1, loss=1.0)
        writer.checkpoint(1, attention={"layer.0": (p, logits), "layer.1": p})
    found = read(tmp_path, 1)
    assert found.attention["layer.0"].max_logit_per_head == pytest.approx(logits.max((0, 2, 3)), rel=1e-6)
    assert found.attention["layer.1"].max_logit_per_head is UNSET
    assert found.attention["layer.1"].causal is True
    entropy = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(-1).mean((0, 2))
    assert found.attention["layer.1"].entropy_per_head == pytest.approx(entropy, rel=1e-6)
    assert found.scalars["min_normalized_entropy"] == min(found.attention["layer.0"].normalized_entropy_per_head)


def test_steps_are_due_by_cadence_plan_and_event(tmp_path, read):
    with Writer(tmp_path, planned_steps=47) as writer:
        assert [step for step in range(60) if writer.is_due(step)] == [0, 10, 20, 30, 40, 47, 50]
        for step in range(1, 34):
            due = writer.is_due(step)
            assert due == (step in (10, 20, 30, 32))
            writer.step(step, loss=50.0 if step == 31 else 1.0)
            if due:
                writer.checkpoint(step, weights=START)
    found = read(tmp_path, 32)
    assert (found.triggers, found.event_step) == (["loss_spike"], 31)
    assert found.history.steps == list(range(1, 32))
    assert read(tmp_path, 33).triggers == ["last"]
    assert read(tmp_path, 33).loss == 1.0


def test_a_checkpoint_that_only_the_caller_wants_says_so(tmp_path, read):
    with Writer(tmp_path) as writer:
        writer.step(3, loss=1.0)
        writer.checkpoint(3, weights=START)
        writer.step(4, loss=1.0)
    assert read(tmp_path, 3).triggers == ["manual"]


def test_a_resumed_run_keeps_its_reference_and_gets_a_session(tmp_path, read, manifest):
    with Writer(tmp_path) as writer:
        writer.checkpoint(0, weights=START)
        for step in range(1, 21):
            writer.step(step, loss=1.0)
            if writer.is_due(step):
                writer.checkpoint(step, weights={name: 2 * value for name, value in START.items()})
    with Writer(tmp_path, start_step=10) as writer:
        writer.step(11, loss=1.0)
        writer.checkpoint(11, weights={name: 3 * value for name, value in START.items()})
    found = read(tmp_path, 11)
    assert (found.session, found.scalars["steps_seen"]) == (1, 11)
    assert all(delta.moved == pytest.approx(2.0) for delta in found.weight_deltas.values())
    assert [session.resumed_from for session in manifest(tmp_path).sessions] == [UNSET, 10]
    assert (tmp_path / "analysis_checkpoint_step_00000020.session000.json").exists()


def test_the_table_says_what_the_caller_knows_and_the_arrays_show(tmp_path, manifest):
    tensors = {
        "fc1.weight": {"depth": 3, "kind": "attention"},
        "fc2.weight": {"tied_to": "fc1.weight"},
        "fc1.bias": {"depth": "x"},
    }
    with Writer(tmp_path, tensors=tensors) as writer:
        writer.checkpoint(0, weights=START)
    table = manifest(tmp_path).tensors
    assert (table["fc1.weight"].depth, table["fc1.weight"].kind, table["fc1.weight"].shape) == (3, "attention", [40, 6])
    assert table["fc2.weight"].tied_to == "fc1.weight"
    assert (table["fc1.bias"].depth, table["fc1.bias"].dtype) == (UNSET, "float64")
    assert manifest(tmp_path).parameters == 240 + 40 + 3
    assert manifest(tmp_path).sessions[-1].look_errors == 1


@pytest.mark.usefixtures("no_waits")
def test_nothing_raises_into_the_training(tmp_path, lines, manifest, caplog):
    (tmp_path / "file").touch()
    with Writer(tmp_path / "file" / "run") as broken:
        broken.step(1, loss=1.0)
        broken.checkpoint(1, weights=START)
    with Writer(tmp_path / "run") as writer:
        writer.step(2, loss=[1, 2], good=1.0, bad="x" * 3, worse=[1])
        writer.step(2, loss=1.0)
        writer.checkpoint(2, weights={"a": object()})
        writer.checkpoint(2, weights=START, attention={"layer.0": np.ones(3)})
    writer.step(3, loss=1.0)
    assert [(line["step"], line.get("good")) for line in lines(tmp_path / "run")] == [(2, 1.0)]
    assert (tmp_path / "run" / "analysis_checkpoint_step_00000002.json").exists()
    session = manifest(tmp_path / "run").sessions[-1]
    assert session.write_errors >= 2
    assert session.look_errors >= 2
    assert "comes after step 2" in caplog.text


def test_a_norm_that_is_a_text_leaves_its_step_in_the_black_box_and_no_event_of_the_step_before(tmp_path, lines, manifest, read):
    with Writer(tmp_path, limits=EventThresholds(cooldown=1)) as writer:
        writer.step(1023, loss=float("nan"))
        assert writer.is_due(1024)
        writer.step(1024, loss=1.0, grad_global_norm="high")
        assert not writer.is_due(1025)
        writer.step(1025, loss=1.0)
    last = read(tmp_path, 1025)
    assert (last.triggers, last.event_step, last.history.steps) == (["last"], UNSET, [1023, 1024])
    assert lines(tmp_path)[1]["grad_global_norm"] == "high"
    assert manifest(tmp_path).sessions[-1].look_errors == 1


@pytest.mark.parametrize(
    ("wrong", "error"), [({"sed": 1}, TypeError), ({"grids": "jpeg"}, ValueError), ({"suffix": ".x"}, ValueError)]
)
def test_a_call_that_cannot_be_meant_raises(tmp_path, wrong, error):
    with pytest.raises(error):
        Writer(tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def test_non_finite_arrays_are_recorded_as_such(tmp_path, read):
    spoiled = START | {"fc1.bias": np.full(40, np.nan), "fc2.bias": np.array([1.0, np.inf, 2.0])}
    with Writer(tmp_path) as writer:
        writer.step(1, loss=float("nan"))
        writer.checkpoint(1, weights=spoiled, gradients=spoiled, previous=START, activations={"act": np.full((2, 3), np.nan)})
    found = read(tmp_path, 1)
    assert (found.loss, found.weights["fc1.bias"].mean, found.gradients["fc2.bias"].norm) == ("NaN", "NaN", "Infinity")
    assert (found.weights["fc2.bias"].mean, found.weights["fc2.bias"].nonfinite_count) == (1.5, 1)


def test_the_example_leaves_a_sound_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "numpy_writer.py"), run_name="__main__")
    assert "ckaudit triage run/" in capsys.readouterr().out
    assert not [finding for finding in validate([tmp_path / "run"]).findings if finding.severity != "note"]
    report = triage(tmp_path / "run")
    assert report.severity in (None, "note")
    assert sum(check.outcome == "passed" for check in report.checks) >= 8
