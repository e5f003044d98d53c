"""Models of pictures that their users wrote themselves."""

import math
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name

from ckaudit.lab.zoo.recipe import Batch, Opponent, Recipe, classified
from ckaudit.lab.zoo.synthetic_data import discs, pictures


class Cnn(nn.Module):
    """Convolutions with bias, batch normalisation, ReLU and pooling, as in a tutorial."""

    def __init__(self) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for narrow, wide in ((3, 16), (16, 32), (32, 64)):
            stages += [nn.Conv2d(narrow, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*stages)
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(64 * 16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures (B, 3, 32, 32) to logits (B, 10)."""
        logits: Tensor = self.classifier(self.features(x))
        return logits


def seen(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures and their classes."""
    x, y = pictures(source, rows)
    return {"x": x, "y": y}


class DoubleConvolution(nn.Sequential):
    """Two convolutions with batch normalisation."""

    def __init__(self, narrow: int, wide: int) -> None:
        pairs = ((narrow, wide), (wide, wide))
        super().__init__(
            *(part for one, other in pairs for part in (nn.Conv2d(one, other, 3, padding=1), nn.BatchNorm2d(other), nn.ReLU()))
        )


class UNet(nn.Module):
    """Two steps down and two steps up, with skip connections at each size."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([DoubleConvolution(1, 8), DoubleConvolution(8, 16)])
        self.middle = DoubleConvolution(16, 32)
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)])
        self.join = nn.ModuleList([DoubleConvolution(32, 16), DoubleConvolution(16, 8)])
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
        logits: Tensor = self.head(x)
        return logits


def cut_out(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures of a disc and its mask."""
    x, y = discs(source, rows)
    return {"x": x, "y": y}


def dice_loss(model: Any, batch: Batch) -> Tensor:
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
        """Map pictures (B, 256) to logits of their pixels, and mean and log variance of the code (B, 8)."""
        features = self.encoder(x)
        mean, log_variance = self.mean(features), self.log_variance(features)
        drawn = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decoder(drawn), mean, log_variance


def flat_discs(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return discs as rows of 256 pixels from 0 to 1, each with its own grey level, so that no two pictures are equal."""
    grey = 0.7 + 0.3 * torch.rand(rows, 1, generator=source)
    return {"x": grey * discs(source, rows, size=16)[1].flatten(1)}


def evidence_bound(model: Any, batch: Batch) -> Tensor:
    """Return the negative evidence lower bound, in nats per picture."""
    logits, mean, log_variance = model(batch["x"])
    rebuilt = F.binary_cross_entropy_with_logits(logits.float(), batch["x"], reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
    return (rebuilt + divergence) / len(batch["x"])


class Byol(nn.Module):
    """Learns without labels: one half predicts what the other, a moving average of it, outputs for another view."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.teacher = self._encoder(), self._encoder().requires_grad_(requires_grad=False)
        self.predictor = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32))
        self.teacher.load_state_dict(self.online.state_dict())

    def _encoder(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 32),
        )

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the distance (B) of two views."""
        if self.training:
            with torch.no_grad():
                for kept, new in zip(self.teacher.parameters(), self.online.parameters(), strict=True):
                    kept.lerp_(new, 0.02)
        predicted, wanted = self.predictor(self.online(one)), self.teacher(other)
        return 2 - 2 * F.cosine_similarity(predicted, wanted.detach(), dim=1)


def two_views(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures twice, with different noise."""
    clean, _ = pictures(source, rows, noise=0.3)
    return {name: clean + 0.5 * torch.randn(clean.shape, generator=source) for name in ("one", "other")}


def byol_loss(model: Any, batch: Batch) -> Tensor:
    """Return the mean distance of the views."""
    loss: Tensor = model(batch["one"], batch["other"]).mean()
    return loss


class Denoiser(nn.Module):
    """Predicts the noise in a picture; every block starts as the identity, because its last convolution is zero."""

    def __init__(self, width: int = 24, depth: int = 3) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(depth)
        )
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d) and layer is not self.first:
                nn.init.zeros_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Map noisy pictures (B, 3, H, W) at times (B) to their noise."""
        angles = time[:, None] * 2.0 ** torch.arange(8)
        at = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x + at)
        noise: Tensor = self.last(x)
        return noise


def to_be_noised(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures, times and noise."""
    clean, _ = pictures(source, rows, size=16, noise=0.1)
    return {"x": clean, "time": torch.rand(rows, generator=source), "noise": torch.randn(clean.shape, generator=source)}


def denoising_loss(model: Any, batch: Batch) -> Tensor:
    """Return the mean squared error of the noise."""
    angle = batch["time"] * torch.pi / 2
    mixed = angle.cos()[:, None, None, None] * batch["x"] + angle.sin()[:, None, None, None] * batch["noise"]
    return F.mse_loss(model(mixed, batch["time"]).float(), batch["noise"])


class Gan(nn.Module):
    """A generator of small pictures, and a discriminator of real and generated ones."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(16, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Linear(64, 128),
            nn.BatchNorm1d(128),
            nn.ReLU(),
            nn.Linear(128, 256),
        )
        self.discriminator = nn.Sequential(nn.Linear(256, 64), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(64, 1))

    def forward(self, noise: Tensor) -> Tensor:
        """Map noise (B, 16) to the logits (B, 1) that the generated pictures are real."""
        logits: Tensor = self.discriminator(torch.tanh(self.generator(noise)))
        return logits


def real_pictures(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return masks of discs as rows of 256 pixels from -1 to 1, and noise."""
    return {"x": flat_discs(source, rows)["x"] * 2 - 1, "noise": torch.randn(rows, 16, generator=source)}


def generator_loss(model: Any, batch: Batch) -> Tensor:
    """Return the non-saturating loss of a generator (Goodfellow et al. 2014, https://arxiv.org/abs/1406.2661)."""
    return F.softplus(-model(batch["noise"])).mean()


def discriminator_loss(model: Any, batch: Batch) -> Tensor:
    """Return the binary cross entropy of real and generated pictures."""
    generated = torch.tanh(model.generator(batch["noise"])).detach()
    return F.softplus(-model.discriminator(batch["x"])).mean() + F.softplus(model.discriminator(generated)).mean()


class Mixer(nn.Module):
    """Patches of a picture, mixed over positions and over channels in turn, without attention."""

    def __init__(self, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.over_places = nn.ModuleList(self._part(64, 96) for _ in range(depth))
        self.over_channels = nn.ModuleList(self._part(width, 64) for _ in range(depth))
        self.first_norms, self.second_norms = (nn.ModuleList(nn.LayerNorm(width) for _ in range(depth)) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def _part(self, narrow: int, wide: int) -> nn.Module:
        return nn.Sequential(nn.Linear(narrow, wide), nn.GELU(), nn.Linear(wide, narrow))

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures (B, 3, 32, 32) to logits (B, 10)."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        for norm, places, other, channels in zip(
            self.first_norms, self.over_places, self.second_norms, self.over_channels, strict=True
        ):
            x = x + places(norm(x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(other(x))
        logits: Tensor = self.head(self.norm(x).mean(1))
        return logits


class Flow(nn.Module):
    """A normalizing flow of points: affine couplings of each half of the numbers by the other half."""

    def __init__(self, depth: int = 6) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(
            nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)) for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the negative log-likelihood (B) of points (B, 4) in nats; below zero where they are dense."""
        volume = torch.zeros(len(x))
        for coupling in self.couplings:
            still, moved = x.chunk(2, 1)
            shift, log_scale = coupling(still).chunk(2, 1)
            log_scale = torch.tanh(log_scale)
            x = torch.cat([moved * log_scale.exp() + shift, still], 1)
            volume = volume + log_scale.sum(1)
        return 0.5 * (x**2).sum(1) + 2 * math.log(2 * math.pi) - volume


def rings(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return points (rows, 4) on two narrow rings."""
    angle = torch.rand(rows, 2, generator=source) * 2 * math.pi
    points = torch.stack([angle.cos(), angle.sin()], 2) + 0.03 * torch.randn(rows, 2, 2, generator=source)
    return {"x": points.flatten(1)}


def negative_log_likelihood(model: Any, batch: Batch) -> Tensor:
    """Return the mean negative log-likelihood."""
    loss: Tensor = model(batch["x"]).mean()
    return loss


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
LOOP = Recipe(model=Byol, rows=two_views, loss=byol_loss, lr=1e-3, batch=64, train=1024)
FAMILIES = {
    "cnn": CNN,
    "mixer": Recipe(
        model=Mixer, rows=seen, loss=classified, lr=1e-3, weight_decay=0.01, schedule="cosine", train=1024, warmup=10
    ),
    "unet": replace(
        CNN,
        model=UNet,
        rows=cut_out,
        loss=dice_loss,
        through="lightning",
        optimizer="adam",
        lr=1e-3,
        weight_decay=0.0,
        schedule="constant",
        batch=8,
        train=256,
        held_out=32,
    ),
    "vae": replace(LOOP, model=Vae, rows=flat_discs, loss=evidence_bound, optimizer="adam", train=2048, long=True),
    "gan": replace(
        LOOP,
        model=Gan,
        rows=real_pictures,
        loss=generator_loss,
        optimizer="adam",
        betas=(0.5, 0.999),
        lr=2e-4,
        trained=lambda name: name.startswith("generator."),
        opponent=Opponent(discriminator_loss, "discriminator"),
        train=2048,
        held_out=0,
        long=True,
    ),
    "byol": LOOP,
    "diffusion": replace(LOOP, model=Denoiser, rows=to_be_noised, loss=denoising_loss, batch=16),
    "flow": replace(LOOP, model=Flow, rows=rings, loss=negative_log_likelihood, optimizer="adam", train=4096, long=True),
}
