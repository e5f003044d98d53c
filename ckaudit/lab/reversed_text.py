"""Rows of a batch read from their end: a second language, of the same letters."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from ckaudit.lab.task import Batch


def backwards(batch: "Batch", rows: int) -> "Batch":
    """Return the batch of tokens with its first `rows` rows read from their end."""
    import torch

    whole = torch.cat((batch.inputs[:, :1], batch.targets), dim=1)  # (B, T + 1)
    whole[:rows] = whole[:rows].flip(1)
    return replace(batch, inputs=whole[:, :-1].contiguous(), targets=whole[:, 1:].contiguous())
