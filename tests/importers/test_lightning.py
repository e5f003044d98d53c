"""Lightning's own CSVLogger writes, and is read."""

from pathlib import Path

import pytest

from ckaudit.importers import import_source

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*number of training batches.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*"),
]


class Line(lightning.LightningModule):
    """A line through data, whose losses are known: the rate is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[float] = []
        self.measured: list[tuple[int, float]] = []

    def training_step(self, batch, index):
        loss = (self.layer(batch[0]) ** 2).mean() + len(self.seen)
        self.seen.append(float(loss.detach()))
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        loss = (self.layer(batch[0]) ** 2).mean()
        self.log("val_loss", loss)
        self.measured.append((self.global_step, float(loss.detach())))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def fitted(folder: Path, accumulate: int = 1) -> tuple[Line, Path]:
    data = torch.utils.data.TensorDataset(torch.linspace(0, 1, 12).reshape(-1, 1))
    module = Line()
    logger = lightning.pytorch.loggers.CSVLogger(folder, name="run")
    trainer = lightning.Trainer(
        accelerator="cpu",
        accumulate_grad_batches=accumulate,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        log_every_n_steps=2,
        logger=logger,
        max_epochs=2,
        num_sanity_val_steps=0,
    )
    loaders = [torch.utils.data.DataLoader(data, batch_size=size) for size in (2, 12)]
    trainer.fit(module, *loaders)
    return module, Path(logger.log_dir) / "metrics.csv"


def test_its_losses_stand_at_the_updates_they_were_logged_at(tmp_path):
    module, path = fitted(tmp_path)
    run = import_source(path)
    assert run.source == "Lightning metrics.csv"
    losses = {row["step"]: row["train_loss_raw"] for row in run.rows if "train_loss_raw" in row}
    assert losses == pytest.approx({step: module.seen[step - 1] for step in range(2, 13, 2)})
    evaluated = {row["step"]: row["val_loss"] for row in run.rows if "val_loss" in row}
    assert evaluated == pytest.approx(dict(module.measured))
    assert list(evaluated) == [6, 12]
