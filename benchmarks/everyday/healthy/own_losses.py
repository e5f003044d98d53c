"""Trainings whose loss is more than a criterion of outputs and targets."""

import math
from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name
from torch.optim import Adagrad, Adam, AdamW

from benchmarks.everyday.data import Batch, source, task_source
from benchmarks.everyday.healthy import healthy, on_stream
from benchmarks.everyday.models import mlp
from benchmarks.everyday.training import Training


class Vae(nn.Module):
    """A variational autoencoder of 64 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(128, 8), nn.Linear(128, 8)
        self.decoder = mlp(8, 128, 64)

    def forward(self, bits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map bits (B, 64) to logits of them, and mean and log variance of what stands for them."""
        hidden = self.encoder(bits)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        return self.decoder(mean + torch.randn_like(mean) * (log_variance / 2).exp()), mean, log_variance


def _bits(rows: int, drawn: Generator) -> Batch:
    shares = torch.rand(10, 64, generator=task_source(3))
    kinds = torch.randint(10, (rows,), generator=drawn)
    return ((torch.rand(rows, 64, generator=drawn) < shares[kinds]).float(),)


@healthy
def variational_autoencoder() -> Training:
    """A variational autoencoder, its loss summed over the bits."""
    model = Vae()

    def loss(batch: Batch) -> Tensor:
        logits, mean, log_variance = model(batch[0])
        error = F.binary_cross_entropy_with_logits(logits, batch[0], reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        return (error + divergence) / len(batch[0])

    return on_stream(model, _bits, partial(Adam, lr=1e-3), steps=600, held_out=256, loss=loss)


def _views(rows: int, drawn: Generator) -> Batch:
    """Return two noisy views (rows, 32) of the same things."""
    things = torch.randn(rows, 6, generator=drawn) @ torch.randn(6, 32, generator=task_source(3))
    return tuple(things + 0.5 * torch.randn(rows, 32, generator=drawn) for _ in range(2))


@healthy
def contrastive() -> Training:
    """Two views of each thing are drawn together, as in SimCLR."""
    encoder = mlp(32, 64, 16)

    def loss(batch: Batch) -> Tensor:
        left, right = (F.normalize(encoder(view)) for view in batch)
        return F.cross_entropy(left @ right.T / 0.1, torch.arange(len(left)))

    return on_stream(encoder, _views, partial(Adam, lr=1e-3), steps=500, held_out=64, loss=loss)


def _triplets(rows: int, drawn: Generator) -> Batch:
    """Return anchors, others of their kind, and some of another kind, (rows, 32) each."""
    kinds = torch.randint(12, (rows,), generator=drawn)
    others = (kinds + torch.randint(1, 12, (rows,), generator=drawn)) % 12
    centres = torch.randn(12, 32, generator=task_source(3))
    return tuple(centres[each] + 0.8 * torch.randn(rows, 32, generator=drawn) for each in (kinds, kinds, others))


@healthy
def triplets() -> Training:
    """A metric is learnt with the triplet loss."""
    encoder = mlp(32, 64, 8)

    def loss(batch: Batch) -> Tensor:
        anchor, alike, other = (encoder(each) for each in batch)
        return F.triplet_margin_loss(anchor, alike, other, margin=1.0)

    return on_stream(encoder, _triplets, partial(Adam, lr=1e-3), steps=400, loss=loss)


@healthy
def diffusion() -> Training:
    """The noise on points of a circle is predicted; the loss draws its own data."""
    model, drawn = mlp(3, 128, 128, 2, act=nn.SiLU), source(1)

    def loss(_batch: Batch, rows: int = 128) -> Tensor:
        angle = 2 * math.pi * torch.rand(rows, 1, generator=drawn)
        clean = torch.cat([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(rows, 2, generator=drawn)
        time, noise = torch.rand(rows, 1, generator=drawn), torch.randn(rows, 2, generator=drawn)
        seen = (time * math.pi / 2).cos() * clean + (time * math.pi / 2).sin() * noise
        return F.mse_loss(model(torch.cat([seen, time], 1)), noise)

    return Training(model=model, optimizer=partial(AdamW, lr=1e-3), steps=600, loss=loss, evaluate=lambda: loss(()))


@healthy
def differential_equation() -> Training:
    """A physics-informed network: the error of a differential equation, without data."""
    model = mlp(1, 32, 32, 1, act=nn.Tanh)
    x = torch.linspace(0, 1, 64)[:, None].requires_grad_(True)

    def loss(_batch: Batch) -> Tensor:
        value = model(x)
        (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
        ends = model(torch.tensor([[0.0], [1.0]]))
        return ((bend + math.pi**2 * torch.sin(math.pi * x)) ** 2).mean() + 100 * (ends**2).sum()

    return Training(model=model, optimizer=partial(Adam, lr=1e-3), steps=800, loss=loss)


class SkipGram(nn.Module):
    """Vectors of words and of their contexts."""

    def __init__(self, words: int = 400, width: int = 32) -> None:
        super().__init__()
        self.words, self.contexts = nn.Embedding(words, width), nn.Embedding(words, width)
        nn.init.uniform_(self.words.weight, -0.5 / width, 0.5 / width)
        nn.init.zeros_(self.contexts.weight)

    def forward(self, words: Tensor, contexts: Tensor, others: Tensor) -> Tensor:
        """Return the loss of words (B,), of contexts of theirs (B,), and of words drawn at random (B, 5)."""
        vectors = self.words(words)
        true = F.logsigmoid((vectors * self.contexts(contexts)).sum(1))
        false = F.logsigmoid(-(vectors[:, None] * self.contexts(others)).sum(2)).sum(1)
        return -(true + false).mean()


def _neighbours(rows: int, drawn: Generator) -> Batch:
    topic = 20 * torch.randint(20, (rows,), generator=drawn)
    words, contexts = (topic + torch.randint(20, (rows,), generator=drawn) for _ in range(2))
    return words, contexts, torch.randint(400, (rows, 5), generator=drawn)


@healthy
def word2vec() -> Training:
    """Word vectors with negative sampling; contexts begin at zero."""
    model = SkipGram()
    return on_stream(model, _neighbours, partial(Adam, lr=1e-2), rows=256, steps=500, loss=lambda batch: model(*batch))


class MatrixFactorization(nn.Module):
    """Factors of users and of films, whose product is a rating."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.films = nn.Embedding(200, 16), nn.Embedding(300, 16)

    def forward(self, pairs: Tensor) -> Tensor:
        """Map pairs (B, 2) of user and film to ratings (B,)."""
        return (self.users(pairs[:, 0]) * self.films(pairs[:, 1])).sum(1)


def _ratings(rows: int, drawn: Generator) -> Batch:
    tastes = torch.randn(200, 4, generator=task_source(3)), torch.randn(300, 4, generator=task_source(4))
    users, films = (torch.randint(len(each), (rows,), generator=drawn) for each in tastes)
    return torch.stack([users, films], 1), 0.5 * (tastes[0][users] * tastes[1][films]).sum(1)


@healthy
def matrix_factorization() -> Training:
    """A recommender, Adagrad."""
    return on_stream(MatrixFactorization(), _ratings, partial(Adagrad, lr=0.1), rows=256, steps=800, criterion=nn.MSELoss())


class GraphNetwork(nn.Module):
    """Two graph convolutions with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.dropout, self.second = nn.Linear(16, 32), nn.Dropout(0.5), nn.Linear(32, 4)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Map nodes (N, 16) and how they are linked (N, N) to logits (N, 4)."""
        hidden = self.dropout(F.relu(self.first(adjacency @ x)))
        return self.second(adjacency @ hidden)


def _graph(nodes: int = 300) -> tuple[Tensor, Tensor, Tensor]:
    """Return the features of nodes, how they are linked, rows adding up to 1, and their classes."""
    drawn = source(1)
    labels = torch.randint(4, (nodes,), generator=drawn)
    likely = torch.where(labels[:, None] == labels, 0.06, 0.01)
    linked = (torch.rand(nodes, nodes, generator=drawn) < likely).float()
    linked = (linked + linked.T + torch.eye(nodes)).clamp(max=1)
    features = torch.randn(nodes, 16, generator=drawn) + 0.7 * F.one_hot(labels, 16)
    return features, linked / linked.sum(1, keepdim=True), labels


@healthy
def graph() -> Training:
    """A graph network on one graph, half of whose nodes are held out."""
    model, (features, adjacency, labels) = GraphNetwork(), _graph()

    def loss_of(nodes: slice) -> Tensor:
        return F.cross_entropy(model(features, adjacency)[nodes], labels[nodes])

    return Training(
        model=model,
        optimizer=partial(Adam, lr=1e-2, weight_decay=5e-4),
        steps=100,
        every=10,
        loss=lambda _batch: loss_of(slice(150)),
        evaluate=lambda: loss_of(slice(150, None)),
    )
