"""Models with other objectives than a cross entropy or a squared error: densities, rankings, codes, teachers."""

import math
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name

from ckaudit.lab.zoo.picture_models import Cnn, seen
from ckaudit.lab.zoo.recipe import Batch, Recipe
from ckaudit.lab.zoo.science_models import forward_loss, perceptron
from ckaudit.lab.zoo.synthetic_data import pictures


class MixtureDensity(nn.Module):
    """A mixture of normal densities whose parameters depend on the input (Bishop 1994)."""

    def __init__(self, parts: int = 4) -> None:
        super().__init__()
        self.body, self.parts = perceptron(1, 48, 48, 3 * parts, act=nn.Tanh), parts

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the negative log density of y (B, 1) at x (B, 1), in nats; below zero where the density is narrow."""
        weight, mean, log_width = self.body(x).chunk(3, 1)
        log_density = torch.distributions.Normal(mean, log_width.clamp(-5, 3).exp()).log_prob(y)
        return -torch.logsumexp(weight.log_softmax(1) + log_density, 1)


def branches(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return points on a curve that turns back on itself, so that an input has up to three targets."""
    y = torch.rand(rows, 1, generator=source) * 2 - 1
    return {"x": y + 0.6 * torch.sin(2 * math.pi * y) + 0.05 * torch.randn(rows, 1, generator=source), "y": y}


def density_loss(model: Any, batch: Batch) -> Tensor:
    """Return the mean negative log density."""
    loss: Tensor = model(batch["x"], batch["y"]).mean()
    return loss


class CodeBook(nn.Module):
    """Small pictures as rows of a codebook (VQ-VAE; van den Oord et al. 2017, arXiv:1711.00937)."""

    def __init__(self, codes: int = 32, width: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 24, 4, 2, 1), nn.ReLU(), nn.Conv2d(24, width, 4, 2, 1))
        self.codes = nn.Embedding(codes, width)
        nn.init.uniform_(self.codes.weight, -1 / codes, 1 / codes)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(width, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(24, 3, 4, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss of pictures (B, 3, 16, 16): the reconstruction error, and the distance of codes and encodings."""
        encoded = self.encoder(x).permute(0, 2, 3, 1)
        nearest = torch.cdist(encoded.reshape(-1, encoded.shape[-1]), self.codes.weight).argmin(1)
        code = self.codes(nearest).view(encoded.shape)
        passed = encoded + (code - encoded).detach()
        error = F.mse_loss(self.decoder(passed.permute(0, 3, 1, 2)), x)
        return error + F.mse_loss(code, encoded.detach()) + 0.25 * F.mse_loss(encoded, code.detach())


def clear_pictures(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return small pictures with little noise."""
    return {"x": pictures(source, rows, size=16, noise=0.2)[0]}


class MaskedPictures(nn.Module):
    """A masked autoencoder that reconstructs three in four patches of a picture (He et al. 2021, arXiv:2111.06377)."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.patches, self.places = nn.Linear(48, width), nn.Parameter(0.02 * torch.randn(16, width))
        self.hidden = nn.Parameter(torch.zeros(width))
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 48)

    def forward(self, x: Tensor) -> Tensor:
        """Return the squared error of the hidden patches of pictures (B, 3, 16, 16)."""
        cut = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(len(x), 16, 48)
        hides = torch.rand(len(x), 16) < 0.75
        embedded = torch.where(hides[..., None], self.hidden, self.patches(cut)) + self.places
        error = (self.head(self.encoder(embedded)) - cut) ** 2
        return error.mean(2)[hides].mean()


class Student(nn.Module):
    """A small network that learns the outputs of a larger, frozen one (Hinton et al. 2015, arXiv:1503.02531)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.teacher = perceptron(20, 96, 96, 8).requires_grad_(requires_grad=False)
        self.student = perceptron(20, 32, 8)

    def forward(self, x: Tensor, *, heat: float = 2.0) -> Tensor:
        """Return the divergence of the student from the teacher on rows (B, 20), in nats."""
        teacher_log_probs = (4 * self.teacher(x) / heat).log_softmax(1)
        return heat**2 * F.kl_div(
            (self.student(x) / heat).log_softmax(1), teacher_log_probs, reduction="batchmean", log_target=True
        )


def normal_rows(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows of twenty normal numbers."""
    return {"x": torch.randn(rows, 20, generator=source)}


class TwoTasks(nn.Module):
    """One trunk, and two heads that are trained by different losses of different sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.kind, self.size = perceptron(20, 64, 64), nn.Linear(64, 5), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map rows (B, 20) to logits of their kind (B, 5) and a size (B)."""
        features = F.relu(self.body(x))
        return self.kind(features), self.size(features)[:, 0]


def two_answers(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows, their kind, and a size in large units."""
    x = torch.randn(rows, 20, generator=source)
    known = torch.Generator().manual_seed(7)
    kinds, sizes = torch.randn(20, 5, generator=known), torch.randn(20, generator=known)
    return {"x": x, "kind": (x @ kinds).argmax(1), "size": 20 + 5 * x @ sizes}


def both_losses(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of the kind and a hundredth of the squared error of the size."""
    kind, size = model(batch["x"])
    return F.cross_entropy(kind, batch["kind"]) + 0.01 * F.mse_loss(size, batch["size"])


def rare_events(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows of which one in thirty is an event."""
    x = torch.randn(rows, 20, generator=source)
    score = x @ torch.randn(20, generator=torch.Generator().manual_seed(7)) + torch.randn(rows, generator=source)
    return {"x": x, "y": (score > 8.5).float()[:, None]}


def focal_loss(model: Any, batch: Batch, *, focus: float = 2.0) -> Tensor:
    """Return the focal loss of rare events (Lin et al. 2017, arXiv:1708.02002)."""
    logits = model(batch["x"])
    entropy = F.binary_cross_entropy_with_logits(logits, batch["y"], reduction="none")
    return ((1 - (-entropy).exp()) ** focus * entropy).mean()


class Ranking(nn.Module):
    """Factors of users and items, for ranking chosen items above others (BPR; Rendle et al. 2009, arXiv:1205.2618)."""

    def __init__(self, users: int = 300, things: int = 150, width: int = 16) -> None:
        super().__init__()
        self.user, self.thing = nn.Embedding(users, width), nn.Embedding(things, width)
        for table in (self.user, self.thing):
            nn.init.normal_(table.weight, std=0.05)

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss of triples (B, 3) of a user, a chosen item and another one."""
        user, chosen, other = self.user(x[:, 0]), self.thing(x[:, 1]), self.thing(x[:, 2])
        return -F.logsigmoid((user * (chosen - other)).sum(1)).mean()


def choices(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return triples of a user, the preferred one of two items, and the other."""
    known = torch.Generator().manual_seed(7)
    users, things = torch.randn(300, 3, generator=known), torch.randn(150, 3, generator=known)
    user = torch.randint(0, 300, (rows,), generator=source)
    pair = torch.randint(0, 150, (rows, 2), generator=source)
    liked = (users[user][:, None] * things[pair]).sum(2) + 0.5 * torch.randn(rows, 2, generator=source)
    return {"x": torch.cat([user[:, None], pair.gather(1, liked.argsort(1, descending=True))], 1)}


class Forecast(nn.Module):
    """The next values of a series by a recurrent network, as three quantiles each."""

    def __init__(self, width: int = 32, ahead: int = 6) -> None:
        super().__init__()
        self.gru, self.head, self.ahead = nn.GRU(1, width, batch_first=True), nn.Linear(width, 3 * ahead), ahead

    def forward(self, x: Tensor) -> Tensor:
        """Map series (B, T, 1) to quantiles (B, ahead, 3)."""
        quantiles: Tensor = self.head(self.gru(x)[0][:, -1]).view(-1, self.ahead, 3)
        return quantiles


def series(source: torch.Generator, rows: int, *, length: int = 36) -> dict[str, Tensor]:
    """Return noisy waves of random period, and their continuations."""
    period, phase = 6 + 12 * torch.rand(rows, 1, generator=source), 6.28 * torch.rand(rows, 1, generator=source)
    wave = torch.sin(torch.arange(length) * 6.28 / period + phase) + 0.2 * torch.randn(rows, length, generator=source)
    return {"x": wave[:, :-6, None], "y": wave[:, -6:]}


def quantile_loss(model: Any, batch: Batch) -> Tensor:
    """Return the pinball loss of the quantiles at 0.1, 0.5 and 0.9."""
    levels = torch.tensor([0.1, 0.5, 0.9])
    off = batch["y"][..., None] - model(batch["x"])
    return torch.maximum(levels * off, (levels - 1) * off).mean()


class ModularSum(nn.Module):
    """Sums modulo a prime, of which only a part is in the training set (Power et al. 2022, arXiv:2201.02177)."""

    def __init__(self, prime: int = 23, width: int = 48) -> None:
        super().__init__()
        self.number = nn.Embedding(prime, width)
        self.layers = perceptron(2 * width, 128, prime)

    def forward(self, x: Tensor) -> Tensor:
        """Map pairs (B, 2) to logits of their sum."""
        logits: Tensor = self.layers(self.number(x).flatten(1))
        return logits


def sums(source: torch.Generator, rows: int, *, prime: int = 23) -> dict[str, Tensor]:
    """Return pairs of numbers, which may repeat, and their sums."""
    x = torch.randint(0, prime, (rows, 2), generator=source)
    return {"x": x, "y": x.sum(1) % prime}


def sum_loss(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of sums."""
    return F.cross_entropy(model(batch["x"]), batch["y"])


class Angular(nn.Module):
    """Pictures by the angle to the centre of their class, with a margin (ArcFace; Deng et al. 2019, arXiv:1801.07698)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Cnn()
        self.body.classifier[4] = nn.Linear(64, 32)
        self.centres = nn.Parameter(torch.randn(10, 32))

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures (B, 3, 32, 32) to cosines with the centres (B, 10)."""
        return F.normalize(self.body(x), dim=1) @ F.normalize(self.centres, dim=1).T


def margin_loss(model: Any, batch: Batch, *, margin: float = 0.2, scale: float = 16.0) -> Tensor:
    """Return the cross entropy of scaled cosines, with a margin subtracted from the right one."""
    cosine = model(batch["x"]).float()
    return F.cross_entropy(scale * (cosine - margin * F.one_hot(batch["y"], 10)), batch["y"])


class Energy(nn.Module):
    """An energy that is low at the points, trained against noise of the same spread (Gutmann & Hyvarinen 2010)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron(2, 64, 64, 1, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss of distinguishing points (B, 2) from normal noise."""
        noise = 1.2 * torch.randn_like(x)
        density = torch.distributions.Normal(0, 1.2)
        real, fake = (-self.layers(points)[:, 0] - density.log_prob(points).sum(1) for points in (x, noise))
        return F.softplus(-real).mean() + F.softplus(fake).mean()


def spiral(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return points on a spiral."""
    turn = torch.rand(rows, 1, generator=source).sqrt() * 9
    x = torch.cat([turn.cos(), turn.sin()], 1) * turn / 5 + 0.05 * torch.randn(rows, 2, generator=source)
    return {"x": x}


class Tagger(nn.Module):
    """A tagger of sentences: a bidirectional recurrent network with tag transitions (Lample et al. 2016, arXiv:1603.01360)."""

    def __init__(self, words: int = 40, tags: int = 5, width: int = 32) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(words, width), nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.head, self.follows = nn.Linear(2 * width, tags), nn.Parameter(torch.zeros(tags, tags))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the negative log-likelihood of tags (B, T) of words (B, T), in nats per sentence."""
        scores = self.head(self.lstm(self.words(x))[0])
        true_score = scores.gather(2, y[..., None])[..., 0].sum(1) + self.follows[y[:, :-1], y[:, 1:]].sum(1)
        paths = scores[:, 0]
        for place in range(1, x.shape[1]):
            paths = torch.logsumexp(paths[:, :, None] + self.follows, 1) + scores[:, place]
        return torch.logsumexp(paths, 1) - true_score


def tagged(source: torch.Generator, rows: int, *, length: int = 10) -> dict[str, Tensor]:
    """Return sentences and their tags: a tag depends on the one before it and shows in the word."""
    known = torch.Generator().manual_seed(7)
    next_tag = torch.rand(5, 5, generator=known) ** 3
    y = torch.randint(0, 5, (rows, length), generator=source)
    for place in range(1, length):
        y[:, place] = next_tag[y[:, place - 1]].multinomial(1, generator=source)[:, 0]
    return {"x": y * 8 + torch.randint(-3, 8, (rows, length), generator=source) % 8, "y": y}


OBJECTIVE = Recipe(model=CodeBook, rows=clear_pictures, loss=forward_loss, optimizer="adam", lr=2e-3, batch=32, train=1024)
FAMILIES = {
    "arcface": replace(OBJECTIVE, model=Angular, rows=seen, loss=margin_loss),
    "bpr": replace(OBJECTIVE, model=Ranking, rows=choices, lr=1e-2, train=4096, batch=128, weight_decay=1e-4, long=True),
    "distilled": replace(OBJECTIVE, model=Student, rows=normal_rows, train=2048, long=True),
    "energy": replace(OBJECTIVE, model=Energy, rows=spiral, batch=128, train=4096, long=True),
    "focal": replace(OBJECTIVE, model=lambda: perceptron(20, 64, 64, 1), rows=rare_events, loss=focal_loss, batch=64, train=4096),
    "forecast": replace(OBJECTIVE, model=Forecast, rows=series, loss=quantile_loss, lr=5e-3, clip=1.0),
    "masked_pictures": replace(OBJECTIVE, model=MaskedPictures, optimizer="adamw", lr=1e-3, weight_decay=0.05, warmup=10),
    "mixture_density": replace(OBJECTIVE, model=MixtureDensity, rows=branches, loss=density_loss, lr=3e-3, batch=128, long=True),
    "modular_sum": replace(
        OBJECTIVE, model=ModularSum, rows=sums, loss=sum_loss, optimizer="adamw", weight_decay=0.1, train=2048
    ),
    "tagger": replace(OBJECTIVE, model=Tagger, rows=tagged, loss=density_loss, lr=5e-3, clip=5.0),
    "two_tasks": replace(OBJECTIVE, model=TwoTasks, rows=two_answers, loss=both_losses, train=2048, long=True),
    "vqvae": OBJECTIVE,
}
