"""The names by which programs log the terms of a loss whose course says more than that of their sum.

A generator's loss and that of what judges its products play against each other. The two terms of a variational autoencoder are
what it costs to restore the input, and how far its code is from what would be there without any input.
"""

import re
from typing import Literal

LossPart = Literal["generator", "discriminator", "reconstruction", "kl"]

PAIRED_LOSS_TERMS: tuple[tuple[LossPart, LossPart], ...] = (("generator", "discriminator"), ("reconstruction", "kl"))
"""Terms that are read in pairs: what plays against each other, and the two terms of a variational autoencoder."""

GENERATOR = re.compile(r"(?:loss_)?(?:g|gen|generator)_(?:adv_|gan_)?loss|loss_(?:g|gen|generator)(?:_gan)?|gen|generator|g_gan")
DISCRIMINATOR = re.compile(
    r"(?:loss_)?(?:d|dis|disc|discriminator|critic)_(?:adv_)?loss|loss_(?:d|dis|disc|discriminator|critic)"
    r"|disc|discriminator|critic"
)
_RECONSTRUCTION = r"recons?(?:truction)?"
_DIVERGENCE = r"kld?|kl_div(?:ergence)?"
_PARTS: dict[LossPart, re.Pattern[str]] = {
    "generator": GENERATOR,
    "discriminator": DISCRIMINATOR,
    "reconstruction": re.compile(rf"{_RECONSTRUCTION}(?:_(?:loss|error|nll|mse|bce|nats))?|loss_{_RECONSTRUCTION}"),
    "kl": re.compile(rf"(?:{_DIVERGENCE})(?:_(?:loss|nats|term))?|loss_(?:{_DIVERGENCE})"),
}
_OF_TRAINING = re.compile(r"(?:train|training|tr)_(?=.)|_(?:step|train|training)$")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NO_LETTERS = re.compile(r"[^a-z0-9]+")


def loss_part_of(name: str) -> LossPart | None:
    """Return which term of a training loss has a name, None where it is none of these.

    >>> loss_part_of("Loss/G/loss"), loss_part_of("Loss/D/reg")
    ('generator', None)
    >>> loss_part_of("Loss_D"), loss_part_of("train/kld_loss"), loss_part_of("recon_step"), loss_part_of("val_kl")
    ('discriminator', 'kl', 'reconstruction', None)
    >>> loss_part_of("recon_nll"), loss_part_of("KL nats"), loss_part_of("approx_kl"), loss_part_of("box_loss")
    ('reconstruction', 'kl', None, None)
    """
    form = _OF_TRAINING.sub("", _NO_LETTERS.sub("_", _CAMEL.sub("_", name).lower()).strip("_"))
    return next((part for part, pattern in _PARTS.items() if pattern.fullmatch(form)), None)
