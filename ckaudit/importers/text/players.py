"""Losses in lines of text that play against each other: several of one side become their mean, and the sum of both the loss."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from ckaudit.contract.schema.loss_names import players_of
from ckaudit.importers.kinds_of_loss import adversarial_losses
from ckaudit.importers.names import list_names
from ckaudit.importers.tables.curves import take_sum
from ckaudit.importers.tables.numbers import Numbers

Columns = dict[str, Numbers]
_MARKS = " .%[]"  # around the accuracy of a discriminator, as in `acc.: 56.25%`
_ACCURACIES = frozenset({"acc", "accuracy"})


class Game(Struct, frozen=True):
    """The columns of a log whose losses may play against each other.

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


def game_of(columns: Columns) -> Game:
    """Return the columns with one loss of all generators, one of all discriminators, and one of each term of theirs."""
    players = players_of(columns)
    if players is None:
        return Game(columns)
    sides = {"g_loss": players.generators, "d_loss": players.discriminators, **players.terms}
    several = {key: keys for key, keys in sides.items() if len(keys) > 1 and key not in columns}
    means = {key: _mean([columns[name] for name in keys]) for key, keys in several.items()}
    of_what = "; ".join(f"{key} of {list_names(keys)}" for key, keys in several.items())
    parts = {key: f"loss_part/{key}" for key in several if key in players.terms}
    note = f"several losses of one side are their mean: {of_what}"
    return Game({**columns, **means}, parts, [note] if several else [], tuple(name for keys in several.values() for name in keys))


def take_game(columns: Columns, raw: Columns) -> tuple[list[str], tuple[str, ...]]:
    """Take the sum of two losses that play against each other where there is no other training loss; return a note, and the keys.

    Args:
        columns: Columns by catalogue name; changed in place.
        raw: Those of the log.
    """
    keys = list(raw)
    against = None if "train_loss_raw" in columns else adversarial_losses(keys)
    if against is None:
        return [], ()
    pair = keys[against.generator], keys[against.discriminator]
    return take_sum(columns, pair, [raw[key] for key in pair]), pair


def accuracies_of_judges(keys: Iterable[str]) -> frozenset[str]:
    """Return the accuracies that are a discriminator's beside the loss of a generator: they are no score of what is trained.

    >>> accuracies_of_judges(["d loss", "acc.", "g loss"]), accuracies_of_judges(["d loss", "acc."])
    (frozenset({'acc.'}), frozenset())
    """
    keys = list(keys)
    against = adversarial_losses(keys) is not None or players_of(keys) is not None
    return frozenset(key for key in keys if against and key.strip(_MARKS) in _ACCURACIES)


def _mean(columns: Sequence[Numbers]) -> Numbers:
    """Return the mean of columns where all of them were recorded."""
    known = np.logical_and.reduce([column.recorded for column in columns])
    return Numbers(np.where(known, np.mean([column.values for column in columns], axis=0), np.nan), known)
