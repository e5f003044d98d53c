"""Names under which programs log the terms of a loss whose curves show more than that of their sum.

The losses of a generator and a discriminator work against each other. The two terms of a variational autoencoder are the
reconstruction loss and the divergence of its code from the prior.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

LossPart = Literal["generator", "discriminator", "reconstruction", "kl"]

PAIRED_LOSS_TERMS: tuple[tuple[LossPart, LossPart], ...] = (("generator", "discriminator"), ("reconstruction", "kl"))
"""Terms that are read in pairs: opposing losses, and the two terms of a variational autoencoder."""

GENERATOR = re.compile(r"(?:loss_)?(?:g|gen|generator)_(?:adv_|gan_)?loss|loss_(?:g|gen|generator)(?:_gan)?|gen|generator|g_gan")
DISCRIMINATOR = re.compile(
    r"(?:loss_)?(?:(?:mean|avg)_)?(?:d|dis|disc|discriminator|critic)_(?:adv_)?loss|loss_(?:d|dis|disc|discriminator|critic)"
    r"|disc|discriminator|critic|d_real_fake"
)
OF_THE_WHOLE_GAN = "gan_loss"
"""The loss of a generator in Keras, where it is trained as a part of the whole; beside a loss of its own name, a term of that."""

_RECONSTRUCTION = r"recons?(?:truction)?"
_DIVERGENCE = r"kld?|kl_div(?:ergence)?"
_PARTS: dict[LossPart, re.Pattern[str]] = {
    "generator": GENERATOR,
    "discriminator": DISCRIMINATOR,
    "reconstruction": re.compile(rf"{_RECONSTRUCTION}(?:_(?:loss|error|nll|mse|bce|nats))?|loss_{_RECONSTRUCTION}"),
    "kl": re.compile(rf"(?:{_DIVERGENCE})(?:_(?:loss|nats|term))?|loss_(?:{_DIVERGENCE})"),
}
_ONE_OF_SEVERAL = re.compile(r"(.+?)(?:_(ab|ba|[abxy]|real|fake)|_?(\d{1,2}))((?:_loss)?)")
_HALVES = {"real", "fake"}
_ADVERSARIAL_TERM = re.compile(
    r"(?:loss_)?(cyc(?:le)?|idt|identity|rec(?:on(?:s(?:truction)?)?)?|percep(?:tual)?|content|style)(?:_loss)?"
)
_OF_TRAINING = re.compile(r"(?:train|training|tr)_(?=.)|_(?:step|train|training)$")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NO_LETTERS = re.compile(r"[^a-z0-9]+")


class AdversarialSides(Struct, frozen=True):
    """The names of opposing losses, if one side has several of them.

    Attributes:
        generators: Losses of generators.
        discriminators: Losses of discriminators, or the two halves of one loss, on real and on generated rows.
        terms: Other terms with the same number of losses, by their name.
    """

    generators: tuple[str, ...]
    discriminators: tuple[str, ...]
    terms: Mapping[str, tuple[str, ...]]


def adversarial_sides(names: Iterable[str]) -> AdversarialSides | None:
    """Return the losses of several generators or discriminators that differ by a letter or a number; None if there are none.

    Names as short as `D_A` count only if the other side has as many, and `D_real` only beside `G_GAN`: otherwise it may be a
    discriminator's output, which is not a loss.

    >>> adversarial_sides(["D_A", "G_A", "cycle_A", "D_B", "G_B", "cycle_B"])
    AdversarialSides(generators=('G_A', 'G_B'), discriminators=('D_A', 'D_B'), terms={'cycle': ('cycle_A', 'cycle_B')})
    >>> adversarial_sides(["G_GAN", "G_L1", "D_real", "D_fake"])
    AdversarialSides(generators=('G_GAN',), discriminators=('D_fake', 'D_real'), terms={})
    >>> adversarial_sides(["D_real", "D_fake"]), adversarial_sides(["g_1", "g_2", "d_1"]), adversarial_sides(["g_loss", "d_loss"])
    (None, None, None)
    """
    forms = {name: _form(name) for name in names}
    several = _several(forms)
    generators = _side(forms, several, GENERATOR, "g")
    discriminators = _side(forms, several, DISCRIMINATOR, "d")
    if not generators or not discriminators or len(generators) == len(discriminators) == 1:
        return None
    short = several.get("g") == generators, several.get("d") == discriminators
    is_pix2pix = short[1] and set(discriminators) == _HALVES and "g_gan" in forms.values()
    if any(short) and not is_pix2pix and not (all(short) and set(generators) == set(discriminators)):
        return None
    marks = set(generators)
    terms = {
        match[1]: tuple(own.values())
        for stem, own in several.items()
        if (match := _ADVERSARIAL_TERM.fullmatch(stem)) and set(own) == marks
    }
    return AdversarialSides(tuple(generators.values()), tuple(discriminators.values()), terms)


def may_be_adversarial(name: str) -> bool:
    """Tell whether a name may be that of one of opposing losses, or of one of their terms."""
    form = _form(name)
    match = _ONE_OF_SEVERAL.fullmatch(form)
    stem = match[1] + match[4] if match else form
    patterns = (GENERATOR, DISCRIMINATOR, _ADVERSARIAL_TERM)
    return stem in ("g", "d", OF_THE_WHOLE_GAN) or any(pattern.fullmatch(stem) for pattern in patterns)


def _several(forms: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the names that differ only by a letter or a number, keyed by that, for each shared name."""
    alike: dict[str, dict[str, str]] = {}
    for name, form in forms.items():
        if match := _ONE_OF_SEVERAL.fullmatch(form):
            alike.setdefault(match[1] + match[4], {})[match[2] or match[3]] = name
    return {stem: dict(sorted(names.items())) for stem, names in alike.items() if len(names) > 1}


def _side(
    forms: Mapping[str, str], several: Mapping[str, dict[str, str]], pattern: re.Pattern[str], short: str
) -> dict[str, str]:
    """Return the names of one side by what distinguishes them; a single name for all takes precedence over several."""
    if whole := [name for name, form in forms.items() if pattern.fullmatch(form)]:
        return {"": whole[0]} if len(whole) == 1 else {}
    found = [names for stem, names in several.items() if stem == short or pattern.fullmatch(stem)]
    return found[0] if len(found) == 1 else {}


def loss_part_of(name: str) -> LossPart | None:
    """Return the term of a training loss that a name stands for; None if it is none of these.

    >>> loss_part_of("Loss/G/loss"), loss_part_of("Loss/D/reg")
    ('generator', None)
    >>> loss_part_of("Loss_D"), loss_part_of("train/kld_loss"), loss_part_of("recon_step"), loss_part_of("val_kl")
    ('discriminator', 'kl', 'reconstruction', None)
    >>> loss_part_of("recon_nll"), loss_part_of("KL nats"), loss_part_of("approx_kl"), loss_part_of("box_loss")
    ('reconstruction', 'kl', None, None)
    """
    form = _form(name)
    return next((part for part, pattern in _PARTS.items() if pattern.fullmatch(form)), None)


def _form(name: str) -> str:
    return _OF_TRAINING.sub("", _NO_LETTERS.sub("_", _CAMEL.sub("_", name).lower()).strip("_"))
