"""Trainings on pictures, and one that is a picture itself."""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR

from benchmarks.everyday.data import Batch, pictures, source, squares
from benchmarks.everyday.healthy import healthy, on_stream, on_table
from benchmarks.everyday.models import ResNet
from benchmarks.everyday.training import Training


class ClassTokenVit(nn.Module):
    """A vision transformer of PyTorch's own layers, with a token for the class."""

    def __init__(self, width: int = 32, classes: int = 5) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token, self.positions = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(0.02 * torch.randn(1, 17, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures (B, 3, 16, 16) to logits (B, classes)."""
        patches = self.patch(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches], 1) + self.positions
        return self.head(self.norm(self.encoder(tokens))[:, 0])


@healthy
def vit_with_class_token() -> Training:
    """A vision transformer, label smoothing, AdamW with warmup and cosine."""
    model, held_out = ClassTokenVit(), pictures(200, source(3), contrast=0.4)

    def rate(step: int) -> float:
        return min((step + 1) / 30, 0.5 * (1 + math.cos(math.pi * min(step / 400, 1))))

    def evaluate() -> Tensor:
        return F.cross_entropy(model(held_out[0]), held_out[1])

    optimizer = partial(AdamW, lr=1e-3, weight_decay=0.05)
    sample = partial(pictures, contrast=0.4)
    training = on_stream(model, sample, optimizer, rows=32, steps=400, schedule=partial(LambdaLR, lr_lambda=rate))
    training.criterion, training.evaluate = nn.CrossEntropyLoss(label_smoothing=0.1), evaluate
    return training


@healthy
def resnet_nesterov() -> Training:
    """A ResNet, SGD at 0.1 with Nesterov momentum and a cosine."""
    optimizer = partial(SGD, lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    sample = partial(pictures, contrast=0.6, tile=4)
    return on_stream(ResNet(), sample, optimizer, steps=250, held_out=256, schedule=partial(CosineAnnealingLR, T_max=250))


@healthy
def segmentation() -> Training:
    """Three convolutions that find squares, pixel by pixel."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 1)
    )
    return on_stream(model, squares, partial(Adam, lr=1e-3), rows=8, held_out=32, steps=300)


class Sine(nn.Module):
    """The sine of 30 times its input, as SIREN has it."""

    def forward(self, x: Tensor) -> Tensor:
        """Map numbers to as many."""
        return torch.sin(30 * x)


@healthy
def picture_of_coordinates() -> Training:
    """A network that draws one picture from coordinates, with a sine."""
    at = torch.rand(4_496, 2, generator=source(1))
    data: Batch = (at, torch.sin(6 * at[:, :1]) * torch.cos(9 * at[:, 1:]))
    model = nn.Sequential(nn.Linear(2, 64), Sine(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    return on_table(model, data, partial(Adam, lr=1e-3), rows=512, steps=500, criterion=nn.MSELoss())
