"""What is said aloud of the names in a log: which were taken for what, which could have been meant, which were left out."""

from collections.abc import Mapping, Sequence
from shlex import quote

from ckaudit.importers.names import SLICE, listed, looks_like_a_loss, short


def taken(chosen: Mapping[str, str], *, many: str = "series") -> list[str]:
    """Say which of the log's own names was taken for each catalogue name; nothing where none was.

    Args:
        chosen: The log's own name by catalogue name.
        many: What several of them are called.

    >>> taken({"val_loss": "eval", "slice_val_loss/a": "a", "slice_val_loss/b": "b"}, many="columns")
    ['taken: val_loss from eval, 2 columns of slice_val_loss from a, b']
    """
    slices = [own for name, own in chosen.items() if name.startswith(SLICE)]
    pairs = [f"{name} from {short(own)}" for name, own in chosen.items() if not name.startswith(SLICE)]
    if slices:
        pairs.append(f"{len(slices)} {many} of slice_val_loss from {listed(slices, max_names=2)}")
    return [f"taken: {', '.join(pairs)}"] if pairs else []


def could_be(name: str, others: Sequence[str]) -> str:
    """Say what else could have been taken for a catalogue name."""
    return f"{name} could also be {listed(others)}, which holds no more values; --map decides otherwise"


def left_out(names: Sequence[str]) -> list[str]:
    """Say what was left out; nothing where nothing was."""
    if not names:
        return []
    offer = offer_of(names)
    return [f"left out, because no common name says what they are: {listed(names)}{'; ' if offer else ''}{offer}"]


def offer_of(names: Sequence[str]) -> str:
    """Say which option takes the first name that may well be the training loss; empty where none may."""
    losses = [name for name in names if looks_like_a_loss(name)]
    return f"--map {quote(f'loss={losses[0]}')} would take {short(losses[0])} for the training loss" if losses else ""
