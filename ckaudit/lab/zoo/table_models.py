"""Models of tables, graphs, ratings and rewards, as users write them."""

from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name

from ckaudit.lab.zoo.recipe import Batch, Recipe, squared
from ckaudit.lab.zoo.synthetic_data import table


class GraphLayer(nn.Module):
    """Every node combines the mean of its neighbours with itself."""

    def __init__(self, narrow: int, wide: int) -> None:
        super().__init__()
        self.own, self.neighbours = nn.Linear(narrow, wide), nn.Linear(narrow, wide, bias=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Map nodes (N, D) to (N, E) along edges (2, M)."""
        start, end = edges
        total = torch.zeros_like(x).index_add_(0, end, x[start])
        count = torch.zeros(len(x)).index_add_(0, end, torch.ones(len(end))).clamp(min=1)
        output: Tensor = self.own(x) + self.neighbours(total / count[:, None])
        return output


class Graph(nn.Module):
    """A known graph in which some nodes have a known class."""

    classes: Tensor
    edges: Tensor
    x: Tensor

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
        """Return the logits of the requested nodes."""
        x = self.x
        for conv in self.convs:
            x = F.dropout(F.relu(conv(x, self.edges)), 0.5, self.training)
        output: Tensor = self.head(x[wanted])
        return output


def nodes(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return the indices of nodes in random order."""
    return {"x": torch.randperm(900, generator=source)[:rows]}


def node_loss(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of the classes of nodes."""
    return F.cross_entropy(model(batch["x"]), model.classes[batch["x"]])


def tabular() -> nn.Module:
    """Return a multi-layer perceptron for tables."""
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


class MatrixFactorization(nn.Module):
    """Factors and biases of users and items: a basic recommender."""

    def __init__(self, users: int = 200, things: int = 120, width: int = 16) -> None:
        super().__init__()
        self.user, self.thing = nn.Embedding(users, width), nn.Embedding(things, width)
        self.user_bias, self.thing_bias = nn.Embedding(users, 1), nn.Embedding(things, 1)
        for table_ in (self.user, self.thing):
            nn.init.normal_(table_.weight, std=0.1)

    def forward(self, pairs: Tensor) -> Tensor:
        """Map pairs (B, 2) of user and item to a rating each (B, 1)."""
        user, thing = pairs[:, 0], pairs[:, 1]
        both = (self.user(user) * self.thing(thing)).sum(1, keepdim=True)
        rating: Tensor = both + self.user_bias(user) + self.thing_bias(thing)
        return rating


def rated(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pairs of user and item, and ratings that a few tastes explain."""
    tastes = torch.Generator().manual_seed(7)
    users, things = torch.randn(200, 3, generator=tastes), torch.randn(120, 3, generator=tastes)
    pairs = torch.stack([torch.randint(0, 200, (rows,), generator=source), torch.randint(0, 120, (rows,), generator=source)], 1)
    clean = (users[pairs[:, 0]] * things[pairs[:, 1]]).sum(1)
    return {"x": pairs, "y": (clean + 0.3 * torch.randn(rows, generator=source))[:, None]}


class ResidualRegression(nn.Module):
    """A deep regression without any normalisation: linear layers with residual connections."""

    def __init__(self, width: int = 48, depth: int = 6) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, width), nn.Linear(width, 1)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, 12) to a number each (B, 1)."""
        x = self.first(x)
        for layer in self.layers:
            x = x + F.silu(layer(x)) / 2
        number: Tensor = self.last(x)
        return number


class Bandit(nn.Module):
    """A policy that learns from rewards alone, with their running average as the baseline."""

    best: Tensor
    baseline: Tensor

    def __init__(self, actions: int = 6) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, actions))
        self.register_buffer("best", torch.randn(12, actions, generator=torch.Generator().manual_seed(7)))
        self.register_buffer("baseline", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return the policy-gradient loss for situations (B, 12); its size does not show performance."""
        choice = torch.distributions.Categorical(logits=self.policy(x))
        action = choice.sample()
        reward = (torch.argmax(x @ self.best, 1) == action).float()
        advantage = reward - self.baseline
        if self.training:
            self.baseline.lerp_(reward.mean(), 0.1)
        return -(advantage * choice.log_prob(action)).mean() - 0.01 * choice.entropy().mean()


def situations(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return situations in which one of six actions is right."""
    return {"x": torch.randn(rows, 12, generator=source)}


def policy_loss(model: Any, batch: Batch) -> Tensor:
    """Return the loss of the policy."""
    loss: Tensor = model(batch["x"])
    return loss


class TripletEncoder(nn.Module):
    """Embeds rows of a table close to those of their kind, by triplets."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(12, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (B, 12) to points (B, 8) on a sphere."""
        return F.normalize(self.layers(x), dim=1)


def triplets(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows, another of the same kind for each, and one of another kind."""
    centres = torch.randn(8, 12, generator=torch.Generator().manual_seed(7))
    kind = torch.randint(0, 8, (rows,), generator=source)
    other = (kind + torch.randint(1, 8, (rows,), generator=source)) % 8
    noise = torch.randn(3, rows, 12, generator=source) * 0.9
    return {"x": centres[kind] + noise[0], "alike": centres[kind] + noise[1], "unlike": centres[other] + noise[2]}


def triplet_loss(model: Any, batch: Batch) -> Tensor:
    """Return the loss of triplets with a margin."""
    return F.triplet_margin_loss(model(batch["x"]), model(batch["alike"]), model(batch["unlike"]), margin=0.5)


TABLE = Recipe(model=tabular, rows=rows_of_a_table, loss=squared, optimizer="adam", lr=1e-3, batch=64, long=True)
FAMILIES = {
    "tabular": replace(TABLE, through="lightning"),
    "residual_regression": replace(TABLE, model=ResidualRegression),
    "recommender": replace(TABLE, model=MatrixFactorization, rows=rated, lr=1e-2, train=8192, batch=128, weight_decay=1e-5),
    "triplets": replace(TABLE, model=TripletEncoder, rows=triplets, loss=triplet_loss),
    "policy_gradient": replace(TABLE, model=Bandit, rows=situations, loss=policy_loss, lr=3e-3, train=8192, held_out=0),
    "graph": replace(
        TABLE, model=Graph, rows=nodes, loss=node_loss, lr=3e-3, weight_decay=5e-4, batch=600, train=600, held_out=300, long=False
    ),
}
