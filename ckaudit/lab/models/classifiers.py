"""Two classifiers: of points, and of small pictures."""

from itertools import pairwise

from torch import Tensor, nn

from ckaudit.lab.corpora.classification import FEATURES
from ckaudit.lab.plan import Cnn, Mlp


class MlpModel(nn.Module):
    """Linear layers with ReLU, and a head, from points (B, F) to logits (B, V).

    Args:
        plan: Its shape.
        classes: Number of classes.
    """

    def __init__(self, plan: Mlp, *, classes: int) -> None:
        super().__init__()
        sizes = [FEATURES] + [plan.hidden] * plan.depth
        self.layers = nn.ModuleList(Dense(*pair) for pair in pairwise(sizes))
        self.head = nn.Linear(plan.hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map points (B, F) to logits (B, V)."""
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Dense(nn.Module):
    """A linear map and a ReLU."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width_in, width_out)
        nn.init.kaiming_normal_(self.linear.weight, nonlinearity="relu")
        nn.init.zeros_(self.linear.bias)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, D) to (B, E)."""
        return self.act(self.linear(x))


class CnnModel(nn.Module):
    """Convolutions with batch norm, ReLU and pooling, a mean over the picture, and a head.

    Args:
        plan: Its shape.
        classes: Number of classes.
    """

    def __init__(self, plan: Cnn, *, classes: int) -> None:
        super().__init__()
        channels = [1] + [plan.channels * 2**index for index in range(plan.depth)]
        self.layers = nn.ModuleList(Convolution(*pair) for pair in pairwise(channels))
        self.head = nn.Linear(channels[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures (B, 1, 16, 16) to logits (B, V)."""
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean((2, 3)))


class Convolution(nn.Module):
    """A convolution, batch norm, a ReLU, and the larger of each 2 by 2 pixels."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels_out)
        self.act = nn.ReLU()
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, D, H/2, W/2)."""
        return self.pool(self.act(self.norm(self.conv(x))))
