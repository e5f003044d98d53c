"""Every line that coverage prints to users of Lightning is executed where it says, and keeps what it promises."""

import pytest

from ckaudit.audit.coverage.recorded import coverage
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import actions
from ckaudit.run.read import read_run
from tests.audit.test_promises import unkept
from tests.audit.trained import small_gpt
from tests.recorder.trained import LIGHTNING_WARNINGS

pytest.importorskip("lightning")
pytestmark = [*LIGHTNING_WARNINGS]

MADE, BEFORE = "Where the callback is made", "Once, before trainer.fit"
TRAINING, VALIDATION, VALIDATED = "In training_step", "In validation_step", "In on_validation_end"
BACKWARD, STARTED = "In on_after_backward", "In on_train_batch_start"
PLACES = (MADE, BEFORE, TRAINING, VALIDATION, VALIDATED, BACKWARD, STARTED)
FILLED = {"vocabulary": "11", "sequence_length": "31", "warmup_steps": "5", "flops_per_token": "6e3", "peak_flops": "1e11"}
BY_MACHINE = {"step_time", "gpu_util"}  # of these the machine decides


def net(lines, callback):
    """Return a module that executes lines of advice in its own hooks, by the place that each names."""
    from lightning.pytorch import LightningModule

    torch = pytest.importorskip("torch")

    def criterion(logits, targets):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    class Net(LightningModule):
        def __init__(self):
            super().__init__()
            self.gpt, self.total = small_gpt(), 0

        def forward(self, tokens):
            return self.gpt(tokens)

        def follow(self, place, **names):
            for line in lines.get(place, ()):
                own = {"self": self, "callback": callback, "criterion": criterion, "examples": 4, "count": 1} | names
                exec(line.replace("...", "2.0"), own)

        def on_train_batch_start(self, batch, index):
            if index % 10 == 0:
                self.follow(STARTED, inputs=batch[0], targets=batch[1])

        def training_step(self, batch, _index):
            self.total += batch[1].numel()
            self.follow(TRAINING, total=self.total)
            return criterion(self(batch[0]), batch[1])

        def on_after_backward(self):
            self.follow(BACKWARD)

        def validation_step(self, batch, _index):
            self.follow(VALIDATION, loss=criterion(self(batch[0]), batch[1]))

        def on_validation_end(self):
            self.follow(VALIDATED)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    return Net()


def train(folder, lines):
    """Train with a callback made as the lines say, and return the run folder."""
    import torch
    from lightning.pytorch import Trainer
    from torch.utils.data import DataLoader, Subset, TensorDataset

    from ckaudit.recorder.lightning import RecorderCallback

    made = " ".join(lines.get(MADE, ["RecorderCallback(...)"]))
    for name, value in FILLED.items():
        made = made.replace(f"{name}=...", f"{name}={value}")
    made = made.replace("(inputs, targets)", "(batch[0], batch[1])")
    options = eval(made.replace("RecorderCallback(...)", "{}").replace("RecorderCallback(..., ", "dict("))
    callback = RecorderCallback(folder / "run", **options)
    module = net(lines, callback)
    rows = torch.tensor([[first + stride * place for place in range(32)] for stride in range(1, 11) for first in range(10)]) % 11
    data = TensorDataset(rows[:, :-1], rows[:, 1:])
    for line in lines.get(BEFORE, ()):
        exec(line, {"callback": callback, "inputs": data.tensors[0][:2], "targets": data.tensors[1][:2]})
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = Trainer(
        accelerator="cpu", max_steps=40, accumulate_grad_batches=2, val_check_interval=10, callbacks=[callback], **quiet
    )
    trainer.fit(module, DataLoader(data, 4), DataLoader(Subset(data, range(4)), 4))
    return folder / "run"


def merged(codes):
    """Return one line that makes the callback with the arguments of several."""
    arguments = ", ".join(code.removeprefix("RecorderCallback(..., ").removesuffix(")") for code in codes)
    return f"RecorderCallback(..., {arguments})"


@pytest.fixture(scope="module")
def advice(tmp_path_factory):
    """Return the python of what coverage says of a training that was told nothing, each remedy with its place."""
    found = coverage(train(tmp_path_factory.mktemp("bare"), {}))
    python = [each for each in found.remedies if each.lines and not each.code.startswith("ckaudit")]
    return found, [(next(place for place in PLACES if each.where.startswith(place)), each) for each in python]


@pytest.fixture(scope="module")
def followed(advice, tmp_path_factory):
    """Return the run of a training that followed all of it."""
    lines = {}
    for place, each in advice[1]:
        lines.setdefault(place, []).append(each.code)
    return train(tmp_path_factory.mktemp("told"), lines | {MADE: [merged(lines[MADE])]})


def test_all_lines_of_lightning_are_printed_to_someone(advice):
    told = " ".join(each.code for _, each in advice[1])
    for name, action in actions().items():
        if name not in ("recorder", "hold_out") and action.lightning:
            assert action.lightning.call.replace("({options})", "") in told, name
    # What a guess costs is known of the classes that the loss function was seen to have.
    for argument in ({*FILLED} - {"vocabulary"}) | {"batch_of", "spectral_norms"}:
        assert f"{argument}=" in told


def test_where_the_trainer_validates_rows_are_held_out_without_a_line(advice):
    found, python = advice
    assert not [each.code for _, each in python if "hold_out" in each.code]
    assert next(row for row in found.rows if row.name == "held_out_rows_trained_on").recorded


def test_what_the_lines_promise_is_judged(advice, followed):
    found, python = advice
    numbers = {found.remedies.index(each) + 1 for _, each in python}
    promised = [each.name for each in found.waiting if each.places and {*each.places} <= numbers]
    assert {"throughput_drop", "probe_jump", "noise_scale_jump", "curvature_jump", "tokens_stand_still"} <= {*promised}
    assert {"target_misalignment", "schedule_off_plan", "error_events"} <= {*promised}
    assert not unkept(promised, followed)


def test_what_stands_under_the_lines_is_recorded(advice, followed):
    run = read_run(followed)
    rows = {row.name: row for row in coverage(followed).rows}
    names = [name for _, each in advice[1] for name in each.names if name not in BY_MACHINE]
    assert not [name for name in names if not metrics()[name](run) and not rows[name].unusable]
    assert run.manifest.trainer == "lightning"
    assert (run.manifest.sessions[-1].write_errors, run.manifest.sessions[-1].look_errors) == (0, 0)


def test_one_line_alone_does_not_hide_what_it_takes_besides(advice):
    found, python = advice
    (made,) = [each for _, each in python if "peak_flops=" in each.code]
    (tokens,) = [number for number, each in enumerate(found.remedies, 1) if "tokens_seen" in each.code]
    assert "tokens_per_sec" in found.remedies[tokens - 1].names
    assert f"Together with number {tokens}, for mfu." in made.where
    (drop,) = [each for each in found.waiting if each.name == "throughput_drop"]
    assert drop.place is None
    assert drop.places == tuple(sorted((tokens, found.remedies.index(made) + 1)))


def test_no_line_of_lightning_calls_a_recorder(advice):
    assert not [each.code for _, each in advice[1] if "recorder." in each.code]
    assert all("callback is the RecorderCallback." in each.where for _, each in advice[1] if "callback." in each.code)


def test_calls_before_a_training_and_after_it_do_nothing(tmp_path):
    from ckaudit.recorder.lightning import RecorderCallback

    callback = RecorderCallback(tmp_path / "run")
    callback.log_step(tokens_seen=1)
    callback.log_after(val_loss=1.0)
    callback.micro_batch()
    callback.rank_batch()
    assert callback.measure_curvature(lambda: None) is callback.check_gradients(None) is callback.recorder is None
    assert not (tmp_path / "run").exists()
