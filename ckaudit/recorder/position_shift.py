"""The twin of a batch: the same tokens at other positions, to tell what a model knows by content from what by place."""

from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ckaudit.recorder.batch import IGNORED, pair
from ckaudit.recorder.losses import changed

Way = Literal["position_ids", "prepended"]


def room_for(batch: Any, shift: int) -> int:
    """Return by how many positions a batch of tokens (B, T) can be shifted: at most a quarter of T; 0 for anything else."""
    inputs = pair(batch)[0]
    if not isinstance(inputs, Tensor) or inputs.ndim != 2 or inputs.is_floating_point():
        return 0
    return min(shift, inputs.shape[1] // 4)


def cut(batch: Any, shift: int) -> Any:
    """Return the batch without its last `shift` positions, so that the twin is no longer than what the model knows.

    The label of the first token is ignored in a mapping: nothing predicts it, except in the twin.
    """
    length = _tokens(batch).shape[1] - shift

    def shorten(part: Tensor, place: str | int) -> Tensor:
        if not _follows(part, batch):
            return part
        part = part[:, :length].clone()
        if place == "labels":
            part[:, 0] = IGNORED
        return part

    return changed(batch, shorten)


def twin(batch: Any, shift: int, model: nn.Module) -> tuple[Any, Way]:
    """Return the same tokens `shift` positions later, and how that was done.

    A model that takes `position_ids`, and a mapping to hold them, are given later ones. Otherwise `shift` copies of the
    first token stand before each sequence, whose targets are ignored.
    """
    if hasattr(batch, "get") and "position_ids" in signature(model.forward).parameters:
        inputs = _tokens(batch)
        own = batch.get("position_ids")
        places = torch.arange(inputs.shape[1], device=inputs.device).expand(inputs.shape) if own is None else own
        return dict(batch) | {"position_ids": places + shift}, "position_ids"
    return changed(batch, lambda part, place: _prepended(part, place, shift) if _follows(part, batch) else part), "prepended"


def _prepended(part: Tensor, place: str | int, shift: int) -> Tensor:
    before = part[:, :1].repeat_interleave(shift, dim=1)
    if place in (1, "labels"):
        before = torch.full_like(before, IGNORED)
    return torch.cat([before, part], dim=1)


def _tokens(batch: Any) -> Tensor:
    inputs = pair(batch)[0]
    assert isinstance(inputs, Tensor)
    return inputs


def _follows(part: Tensor, batch: Any) -> bool:
    """Return whether a tensor has a value for every token of the inputs."""
    return part.shape == _tokens(batch).shape
