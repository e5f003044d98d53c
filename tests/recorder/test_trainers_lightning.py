from functools import partial

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from msgspec import UNSET
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from ckaudit.audit import triage
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder.lightning import RecorderCallback, inputs_of
from tests.recorder.trained import LIGHTNING_WARNINGS, assert_sound

pytestmark = [*LIGHTNING_WARNINGS]


class Net(LightningModule):
    """Two residual blocks; notes what the recorder should say of each micro-batch."""

    def __init__(self, *, automatic=True, fails_at=None):
        super().__init__()
        self.automatic_optimization, self.fails_at = automatic, fails_at
        self.embed, self.head = nn.Embedding(16, 8), nn.Linear(8, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(2))
        self.losses, self.norms = [], []

    def loss(self, batch):
        x = self.embed(batch[0])
        for block in self.blocks:
            x = x + block(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch[1].flatten())

    def training_step(self, batch, index):
        loss = self.loss(batch)
        self.losses.append(loss.item())
        if index == self.fails_at:
            raise RuntimeError("out of luck")
        if self.automatic_optimization:
            return loss
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return loss

    def on_after_backward(self):
        self.norms.append({name: np.linalg.norm(p.grad.double().numpy()) for name, p in self.named_parameters()})

    def validation_step(self, batch, index):
        self.log("val_loss", self.loss(batch))
        self.log("val/other", 2 * self.loss(batch))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


@pytest.fixture
def run(tmp_path):
    """Train, and return the module; the run is in `tmp_path / "run"`."""

    def train(*, recorded=True, net=Net, options=None, callbacks=(), ckpt_path=None, held_out=42, rows=None, **arguments):
        torch.manual_seed(0)
        net = net()
        tokens = (torch.randint(0, 16, (42, 1)) * 5 + 3 * torch.arange(9)) % 16 if rows is None else rows
        data = TensorDataset(tokens[:, :-1], tokens[:, 1:])
        own = [RecorderCallback(tmp_path / "run", **{"batch_of": list, "vocabulary": 16} | (options or {}))] if recorded else []
        usual = {"max_steps": 30, "gradient_clip_val": 0.1, "val_check_interval": 5, "num_sanity_val_steps": 1}
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": None}
        quiet["enable_checkpointing"] = any(isinstance(each, ModelCheckpoint) for each in callbacks)
        trainer = Trainer(accelerator="cpu", callbacks=[*callbacks, *own], **usual | quiet | arguments)
        trainer.fit(net, DataLoader(data, 2), DataLoader(Subset(data, range(held_out)), 16), ckpt_path=ckpt_path)
        return net

    return train


@pytest.fixture
def merged(lines, tmp_path):
    """Return the values of each step, all its lines together."""

    def read():
        found = {}
        for line in lines(tmp_path / "run"):
            found.setdefault(line["step"], {}).update(line)
        return found

    return read


def assert_equal(one, other):
    assert all(map(torch.equal, one.parameters(), other.parameters()))


@pytest.mark.parametrize("arguments", [{}, {"precision": "bf16-mixed"}, {"accumulate_grad_batches": 2}])
def test_training_is_bit_identical_with_and_without(run, manifest, tmp_path, arguments):
    assert_equal(run(recorded=False, **arguments), run(**arguments))
    assert (manifest(tmp_path / "run").sessions[-1].write_errors, manifest(tmp_path / "run").sessions[-1].look_errors) == (0, 0)


def test_what_the_optimizer_was_given_is_not_read_before_its_closure_has_made_it(run, read, tmp_path):
    net = run(gradient_clip_val=None)
    checkpoint = read(tmp_path / "run", 10)
    assert checkpoint.gradients_source == "pre_clip"
    assert {name: stats.norm for name, stats in checkpoint.gradients.items()} == pytest.approx(net.norms[9], rel=1e-5)
    assert checkpoint.optimizer.gradient_norm is UNSET
    assert not {"CLIP001", "GRAD007"} & {finding.code for finding in triage(tmp_path / "run").findings}


def test_gradients_are_those_before_clipping(run, merged, read, tmp_path):
    net = run()
    checkpoint = read(tmp_path / "run", 10)
    assert checkpoint.gradients_source == "pre_clip"
    assert {name: stats.norm for name, stats in checkpoint.gradients.items()} == pytest.approx(net.norms[9], rel=1e-5)
    total = np.linalg.norm([*net.norms[9].values()])
    assert total > 0.1
    assert checkpoint.optimizer.clip_coefficient == pytest.approx(0.1 / total, rel=1e-4)
    assert [merged()[step]["train_loss_raw"] for step in range(1, 31)] == pytest.approx(net.losses, rel=1e-6)
    assert checkpoint.data.target_shift_match == 1.0


def test_clipping_by_value_leaves_no_limit_of_the_norm(run, manifest, read, tmp_path):
    net = run(gradient_clip_algorithm="value")
    assert not manifest(tmp_path / "run").clip_norm
    found = {name: stats.norm for name, stats in read(tmp_path / "run", 10).gradients.items()}
    assert found == pytest.approx(net.norms[9], rel=1e-5)


def test_an_accumulated_step_has_the_mean_loss_and_all_gradients(run, merged, read, tmp_path):
    net = run(accumulate_grad_batches=4, max_steps=12)
    # 21 batches a round: its last step has only one.
    sizes = [4, 4, 4, 4, 4, 1] * 2
    ends = np.cumsum(sizes)
    losses = [np.mean(net.losses[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
    assert [merged()[step]["train_loss_raw"] for step in range(1, 13)] == pytest.approx(losses, rel=1e-6)
    found = {name: stats.norm for name, stats in read(tmp_path / "run", 10).gradients.items()}
    assert found == pytest.approx(net.norms[ends[9] - 1], rel=1e-5)
    assert merged()[10]["grad_carried_over"] == 0.0


def test_a_validation_belongs_to_the_step_before_it(run, merged):
    seen = {}

    class Metrics(Callback):
        def on_validation_end(self, trainer, module):
            seen[trainer.global_step] = trainer.callback_metrics["val/other"].item()

    run(callbacks=[Metrics()], options={"validation": {"val_loss": "val/other"}}, val_check_interval=7)
    assert seen.keys() == {0, 7, 14, 21, 28}
    found = {step: values["val_loss"] for step, values in merged().items() if "val_loss" in values}
    assert found == pytest.approx({step: value for step, value in seen.items() if step}, rel=1e-6)


def test_manual_optimization_is_recorded_too(run, merged, read, tmp_path):
    manual = {"net": partial(Net, automatic=False), "gradient_clip_val": None}
    bare, net = run(recorded=False, **manual), run(**manual)
    assert_equal(bare, net)
    assert [merged()[step]["train_loss_raw"] for step in range(1, 31)] == pytest.approx(net.losses, rel=1e-6)
    found = {name: stats.norm for name, stats in read(tmp_path / "run", 10).gradients.items()}
    assert found == pytest.approx(net.norms[9], rel=1e-5)


def test_a_scaled_loss_is_measured_unscaled(run, read, merged, tmp_path):
    run()
    plain, loss = read(tmp_path / "run", 10), merged()[10]["train_loss_raw"]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    half = MixedPrecision("16-mixed", "cpu", scaler=scaler)
    run(plugins=[half])
    scaled = read(tmp_path / "run", 10)
    assert scaled.optimizer.loss_scale == 1024.0
    assert merged()[10]["train_loss_raw"] == pytest.approx(loss, rel=2e-2)
    assert scaled.gradients["head.weight"].norm == pytest.approx(plain.gradients["head.weight"].norm, rel=5e-2)


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning")
def test_a_resume_goes_on_with_the_folder(run, merged, manifest, tmp_path):
    whole = run()
    expected = {step: values["train_loss_raw"] for step, values in merged().items()}
    (tmp_path / "run").rename(tmp_path / "whole")

    def saving():
        return [ModelCheckpoint(tmp_path / "saved", filename="{step}", every_n_train_steps=21, save_top_k=-1)]

    run(callbacks=saving(), max_steps=25)
    resumed = run(callbacks=saving(), ckpt_path=tmp_path / "saved" / "step=21.ckpt")
    assert_equal(whole, resumed)
    assert [session.resumed_from for session in manifest(tmp_path / "run").sessions][1:] == [21]
    assert {step: values["train_loss_raw"] for step, values in merged().items()} == pytest.approx(expected, rel=1e-6)


def test_an_exception_closes_the_run(run, manifest, tmp_path):
    with pytest.raises(RuntimeError, match="out of luck"):
        run(net=partial(Net, fails_at=13))
    assert manifest(tmp_path / "run").sessions[-1].checkpoint_ok
    assert (tmp_path / "run" / "analysis_checkpoint_step_00000013.json").exists()


@pytest.mark.usefixtures("no_waits")
def test_nothing_of_the_recorder_reaches_the_training(run, tmp_path, caplog):
    bare = run(recorded=False)
    (tmp_path / "run").touch()
    recorded = run(options={"batch_of": lambda batch: batch["missing"]})
    assert_equal(bare, recorded)
    assert "taking inputs and targets" in caplog.text


def test_by_default_only_the_inputs_are_taken_from_a_batch(run, read, tmp_path):
    run(options={"batch_of": inputs_of})
    data = read(tmp_path / "run", 10).data
    assert data.input_hash
    assert not data.target_shift_match
    tokens = torch.ones(1, 2)
    assert all(inputs_of(batch) is tokens for batch in (tokens, (tokens, 1), [tokens], {"input_ids": tokens}))


def test_an_option_that_cannot_be_meant_raises_at_once(tmp_path):
    with pytest.raises(TypeError, match="vocabluary"):
        RecorderCallback(tmp_path, vocabluary=3)


def test_a_recorded_training_is_sound(run, manifest, tmp_path):
    run(max_steps=60, options={"cadence": [Cadence(until=None, every=5)]})
    found = manifest(tmp_path / "run")
    assert (found.planned_steps, found.clip_norm, found.vocabulary) == (60, 0.1, 16)
    assert_sound(tmp_path / "run")


def test_the_rows_of_a_validation_are_held_out(run, merged, monkeypatch):
    monkeypatch.setattr("ckaudit.recorder.checks.held_out_rows.MIN_ROW_TOKENS", 4)  # its rows are of eight tokens
    run(held_out=7, rows=torch.randint(0, 16, (42, 9)))  # its rows are trained on, and 35 others
    found = {step: line["held_out_rows_trained_on"] for step, line in merged().items() if "held_out_rows_trained_on" in line}
    assert [*found.values()] == sorted(found.values())
    assert found[30] > 0


def test_nothing_is_held_out_where_all_that_is_trained_on_is_validated_on(run, merged, monkeypatch):
    monkeypatch.setattr("ckaudit.recorder.checks.held_out_rows.MIN_ROW_TOKENS", 4)
    run(rows=torch.randint(0, 16, (42, 9)))
    assert not any("held_out_rows_trained_on" in line for line in merged().values())


def test_a_validation_that_is_meant_to_be_on_the_training_data_holds_nothing_out(run, merged, monkeypatch):
    monkeypatch.setattr("ckaudit.recorder.checks.held_out_rows.MIN_ROW_TOKENS", 4)
    run(overfit_batches=5)
    assert not any("held_out_rows_trained_on" in line for line in merged().values())
