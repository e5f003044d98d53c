"""Losses of adversarial networks in text lines: those of one side are averaged, and the training loss is the sum of both."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from ckaudit.contract.schema.loss_names import adversarial_sides
from ckaudit.importers.kinds_of_loss import adversarial_pair, have_adversarial_losses
from ckaudit.importers.names import list_names
from ckaudit.importers.tables.curves import take_adversarial_sum
from ckaudit.importers.tables.numbers import Numbers

Columns = dict[str, Numbers]
_MARKS = " .%[]"  # around a discriminator's accuracy, as in `acc.: 56.25%`
_ACCURACIES = frozenset({"acc", "accuracy"})


class AveragedSides(Struct, frozen=True):
    """The columns of a log, and the means of several losses of one side where the log has adversarial losses.

    Attributes:
        columns: The log's columns, and the means of several losses of one side, or of one term.
        parts: Catalogue names of the means of terms, by their keys.
        notes: Which losses each mean was taken of.
        used: Keys of the averaged columns.
    """

    columns: Columns
    parts: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    used: tuple[str, ...] = ()


def average_sides(columns: Columns) -> AveragedSides:
    """Return the columns with one loss for all generators, one for all discriminators, and one for each of their terms."""
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
    """Add the sum of two adversarial losses where there is no other training loss; return a note and their keys.

    Args:
        columns: Columns by catalogue name; changed in place.
        raw: The log's columns.
    """
    keys = list(raw)
    places = None if "train_loss_raw" in columns else adversarial_pair(keys)
    if places is None:
        return [], ()
    pair = keys[places.generator], keys[places.discriminator]
    return take_adversarial_sum(columns, pair, [raw[key] for key in pair]), pair


def discriminator_accuracies(keys: Iterable[str]) -> frozenset[str]:
    """Return the accuracies of a discriminator beside the loss of a generator; they are not scores of the trained model.

    >>> discriminator_accuracies(["d loss", "acc.", "g loss"]), discriminator_accuracies(["d loss", "acc."])
    (frozenset({'acc.'}), frozenset())
    """
    keys = list(keys)
    is_adversarial = have_adversarial_losses(keys)
    return frozenset(key for key in keys if is_adversarial and key.strip(_MARKS) in _ACCURACIES)


def _mean(columns: Sequence[Numbers]) -> Numbers:
    """Return the mean of columns where all of them are recorded."""
    known = np.logical_and.reduce([column.recorded for column in columns])
    return Numbers(np.where(known, np.mean([column.values for column in columns], axis=0), np.nan), known)
