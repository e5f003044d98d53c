"""Losses of adversarial networks in lines of text: several of one side become their mean, the sum of both sides the loss."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from ckaudit.contract.schema.loss_names import adversarial_sides
from ckaudit.importers.kinds_of_loss import adversarial_pair, have_adversarial_losses
from ckaudit.importers.names import list_names
from ckaudit.importers.tables.curves import take_adversarial_sum
from ckaudit.importers.tables.numbers import Numbers

Columns = dict[str, Numbers]
_MARKS = " .%[]"  # around the accuracy of a discriminator, as in `acc.: 56.25%`
_ACCURACIES = frozenset({"acc", "accuracy"})


class AveragedSides(Struct, frozen=True):
    """The columns of a log, with the mean of several losses of one side where it has some that play against each other.

    Attributes:
        columns: Those of the log, and the means of several of one side, or of one term.
        parts: Catalogue names of the means of terms, by their keys.
        notes: What is the mean of what.
        used: Keys that a mean was taken of.
    """

    columns: Columns
    parts: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    used: tuple[str, ...] = ()


def average_sides(columns: Columns) -> AveragedSides:
    """Return the columns with one loss of all generators, one of all discriminators, and one of each term of theirs."""
    sides = adversarial_sides(columns)
    if sides is None:
        return AveragedSides(columns)
    keys_by_mean = {"g_loss": sides.generators, "d_loss": sides.discriminators, **sides.terms}
    several = {key: keys for key, keys in keys_by_mean.items() if len(keys) > 1 and key not in columns}
    means = {key: _mean([columns[name] for name in keys]) for key, keys in several.items()}
    of_what = "; ".join(f"{key} of {list_names(keys)}" for key, keys in several.items())
    parts = {key: f"loss_part/{key}" for key in several if key in sides.terms}
    note = f"several losses of one side are their mean: {of_what}"
    used = tuple(name for keys in several.values() for name in keys)
    return AveragedSides({**columns, **means}, parts, [note] if several else [], used)


def take_adversarial_pair(columns: Columns, raw: Columns) -> tuple[list[str], tuple[str, ...]]:
    """Take the sum of two losses that play against each other where there is no other training loss; return a note, and the keys.

    Args:
        columns: Columns by catalogue name; changed in place.
        raw: Those of the log.
    """
    keys = list(raw)
    places = None if "train_loss_raw" in columns else adversarial_pair(keys)
    if places is None:
        return [], ()
    pair = keys[places.generator], keys[places.discriminator]
    return take_adversarial_sum(columns, pair, [raw[key] for key in pair]), pair


def discriminator_accuracies(keys: Iterable[str]) -> frozenset[str]:
    """Return the accuracies that are a discriminator's beside the loss of a generator: they are no score of what is trained.

    >>> discriminator_accuracies(["d loss", "acc.", "g loss"]), discriminator_accuracies(["d loss", "acc."])
    (frozenset({'acc.'}), frozenset())
    """
    keys = list(keys)
    is_adversarial = have_adversarial_losses(keys)
    return frozenset(key for key in keys if is_adversarial and key.strip(_MARKS) in _ACCURACIES)


def _mean(columns: Sequence[Numbers]) -> Numbers:
    """Return the mean of columns where all of them were recorded."""
    known = np.logical_and.reduce([column.recorded for column in columns])
    return Numbers(np.where(known, np.mean([column.values for column in columns], axis=0), np.nan), known)
