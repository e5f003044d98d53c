"""A small model trained by Lightning; the callback is all it takes to record it."""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ckaudit.recorder.lightning import RecorderCallback


class Block(nn.Module):
    """A residual block."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(size), nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the block computes to its input."""
        return x + self.mlp(self.norm(x))


class NextToken(LightningModule):
    """Predicts the next of 64 tokens from the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks, self.head = nn.Embedding(64, 32), nn.Sequential(Block(32), Block(32)), nn.Linear(32, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of each next token."""
        return self.head(self.blocks(self.embed(tokens)))

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        """Return the loss of one batch of inputs and targets; calling the module lets the time of its pass be seen."""
        return nn.functional.cross_entropy(self(batch[0]).flatten(0, 1), batch[1].flatten())

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        """Log the loss under the name that the callback looks for."""
        self.log("val_loss", self.training_step(batch, index))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


torch.manual_seed(0)
tokens = (torch.randint(0, 64, (256, 1)) + torch.arange(17)) % 64
data = TensorDataset(tokens[:, :-1], tokens[:, 1:])
callback = RecorderCallback("run/", batch_of=lambda batch: batch, vocabulary=64, sequence_length=16)
trainer = Trainer(
    accelerator="cpu",
    max_steps=200,
    gradient_clip_val=1.0,
    val_check_interval=16,
    callbacks=[callback],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(NextToken(), DataLoader(data, batch_size=8), DataLoader(data, batch_size=64))
print("now look at it: ckaudit triage run/")
