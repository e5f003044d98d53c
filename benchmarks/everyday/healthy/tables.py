"""Classifiers and regressions on tables, with many losses and optimizers."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name
from torch.optim import SGD, Adam, AdamW, NAdam, RMSprop

from benchmarks.everyday.data import Batch, blobs, source, task_source
from benchmarks.everyday.healthy import healthy, on_blobs, on_table
from benchmarks.everyday.models import mlp
from benchmarks.everyday.training import Training


def _normal(rows: int, features: int) -> Tensor:
    return torch.randn(rows, features, generator=source(1))


def _noise(rows: int) -> Tensor:
    return torch.randn(rows, 1, generator=source(5))


@healthy
def dropout_half() -> Training:
    """A classifier with dropout of one half, Adam."""
    return on_blobs(partial(Adam, lr=1e-3), model=mlp(20, 64, 64, 5, dropout=0.5), steps=600)


@healthy
def batches_of_8() -> Training:
    """A classifier on batches of 8 rows, SGD with momentum."""
    return on_blobs(partial(SGD, lr=0.03, momentum=0.9), rows=8, steps=1_000)


@healthy
def batches_of_512() -> Training:
    """A classifier on batches of 512 rows, AdamW."""
    return on_blobs(partial(AdamW, lr=3e-3), total=8_400, rows=512, steps=300)


@healthy
def batches_of_1() -> Training:
    """A regression on one row at a time, plain SGD."""
    x = _normal(2_200, 10)
    y = x[:, :1] - 0.5 * x[:, 1:2] + 0.5 * _noise(2_200)
    model = mlp(10, 32, 1, act=nn.Tanh)
    return on_table(model, (x, y), partial(SGD, lr=0.01), rows=1, steps=1_500, every=250, criterion=nn.MSELoss())


@healthy
def full_batch() -> Training:
    """A classifier on all rows at every step, plain SGD."""
    data = blobs(700, source(1), features=10, classes=3)
    return on_table(mlp(10, 32, 32, 3), data, partial(SGD, lr=0.5), rows=500, held_out=200, steps=300)


@healthy
def stopped_early() -> Training:
    """A small classifier on 320 noisy rows, ended before it overfits."""
    data = blobs(720, source(1), noise=1.6)
    return on_table(mlp(20, 24, 24, 5), data, partial(Adam, lr=1e-3), steps=120, every=10)


@healthy
def imbalanced_classes() -> Training:
    """A classifier of which one class has a twentieth of the rows."""
    labels = (torch.rand(4_000, generator=source(5)) < 0.05).long()
    data = (_normal(4_000, 20) + labels[:, None], labels)
    return on_table(mlp(20, 64, 64, 2), data, partial(Adam, lr=1e-3), rows=64, steps=500)


@healthy
def multi_label() -> Training:
    """Twelve labels at once with binary cross entropy."""
    x = _normal(4_000, 20)
    scores = x @ torch.randn(20, 12, generator=task_source(3)) + torch.randn(4_000, 12, generator=source(5))
    data = (x, (scores > 2).float())
    return on_table(mlp(20, 64, 64, 12), data, partial(Adam, lr=2e-3), rows=64, steps=500, criterion=nn.BCEWithLogitsLoss())


@healthy
def logistic_regression() -> Training:
    """A logistic regression that begins at zero, plain SGD."""
    model = nn.Linear(20, 3)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return on_table(model, blobs(2_400, source(1), classes=3), partial(SGD, lr=0.1), rows=64, steps=300)


@healthy
def linear_svm() -> Training:
    """A linear model with the hinge loss and weight decay, plain SGD."""
    x = _normal(2_000, 30)
    y = torch.sign(x @ torch.randn(30, 1, generator=task_source(3)) + 0.5 * _noise(2_000))
    optimizer = partial(SGD, lr=0.05, weight_decay=1e-3)
    return on_table(
        nn.Linear(30, 1), (x, y), optimizer, steps=600, criterion=lambda output, side: F.relu(1 - output * side).mean()
    )


@healthy
def house_prices() -> Training:
    """A regression on targets around 22 that are not standardized."""
    x = _normal(3_000, 13)
    y = 22 + 9 * torch.tanh(x[:, :1] + 0.5 * x[:, 1:2] * x[:, 2:3]) + _noise(3_000)
    return on_table(mlp(13, 64, 64, 1), (x, y), partial(Adam, lr=1e-3), steps=800, criterion=nn.MSELoss())


@healthy
def huber_loss() -> Training:
    """A regression on standardized targets with the smooth L1 loss, AdamW."""
    x = _normal(3_000, 13)
    y = 200_000 + 60_000 * torch.tanh(x[:, :1] + x[:, 1:2]) + 5_000 * _noise(3_000)
    data = (x, (y - y.mean()) / y.std())
    optimizer = partial(AdamW, lr=3e-3, weight_decay=0.1)
    return on_table(mlp(13, 64, 1, act=nn.SiLU), data, optimizer, steps=500, criterion=nn.SmoothL1Loss())


@healthy
def outliers_l1() -> Training:
    """A regression with the L1 loss on targets with heavy tails."""
    x = _normal(3_000, 8)
    heavy = torch.distributions.StudentT(1.5).sample((3_000, 1))
    return on_table(mlp(8, 32, 1), (x, 3 * x[:, :1] + heavy), partial(Adam, lr=2e-3), steps=500, criterion=nn.L1Loss())


@healthy
def quantile_regression() -> Training:
    """Three quantiles of a target whose spread varies."""
    x = _normal(3_000, 8)
    y = 2 * x[:, :1] + (1 + x[:, 1:2].abs()) * _noise(3_000)
    wanted = torch.tensor([0.1, 0.5, 0.9])

    def pinball(outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.maximum(wanted * (targets - outputs), (wanted - 1) * (targets - outputs)).mean()

    return on_table(mlp(8, 64, 3), (x, y), partial(Adam, lr=1e-3), steps=500, criterion=pinball)


@healthy
def poisson_counts() -> Training:
    """A regression of counts with the Poisson loss."""
    x = _normal(3_000, 8)
    y = torch.poisson(torch.exp(0.8 * x[:, :1] + 0.5), generator=source(5))
    return on_table(mlp(8, 32, 1), (x, y), partial(Adam, lr=2e-3), steps=500, criterion=nn.PoissonNLLLoss())


@healthy
def mixture_density() -> Training:
    """A mixture of two normal distributions, by its likelihood."""
    x = 2 * torch.rand(3_000, 1, generator=source(1)) - 1

    def negative_log_likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
        shares, means, scales = outputs.chunk(3, 1)
        each = torch.distributions.Normal(means, scales.clamp(-5, 3).exp()).log_prob(targets)
        return -torch.logsumexp(F.log_softmax(shares, 1) + each, 1).mean()

    data = (x, 0.5 * torch.sin(3 * x) + 0.02 * _noise(3_000))
    model = mlp(1, 64, 6, act=nn.Tanh)
    return on_table(model, data, partial(Adam, lr=3e-3), rows=128, steps=800, criterion=negative_log_likelihood)


@healthy
def nadam() -> Training:
    """A classifier, NAdam."""
    return on_blobs(partial(NAdam, lr=2e-3), steps=400)


@healthy
def weight_norm_rmsprop() -> Training:
    """A classifier with weight normalization, RMSprop."""
    first, second = (nn.utils.parametrizations.weight_norm(nn.Linear(width, 64)) for width in (20, 64))
    model = nn.Sequential(first, nn.ELU(), second, nn.ELU(), nn.Linear(64, 5))
    return on_blobs(partial(RMSprop, lr=1e-3), model=model, steps=500)


class MixtureOfExperts(nn.Module):
    """Four small networks and a router that weighs them."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(20, 4)
        self.experts = nn.ModuleList(mlp(20, 32, 5) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, 20) to logits (B, 5)."""
        shares = F.softmax(self.router(x), -1)
        outputs = torch.stack([expert(x) for expert in self.experts], 2)  # (B, 5, 4)
        return (outputs * shares[:, None]).sum(2)


@healthy
def mixture_of_experts() -> Training:
    """A classifier of four experts that a router weighs."""
    return on_blobs(partial(Adam, lr=2e-3), model=MixtureOfExperts(), total=3_400, steps=500)


class TwoHeads(nn.Module):
    """A trunk with a head for classes and one for a number."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(mlp(20, 64, 64), nn.ReLU())
        self.classes, self.number = nn.Linear(64, 5), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map features (B, 20) to logits (B, 5) and numbers (B, 1)."""
        features = self.trunk(x)
        return self.classes(features), self.number(features)


@healthy
def two_heads() -> Training:
    """A classifier that predicts a number too, with both losses added."""
    x, labels = blobs(3_400, source(1))
    model = TwoHeads()

    def loss(batch: Batch) -> Tensor:
        logits, numbers = model(batch[0])
        return F.cross_entropy(logits, batch[2]) + 0.5 * F.mse_loss(numbers, batch[1])

    return on_table(model, (x, 2 * x[:, :1].sin(), labels), partial(AdamW, lr=2e-3), rows=64, steps=500, loss=loss)


class DeepSets(nn.Module):
    """A network of the sum of what another makes of each element."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.whole = mlp(1, 32, 32), mlp(32, 32, 1)

    def forward(self, sets: Tensor) -> Tensor:
        """Map sets (B, N, 1) to a number each (B, 1)."""
        return self.whole(self.each(sets).sum(1))


@healthy
def sets() -> Training:
    """A regression on sets of ten numbers."""
    x = torch.rand(3_000, 10, 1, generator=source(1))
    y = x.max(1).values + 0.1 * x.sum(1)
    return on_table(DeepSets(), (x, y), partial(Adam, lr=1e-3), steps=600, criterion=nn.MSELoss())
