"""The columns of a black box as channels, and how often a batch came back in it."""

import numpy as np
from msgspec import UNSET

from ckaudit.audit.autopsy.ranges import Channel
from ckaudit.audit.autopsy.result import Kind
from ckaudit.contract.schema.checkpoint import History
from ckaudit.contract.schema.numbers import Number, to_word
from ckaudit.run.series import Mask


def channels(history: History) -> list[Channel]:
    """Return loss, learning rate, global gradient norm, and both norms of every tensor, as far as recorded.

    A column of another length than the steps says of no step what it was there: `validate` tells of it.
    """
    count = len(history.steps)
    found = [_channel("loss", "", history.loss, count), _channel("learning_rate", "", history.learning_rate, count)]
    gradients = {} if history.gradient_norms is UNSET else history.gradient_norms
    updates = {} if history.update_norms is UNSET else history.update_norms
    parts = [_channel("gradient", name, column, count) for name, column in gradients.items()]
    found += [_global(parts, count), *parts, *(_channel("update", name, column, count) for name, column in updates.items())]
    return [channel for channel in found if channel.recorded.any()]


def _channel(kind: Kind, name: str, column: object, count: int) -> Channel:
    words: tuple[Number | None, ...] = tuple(column) if isinstance(column, list) and len(column) == count else (None,) * count
    values = np.array([np.nan if word is None else float(word) for word in words])
    recorded = np.array([word is not None for word in words], bool)
    return Channel(kind=kind, name=name, values=values, recorded=recorded, words=words)


def _global(parts: list[Channel], count: int) -> Channel:
    """Return the norm of all gradients together, at the steps where every tensor that ever was recorded is."""
    parts = [part for part in parts if part.recorded.any()]
    if not parts:
        return _channel("gradient_norm", "", None, count)
    values = np.array([part.values for part in parts])  # (P, K)
    whole: Mask = np.all(np.array([part.recorded for part in parts]), axis=0)
    with np.errstate(over="ignore"):
        norm = np.where(whole, np.sqrt(np.square(values).sum(axis=0)), np.nan)
    words = tuple(to_word(value) if known else None for value, known in zip(norm.tolist(), whole.tolist(), strict=True))
    return Channel(kind="gradient_norm", name="", values=norm, recorded=whole, words=words)


def distances(history: History) -> list[int | None]:
    """Return of each step how many steps ago its batch was seen before; None: it was not, or nobody hashed it."""
    if history.batch_hash is UNSET or len(history.batch_hash) != len(history.steps):
        return [None] * len(history.steps)
    seen: dict[str, int] = {}
    found: list[int | None] = []
    for step, word in zip(history.steps, history.batch_hash, strict=True):
        found.append(step - seen[word] if word in seen else None)
        if word is not None:
            seen[word] = step
    return found


def repeats(distances: list[int | None], *, warned: int = 8) -> list[int]:
    """Return the rows at which batches come back, where that began after `warned` steps in which none did.

    Where the first to come back is the oldest of the box, and each after it has come as far, an epoch began again.

    >>> repeats([None] * 10 + [1, 1]), repeats([None] * 9 + [9, 9])
    ([10, 11], [])
    """
    rows = [row for row, each in enumerate(distances) if each is not None]
    if not rows or rows[0] < warned or {distances[row] for row in rows} == {rows[0]}:
        return []
    return rows
