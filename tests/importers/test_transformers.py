"""The Trainer of transformers writes its state, and it is read."""

import math

import pytest

from ckaudit.importers import import_source

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.torch


class Line(torch.nn.Module):
    """A line through data."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, inputs, labels):
        return {"loss": ((self.layer(inputs) - labels) ** 2).mean()}


class Heard(transformers.TrainerCallback):
    """Keeps what the Trainer logs, as it logs it."""

    def __init__(self) -> None:
        self.logs: list[tuple[int, dict[str, float]]] = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append((state.global_step, dict(logs)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainer")
    torch.manual_seed(0)
    data = [{"inputs": torch.tensor([float(at)]) / 8, "labels": torch.tensor([2.0 * at])} for at in range(8)]
    heard = Heard()
    settings = transformers.TrainingArguments(
        str(folder),
        disable_tqdm=True,
        eval_steps=4,
        eval_strategy="steps",
        learning_rate=0.1,
        logging_steps=2,
        max_steps=8,
        per_device_train_batch_size=4,
        report_to=[],
        save_steps=4,
        use_cpu=True,
        label_names=["labels"],
    )
    transformers.Trainer(Line(), settings, train_dataset=data, eval_dataset=data, callbacks=[heard]).train()
    return folder, heard.logs


def curve(run, name):
    return {row["step"]: row[name] for row in run.rows if name in row}


def test_what_it_logged_stands_where_it_logged_it(trained):
    folder, logs = trained
    run = import_source(folder)
    assert run.source == "Hugging Face trainer_state.json"
    for name, key in (
        ("train_loss_raw", "loss"),
        ("grad_global_norm", "grad_norm"),
        ("learning_rate", "learning_rate"),
        ("val_loss", "eval_loss"),
    ):
        expected = {step: float(entry[key]) for step, entry in logs if key in entry}
        assert curve(run, name) == pytest.approx(expected)
        assert all(map(math.isfinite, expected.values()))
    assert list(curve(run, "val_loss")) == [4, 8]
    assert run.manifest.planned_steps == 8


def test_an_earlier_checkpoint_is_its_beginning(trained):
    folder, _ = trained
    whole, part = import_source(folder), import_source(folder / "checkpoint-4")
    assert curve(part, "train_loss_raw") == {step: loss for step, loss in curve(whole, "train_loss_raw").items() if step <= 4}
