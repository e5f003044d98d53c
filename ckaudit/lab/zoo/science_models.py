"""Models of measurements: equations, waves, counts, categories, rewards and sounds, as users write them."""

import math
from itertools import pairwise
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name

from ckaudit.lab.zoo.recipe import Batch, Recipe, squared
from ckaudit.lab.zoo.synthetic_data import discs, pictures


def perceptron(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Return linear layers of given widths with an activation between them."""
    layers = [part for one, other in pairwise(widths) for part in (nn.Linear(one, other), act())]
    return nn.Sequential(*layers[:-1])


# Physics: a network that must satisfy an equation (Raissi et al. 2019, https://doi.org/10.1016/j.jcp.2018.10.045).
def oscillator() -> nn.Module:
    """Return a network of time that must oscillate."""
    return perceptron(1, 32, 32, 1, act=nn.Tanh)


def moments(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return times at which the equation must hold."""
    return {"x": torch.rand(rows, 1, generator=source) * 4}


def equation_loss(model: Any, batch: Batch) -> Tensor:
    """Return the mean squared residual of u'' = -u, and of u(0) = 1 and u'(0) = 0."""
    with torch.enable_grad():
        time = torch.cat([batch["x"], torch.zeros(1, 1)]).requires_grad_()
        swing = model(time)
        (speed,) = torch.autograd.grad(swing.sum(), time, create_graph=True)
        (force,) = torch.autograd.grad(speed.sum(), time, create_graph=True)
        start = (swing[-1] - 1) ** 2 + speed[-1] ** 2
        return ((force + swing)[:-1] ** 2).mean() + 10 * start.sum()


class Siren(nn.Module):
    """A picture as a function of position, with sine activations (Sitzmann et al. 2020, arXiv:2006.09661)."""

    def __init__(self, width: int = 48, *, frequency: float = 10.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 1)])
        self.frequency = frequency
        for index, layer in enumerate(self.layers):
            bound = 1 / 2 if index == 0 else math.sqrt(6 / width) / frequency
            nn.init.uniform_(layer.weight, -bound, bound)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Map positions (B, 2) from -1 to 1 to a brightness each (B, 1)."""
        for layer in [*self.layers][:-1]:
            x = torch.sin(self.frequency * layer(x))
        brightness: Tensor = self.layers[-1](x)
        return brightness


def pixels(source: torch.Generator, rows: int, *, size: int = 24) -> dict[str, Tensor]:
    """Return positions in one picture, which may repeat, and the brightness at each."""
    picture = pictures(torch.Generator().manual_seed(3), 1, size=size, noise=0.1)[0][0, 0]
    places = torch.randint(0, size, (rows, 2), generator=source)
    return {"x": places / (size / 2) - 1, "y": picture[places[:, 0], places[:, 1]][:, None]}


class Categories(nn.Module):
    """A table of categories: an embedding of each column, and a perceptron of all."""

    def __init__(self, sizes: tuple[int, ...] = (5, 4, 6, 3), width: int = 8) -> None:
        super().__init__()
        self.columns = nn.ModuleList(nn.Embedding(size, width) for size in sizes)
        self.head = perceptron(width * len(sizes), 64, 64, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map categories (B, 4) to logits (B, 3)."""
        logits: Tensor = self.head(torch.cat([column(x[:, place]) for place, column in enumerate(self.columns)], 1))
        return logits


def categories(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows of four categories, of which there are 360, and one of three classes, noisy."""
    x = torch.stack([torch.randint(0, size, (rows,), generator=source) for size in (5, 4, 6, 3)], 1)
    score = torch.randn(5, 4, 6, 3, 3, generator=torch.Generator().manual_seed(7))
    return {"x": x, "y": (score[x[:, 0], x[:, 1], x[:, 2], x[:, 3]] * 2).softmax(1).multinomial(1, generator=source)[:, 0]}


def class_loss(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of classes."""
    return F.cross_entropy(model(batch["x"]).float(), batch["y"])


def counts(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return features and a count each, whose rate depends on them."""
    x = torch.randn(rows, 10, generator=source)
    weights = torch.randn(10, generator=torch.Generator().manual_seed(7)) * 0.4
    return {"x": x, "y": torch.poisson((1.5 + x @ weights + 0.4 * torch.sin(3 * x[:, 0])).exp(), generator=source)[:, None]}


def poisson_loss(model: Any, batch: Batch) -> Tensor:
    """Return the negative log-likelihood of counts up to a constant; it may be below zero."""
    return F.poisson_nll_loss(model(batch["x"]).float(), batch["y"])


class ActorCritic(nn.Module):
    """A policy and a value of short walks on a line, learnt from their own rewards (A2C; Mnih et al. 2016, arXiv:1602.01783)."""

    def __init__(self, places: int = 9) -> None:
        super().__init__()
        self.places = places
        self.body = nn.Sequential(nn.Linear(places, 48), nn.Tanh())
        self.policy, self.value = nn.Linear(48, 2), nn.Linear(48, 1)

    def forward(self, start: Tensor, *, steps: int = 8, discount: float = 0.95) -> Tensor:
        """Return the loss of policy, value and entropy of walks from positions (B)."""
        place, parts = start, []
        for _ in range(steps):
            body = self.body(F.one_hot(place, self.places).float())
            choice = torch.distributions.Categorical(logits=self.policy(body))
            step = choice.sample()
            place = (place + 2 * step - 1).clamp(0, self.places - 1)
            reward = (place == self.places - 1).float() - 0.05
            parts.append((reward, self.value(body)[:, 0], choice.log_prob(step), choice.entropy()))
        with torch.no_grad():
            back = self.value(self.body(F.one_hot(place, self.places).float()))[:, 0]
        loss = torch.zeros(())
        for reward, value, chance, entropy in reversed(parts):
            back = reward + discount * back
            advantage = back - value
            loss = loss - (advantage.detach() * chance).mean() + 0.5 * (advantage**2).mean() - 0.01 * entropy.mean()
        return loss / steps


def starts(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return start positions."""
    return {"x": torch.randint(0, 8, (rows,), generator=source)}


def forward_loss(model: Any, batch: Batch) -> Tensor:
    """Return the loss that the model computes."""
    loss: Tensor = model(batch["x"])
    return loss


class SoundReader(nn.Module):
    """Reads letters from a longer sequence of sounds: a recurrent network with connectionist temporal classification."""

    def __init__(self, letters: int = 6, width: int = 48) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, width, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, letters + 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map sounds (B, T, 8) to logits (B, T, letters and the blank)."""
        logits: Tensor = self.head(self.lstm(x)[0])
        return logits


def sounds(source: torch.Generator, rows: int, *, letters: int = 6, length: int = 4, frames: int = 5) -> dict[str, Tensor]:
    """Return noisy sounds (rows, 20, 8), a few frames for each letter, and the letters, 1 to 6."""
    voice = torch.randn(letters + 1, 8, generator=torch.Generator().manual_seed(7))
    y = torch.randint(1, letters + 1, (rows, length), generator=source)
    x = voice[y.repeat_interleave(frames, 1)]
    return {"x": x + 0.5 * torch.randn(x.shape, generator=source), "y": y}


def temporal_loss(model: Any, batch: Batch) -> Tensor:
    """Return the loss of connectionist temporal classification (Graves et al. 2006), per letter."""
    logits = model(batch["x"]).float().log_softmax(2).transpose(0, 1)
    sizes = [torch.full((logits.shape[1],), count) for count in (len(logits), batch["y"].shape[1])]
    return F.ctc_loss(logits, batch["y"], sizes[0], sizes[1], zero_infinity=True)


class Autoencoder(nn.Module):
    """A variational autoencoder of small pictures that weights its two loss terms."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.SiLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.SiLU(), nn.Flatten())
        self.latent = nn.Linear(512, 2 * width)
        self.back = nn.Linear(width, 512)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map pictures (B, 3, 16, 16) to reconstructions, and the divergence of their codes from a normal one, in nats (B)."""
        mean, log_variance = self.latent(self.encoder(x)).chunk(2, 1)
        code = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        away = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1)
        return self.decoder(self.back(code).view(-1, 32, 4, 4)), away


def small_pictures(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return small pictures."""
    return {"x": pictures(source, rows, size=16, noise=0.3)[0]}


def weighted_bound(model: Any, batch: Batch) -> Tensor:
    """Return the squared error and a quarter of the divergence, per picture (Higgins et al. 2017)."""
    rebuilt, away = model(batch["x"])
    return ((rebuilt - batch["x"]) ** 2).sum((1, 2, 3)).mean() / 2 + away.mean() / 4


class Velocity(nn.Module):
    """The velocity that transports noise to points (flow matching; Lipman et al. 2022, arXiv:2210.02747)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron(3, 64, 64, 64, 2, act=nn.SiLU)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Map points (B, 2) at times (B, 1) to their velocity."""
        velocity: Tensor = self.layers(torch.cat([x, time], 1))
        return velocity


def moons(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return points of two half moons, with noise and times for them."""
    angle, side = torch.rand(rows, generator=source) * math.pi, torch.randint(0, 2, (rows,), generator=source)
    x = torch.stack([angle.cos() + side - 0.5, (1 - 2 * side) * angle.sin() + 0.25 * (2 * side - 1)], 1)
    x = x + 0.05 * torch.randn(x.shape, generator=source)
    return {"x": x, "noise": torch.randn(x.shape, generator=source), "time": torch.rand(rows, 1, generator=source)}


def matching_loss(model: Any, batch: Batch) -> Tensor:
    """Return the squared error of the velocity from noise to points; most of it cannot be predicted and remains."""
    mixed = torch.lerp(batch["noise"], batch["x"], batch["time"])
    return F.mse_loss(model(mixed, batch["time"]), batch["x"] - batch["noise"])


def cleaned() -> nn.Module:
    """Return a small convolutional network that removes noise from a picture."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1)
    )


def noisy_pictures(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return noisy pictures of discs, and clean ones."""
    x, y = discs(source, rows, size=24)
    return {"x": x, "y": y}


class Siamese(nn.Module):
    """One encoder for two rows, which are close to each other if they are of one kind (Hadsell et al. 2006)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = perceptron(16, 64, 64, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return the distance of the two rows of each pair (B, 2, 16), shape (B,)."""
        one, other = self.encoder(x[:, 0]), self.encoder(x[:, 1])
        distance: Tensor = (one - other).norm(dim=1)
        return distance


def pairs(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pairs of rows, and whether both are of one of six kinds."""
    centres = torch.randn(6, 16, generator=torch.Generator().manual_seed(7))
    kinds = torch.randint(0, 6, (rows, 2), generator=source)
    same = torch.rand(rows, generator=source) < 0.5
    kinds[:, 1] = torch.where(same, kinds[:, 0], kinds[:, 1])
    x = centres[kinds] + 0.7 * torch.randn(rows, 2, 16, generator=source)
    return {"x": x, "y": (kinds[:, 0] == kinds[:, 1]).float()}


def pair_loss(model: Any, batch: Batch) -> Tensor:
    """Return the contrastive loss with a margin of one."""
    away = model(batch["x"])
    return (batch["y"] * away**2 + (1 - batch["y"]) * F.relu(1 - away) ** 2).mean()


SCIENCE = Recipe(model=cleaned, rows=noisy_pictures, loss=squared, optimizer="adam", lr=2e-3, batch=32, train=1024)
FAMILIES = {
    "actor_critic": replace(SCIENCE, model=ActorCritic, rows=starts, loss=forward_loss, lr=3e-3, train=4096, held_out=0),
    "beta_vae": replace(SCIENCE, model=Autoencoder, rows=small_pictures, loss=weighted_bound, lr=1e-3, clip=1.0),
    "categories": replace(SCIENCE, model=Categories, rows=categories, loss=class_loss, lr=5e-3, train=2048),
    "ctc_lstm": replace(SCIENCE, model=SoundReader, rows=sounds, loss=temporal_loss, lr=5e-3, clip=1.0),
    "denoising": SCIENCE,
    "flow_matching": replace(SCIENCE, model=Velocity, rows=moons, loss=matching_loss, batch=128, train=4096, long=True),
    "physics": replace(SCIENCE, model=oscillator, rows=moments, loss=equation_loss, batch=64, held_out=0, through="loop"),
    "poisson": replace(SCIENCE, model=lambda: perceptron(10, 48, 48, 1), rows=counts, loss=poisson_loss, long=True),
    "siamese": replace(SCIENCE, model=Siamese, rows=pairs, loss=pair_loss, train=2048, long=True),
    "siren": replace(SCIENCE, model=Siren, rows=pixels, loss=squared, lr=1e-3, batch=64, train=2048, long=True),
}
