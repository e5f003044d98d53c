"""Healthy trainings of models that users write themselves: convolutions, recurrence, graphs, tables."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name

from benchmarks.healthy.data import WORDS, chain, discs, pictures, table
from benchmarks.healthy.recipe import Batch, Recipe


def classified(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of classes."""
    return F.cross_entropy(model(batch["x"]).float(), batch["y"])


class Cnn(nn.Module):
    """Convolutions with their bias, batch normalisation, ReLU and pooling, as in a first lesson."""

    def __init__(self) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for narrow, wide in ((3, 16), (16, 32), (32, 64)):
            stages += [nn.Conv2d(narrow, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*stages)
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(64 * 16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures (B, 3, 32, 32) to logits (B, 10)."""
        found: Tensor = self.classifier(self.features(x))
        return found


def seen(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures and their classes."""
    x, y = pictures(source, rows)
    return {"x": x, "y": y}


class Lstm(nn.Module):
    """A language model of two LSTM layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(WORDS, 48), nn.LSTM(48, 64, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(64, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T) to logits (B, T, V)."""
        found: Tensor = self.head(self.lstm(self.embed(tokens))[0])
        return found


def read(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return tokens, and the next of each."""
    tokens = chain(source, rows, 33)
    return {"x": tokens[:, :-1], "y": tokens[:, 1:]}


def told_next(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of the next token."""
    return F.cross_entropy(model(batch["x"]).flatten(0, 1).float(), batch["y"].flatten())


class Gru(nn.Module):
    """Says what kind of sequence it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(3, 48, batch_first=True), nn.Linear(48, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences (B, T, 3) to one number each (B, 1)."""
        found: Tensor = self.head(self.gru(x)[0][:, -1])
        return found


def waves(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return noisy waves, and what each will be next."""
    phase, speed = (torch.rand(rows, 1, 3, generator=source) * span for span in (6.28, 0.5))
    clean = torch.sin(phase + (0.1 + speed) * torch.arange(25)[None, :, None])
    return {"x": clean[:, :-1] + 0.1 * torch.randn(rows, 24, 3, generator=source), "y": clean[:, -1, :1]}


def squared(model: Any, batch: Batch) -> Tensor:
    """Return the mean squared error."""
    return F.mse_loss(model(batch["x"]).float(), batch["y"])


class Twice(nn.Sequential):
    """Two convolutions with batch normalisation."""

    def __init__(self, narrow: int, wide: int) -> None:
        pairs = ((narrow, wide), (wide, wide))
        super().__init__(
            *(part for one, other in pairs for part in (nn.Conv2d(one, other, 3, padding=1), nn.BatchNorm2d(other), nn.ReLU()))
        )


class UNet(nn.Module):
    """Two steps down, two steps up, with the picture of each size handed across."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([Twice(1, 8), Twice(8, 16)])
        self.middle = Twice(16, 32)
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)])
        self.join = nn.ModuleList([Twice(32, 16), Twice(16, 8)])
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures (B, 1, H, W) to logits of their mask."""
        across = []
        for down in self.down:
            x = down(x)
            across.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join, beside in zip(self.up, self.join, reversed(across), strict=True):
            x = join(torch.cat([up(x), beside], 1))
        found: Tensor = self.head(x)
        return found


def cut_out(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures of a disc and its mask."""
    x, y = discs(source, rows)
    return {"x": x, "y": y}


def overlaid(model: Any, batch: Batch) -> Tensor:
    """Return the binary cross entropy of each pixel, and one less the Dice coefficient."""
    logits = model(batch["x"]).float()
    inside = torch.sigmoid(logits)
    both = (inside * batch["y"]).sum((1, 2, 3))
    dice = (2 * both + 1) / (inside.sum((1, 2, 3)) + batch["y"].sum((1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, batch["y"]) + (1 - dice).mean()


class Vae(nn.Module):
    """A variational autoencoder of small pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(256, 128), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(128, 8), nn.Linear(128, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 256))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map pictures (B, 256) to logits of their pixels, and mean and log variance of what was drawn (B, 8)."""
        found = self.encoder(x)
        mean, log_variance = self.mean(found), self.log_variance(found)
        drawn = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decoder(drawn), mean, log_variance


def flat_discs(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return masks of discs as rows of 256 pixels."""
    return {"x": discs(source, rows, size=16)[1].flatten(1)}


def evidence_bound(model: Any, batch: Batch) -> Tensor:
    """Return the negative evidence lower bound, in nats a picture."""
    logits, mean, log_variance = model(batch["x"])
    rebuilt = F.binary_cross_entropy_with_logits(logits.float(), batch["x"], reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
    return (rebuilt + divergence) / len(batch["x"])


class GraphLayer(nn.Module):
    """Every node takes the mean of its neighbours, beside what it was."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.own, self.neighbours = nn.Linear(narrow, wide), nn.Linear(narrow, wide, bias=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Map nodes (N, D) to (N, E) along edges (2, M)."""
        start, end = edges
        total = torch.zeros_like(x).index_add_(0, end, x[start])
        count = torch.zeros(len(x)).index_add_(0, end, torch.ones(len(end))).clamp(min=1)
        found: Tensor = self.own(x) + self.neighbours(total / count[:, None])
        return found


class Graph(nn.Module):
    """A graph that is known, of which some nodes have a known class."""

    def __init__(self, nodes: int = 900, features: int = 16, classes: int = 4) -> None:
        super().__init__()
        source = torch.Generator().manual_seed(7)
        self.register_buffer("classes", torch.randint(0, classes, (nodes,), generator=source))
        alike = self.classes[:, None] == self.classes[None, :]
        linked = torch.rand(nodes, nodes, generator=source) < torch.where(alike, 0.02, 0.004)
        self.register_buffer("edges", linked.triu(1).logical_or(linked.triu(1).T).nonzero().T)
        centres = torch.randn(classes, features, generator=source)
        self.register_buffer("x", centres[self.classes] * 0.3 + torch.randn(nodes, features, generator=source))
        self.convs = nn.ModuleList([GraphLayer(features, 32), GraphLayer(32, 32)])
        self.head = nn.Linear(32, classes)

    def forward(self, wanted: Tensor) -> Tensor:
        """Return the logits of wanted nodes."""
        x = self.x
        for conv in self.convs:
            x = F.dropout(F.relu(conv(x, self.edges)), 0.5, self.training)
        found: Tensor = self.head(x[wanted])
        return found


def nodes(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return the numbers of nodes in any order."""
    return {"x": torch.randperm(900, generator=source)[:rows]}


def nodes_classified(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of the classes of nodes."""
    return F.cross_entropy(model(batch["x"]), model.classes[batch["x"]])


def tabular() -> nn.Module:
    """Return a multi-layer perceptron as for tables."""
    return nn.Sequential(
        nn.Linear(12, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(64, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(64, 1),
    )


def rows_of_a_table(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return features and a target."""
    x, y = table(source, rows)
    return {"x": x, "y": y}


class Pairs(nn.Module):
    """Word vectors: which words stand beside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.context = nn.Embedding(WORDS, 24), nn.Embedding(WORDS, 24)

    def forward(self, x: Tensor, others: Tensor) -> Tensor:
        """Return the logit (B, K) that each of others (B, K) stands beside x (B)."""
        return torch.einsum("bd,bkd->bk", self.word(x), self.context(others))


def neighbours(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return words, a neighbour of each, and some drawn by chance."""
    tokens = chain(source, rows, 2)
    return {"x": tokens[:, 0], "others": torch.cat([tokens[:, 1:], torch.randint(4, WORDS, (rows, 5), generator=source)], 1)}


def told_from_chance(model: Any, batch: Batch) -> Tensor:
    """Return the loss of negative sampling."""
    logits = model(batch["x"], batch["others"])
    return -(F.logsigmoid(logits[:, 0]) + F.logsigmoid(-logits[:, 1:]).sum(1)).mean()


CNN = Recipe(
    model=Cnn,
    rows=seen,
    loss=classified,
    optimizer="sgd",
    momentum=0.9,
    lr=0.05,
    weight_decay=5e-4,
    schedule="cosine",
    batch=32,
    train=1024,
)
FAMILIES = {
    "cnn": CNN,
    "lstm": Recipe(
        model=Lstm,
        rows=read,
        loss=told_next,
        through="lightning",
        optimizer="adam",
        lr=5e-3,
        clip=1.0,
        facts={"batch_of": list, "vocabulary": WORDS, "sequence_length": 32},
    ),
    "gru": Recipe(model=Gru, rows=waves, loss=squared, optimizer="rmsprop", lr=1e-3, batch=64),
    "unet": Recipe(
        model=UNet, rows=cut_out, loss=overlaid, through="lightning", optimizer="adam", lr=1e-3, batch=8, train=256, held_out=32
    ),
    "vae": Recipe(model=Vae, rows=flat_discs, loss=evidence_bound, optimizer="adam", lr=1e-3, batch=64),
    "graph": Recipe(
        model=Graph,
        rows=nodes,
        loss=nodes_classified,
        optimizer="adam",
        lr=3e-3,
        weight_decay=5e-4,
        batch=600,
        train=600,
        held_out=300,
    ),
    "tabular": Recipe(
        model=tabular, rows=rows_of_a_table, loss=squared, through="lightning", optimizer="adam", lr=1e-3, batch=64
    ),
    "word2vec": Recipe(model=Pairs, rows=neighbours, loss=told_from_chance, optimizer="adagrad", lr=0.3, batch=256, train=8192),
}
