"""Passes without gradients in training mode are counted, and nothing else is."""

import copy

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from msgspec import UNSET
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import ckaudit
from ckaudit.recorder import Recorder
from ckaudit.recorder.files.manifest import load
from ckaudit.recorder.hooks.hook import Hook
from ckaudit.recorder.hooks.train_mode import NAME, TRAINING_NAME, batch_norm_facts
from ckaudit.recorder.lightning import RecorderCallback
from tests.recorder.llama import llama, rows, trainer
from tests.recorder.trained import LIGHTNING_WARNINGS

pytestmark = [*LIGHTNING_WARNINGS]

X = torch.linspace(-1, 1, 32).reshape(8, 4)


def model_of(*parts):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), *parts, nn.Linear(4, 4))


@pytest.fixture
def shares(lines, tmp_path):
    """Return the shares of a folder by step."""
    return lambda folder=tmp_path: {line["step"]: line[NAME] for line in lines(folder) if NAME in line}


@pytest.fixture
def loop(tmp_path):
    """Train four steps; `between(step)` runs before the line of each step, `forward` is the pass of the training."""

    def run(model, between=lambda _: None, *, folder=tmp_path, forward=None, **options):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        recorder = Recorder(model, folder, optimizer=optimizer, **options) if folder else None
        for step in range(1, 5):
            loss = (forward or model)(X).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            between(step)
            if recorder:
                recorder.step(loss)
        if recorder:
            recorder.close()
        return recorder

    return run


def evaluate(model, *, training, inference=False):
    before = model.training
    model.train(training)
    with torch.inference_mode() if inference else torch.no_grad():
        model(X)
    model.train(before)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("part", [nn.Dropout(0.1), nn.BatchNorm1d(4), nn.RReLU(), nn.InstanceNorm1d(8, track_running_stats=True)])
def test_the_share_of_passes_in_training_mode(loop, shares, part, inference):
    model = model_of(part)
    modes = {2: [True], 3: [False, False, False, True], 4: [False]}

    def between(step):
        for training in modes.get(step, ()):
            evaluate(model, training=training, inference=inference)

    loop(model, between)
    assert shares() == {2: 1.0, 3: 0.25, 4: 0.0}


@pytest.mark.parametrize(
    "part", [nn.Dropout(0.0), nn.LayerNorm(4), nn.BatchNorm1d(4, track_running_stats=False), nn.InstanceNorm1d(8), nn.ReLU()]
)
def test_a_model_to_which_the_mode_makes_no_difference_is_not_hooked(loop, shares, part):
    model = model_of(part)
    hooks = []

    def between(step):
        evaluate(model, training=True)
        hooks.extend(model._forward_pre_hooks.values() if step > 1 else ())  # the first pass shows the order of the tensors

    loop(model, between)
    assert shares() == {}
    assert hooks == []


def test_the_hook_is_the_only_one_and_goes(loop):
    model, counts = model_of(nn.Dropout(0.1)), []
    loop(model, lambda step: counts.append(len(model._forward_pre_hooks)))
    assert counts[1:] == [1, 1, 1]
    assert not model._forward_pre_hooks


def test_weights_random_numbers_and_modes_are_untouched(loop, tmp_path):
    models = []
    for folder in (None, tmp_path):
        models.append(model_of(nn.Dropout(0.5), nn.BatchNorm1d(4)))
        torch.manual_seed(1)
        loop(models[-1], lambda _, made=models[-1]: evaluate(made, training=True), folder=folder)
    for one, other in zip(models[0].state_dict().values(), models[1].state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert models[1].training


def test_evaluation_after_the_line_goes_into_the_next_one(tmp_path, shares):
    model = model_of(nn.Dropout(0.1))
    recorder = Recorder(model, tmp_path, optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
    for _ in range(3):
        loss = model(X).mean()
        loss.backward()
        recorder.step(loss)
        evaluate(model, training=True)
        recorder.log_after(val_loss=1.0)
    recorder.close()
    assert shares() == {2: 1.0, 3: 1.0}


def test_a_part_that_is_left_on_counts(loop, shares):
    """Dropout kept on by itself, to tell how sure the model is."""
    model = model_of(nn.Dropout(0.1))

    def between(_):
        model.eval()
        model[1].train()
        with torch.no_grad():
            model(X)
        model.train()

    loop(model, between)
    assert set(shares().values()) == {1.0}


def test_a_frozen_norm_and_a_rate_of_zero_make_no_difference(loop, shares):
    model = model_of(nn.BatchNorm1d(4), nn.Dropout(0.3))
    model[1].eval()

    def between(step):
        model[2].p = 0.0 if step < 4 else 0.3
        with torch.no_grad():
            model(X)

    loop(model, between)
    assert shares() == {1: 0.0, 2: 0.0, 3: 0.0, 4: 1.0}


def test_copies_of_the_model_are_not_watched(loop, shares):
    model = model_of(nn.Dropout(0.1))

    def between(_):
        for copied in (copy.deepcopy(model), AveragedModel(model)):
            evaluate(copied, training=True)

    loop(model, between)
    assert shares() == {}


@pytest.mark.parametrize("reentrant", [True, False])
def test_passes_that_are_recomputed_are_the_training_s(loop, shares, reentrant):
    class Recomputed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.block = nn.Linear(4, 4), model_of(nn.Dropout(0.1))

        def forward(self, x):
            return checkpoint(self.block, self.first(x), use_reentrant=reentrant)

    loop(Recomputed())
    assert shares() == {}


def test_what_the_recorder_runs_itself_does_not_count(tmp_path, shares):
    model = model_of(nn.Dropout(0.1))
    with Recorder(model, tmp_path, optimizer=torch.optim.SGD(model.parameters(), lr=0.01)) as recorder:
        recorder.pin((X, X), lambda made, batch: (made(batch[0]) - batch[1]).square().mean())
        for _ in range(10):
            recorder.measure_curvature(lambda: model(X).square().mean())
            loss = model(X).square().mean()
            loss.backward()
            recorder.step(loss)
    assert shares() == {}


def test_a_compiled_model_is_not_watched(loop, shares):
    model = model_of(nn.Dropout(0.1))
    loop(model, lambda _: evaluate(model, training=True), compiled=True)
    assert shares() == {}


def test_a_model_that_is_compiled_later_stays_one_program(tmp_path):
    programs = {}
    for rate in (0.0, 0.1):
        torch._dynamo.reset()
        model, made = nn.Sequential(model_of(nn.Dropout(rate))), []
        recorder = Recorder(model, tmp_path / str(rate), optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
        recorder.step(model(X).mean())

        def backend(graph, _, made=made):
            made.append(graph)
            return graph.forward

        way = torch.compile(model, backend=backend)
        for _ in range(2):
            way(X).mean().backward()
            evaluate(way, training=False)
        recorder.close()
        programs[rate] = len(made)
    assert programs[0.1] == programs[0.0]


@pytest.mark.parametrize("reentrant", [None, True])
def test_the_trainer_of_transformers_evaluates_in_evaluation_mode(tmp_path, manifest, shares, reentrant):
    way = (
        {}
        if reentrant is None
        else {"activation_checkpointing": True, "activation_checkpointing_kwargs": {"use_reentrant": reentrant}}
    )
    model = llama(attention_dropout=0.1)
    trainer(tmp_path / "run", tmp_path / "out", model=model, evaluated=rows(4), **way).train()
    told = manifest(tmp_path / "run")
    assert (told.dropout, told.dropout_module) == (0.1, "model.layers.0.self_attn")
    assert shares(tmp_path / "run") == {11: 0.0, 21: 0.0}
    assert (told.sessions[-1].write_errors, told.sessions[-1].look_errors) == (0, 0)
    hooks = [hook for each in model.modules() for hook in each._forward_pre_hooks.values()]
    assert not [hook for hook in hooks if isinstance(hook, Hook)]


class Net(LightningModule):
    """A net that goes through its own forward; `forgets`: its validation is in training mode."""

    def __init__(self, *, forgets):
        super().__init__()
        self.forgets, self.inside = forgets, model_of(nn.Dropout(0.1))

    def forward(self, x):
        return self.inside(x)

    def training_step(self, batch, _index):
        return self(batch[0]).square().mean()

    def validation_step(self, batch, _index):
        if self.forgets:
            self.train()
        self.log("val_loss", self(batch[0]).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


@pytest.mark.parametrize(("forgets", "share"), [(False, 0.0), (True, 1.0)])
@pytest.mark.filterwarnings("ignore:.*Sanity checking and validation:UserWarning")
def test_lightning_evaluates_in_evaluation_mode_unless_the_module_does_not(tmp_path, shares, forgets, share):
    data = DataLoader(TensorDataset(X), batch_size=4)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    own = RecorderCallback(tmp_path / "run")
    made = Trainer(max_steps=4, accelerator="cpu", callbacks=[own], **quiet)
    made.fit(Net(forgets=forgets), data, data)
    assert shares(tmp_path / "run") == {3: share}


@pytest.mark.parametrize("part", [nn.Dropout(0.1), nn.BatchNorm1d(4)])
def test_steps_of_a_forgotten_model_train_are_seen(loop, lines, tmp_path, part):
    model = model_of(part)

    def between(step):
        if step == 2:
            model.eval()
            with torch.no_grad():
                model(X)

    loop(model, between)
    assert [line[TRAINING_NAME] for line in lines(tmp_path)] == [0.0, 0.0, 1.0, 1.0]


def test_a_part_that_is_frozen_alone_and_a_pass_that_changes_the_input_are_meant(loop, lines, tmp_path):
    model = model_of(nn.BatchNorm1d(4))
    model[1].eval()

    def forward(inputs):
        loss = model(inputs)
        model.eval()
        model(inputs.clone().requires_grad_()).sum()  # as an attack looks for a harder input
        model.train()
        model[1].eval()
        return loss

    loop(model, forward=forward)
    assert [line[TRAINING_NAME] for line in lines(tmp_path)] == [0.0] * 4


def test_how_many_batches_batch_norm_knows_is_told(loop, tmp_path):
    model = model_of(nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False)).eval()
    loop(model)
    assert load(tmp_path).batch_norm_batches == 0
    model.train()(X)
    assert batch_norm_facts(model) == {"batch_norm_batches": 1}
    assert batch_norm_facts(model_of(nn.Dropout(0.1))) == {"batch_norm_batches": UNSET}


def test_triage_names_the_step_from_which_it_trains_in_evaluation_mode(loop, tmp_path):
    model = model_of(nn.Dropout(0.5))
    loop(model, lambda step: model.train(step < 1))
    audit = ckaudit.triage(tmp_path)
    assert [(finding.first_step, finding.severity) for finding in audit.findings if finding.code == "EVL005"] == [(2, "sev2")]
    assert audit.diagnoses[0].cause == "training_in_evaluation_mode"
