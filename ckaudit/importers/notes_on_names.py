"""Notes on a log's own names: which were taken for which catalogue names, which were left out, and which options take them."""

from collections.abc import Iterable, Mapping, Sequence
from shlex import quote

from ckaudit.importers.kinds_of_loss import (
    adversarial_pair,
    held_out_twin,
    is_of_policy,
    logs_rollouts,
    looks_like_a_loss,
    train_and_val_columns,
)
from ckaudit.importers.names import SLICE, catalogue_name, is_named_like_a_score, list_names, policy_losses, shorten_name


def note_on_taken(chosen: Mapping[str, str], *, many: str = "series") -> list[str]:
    """Return a note on the log's own name that was taken for each catalogue name; empty where none was.

    Args:
        chosen: The log's own name by catalogue name.
        many: The plural of the kind of things that have the log's names.

    >>> note_on_taken({"val_loss": "eval", "slice_val_loss/a": "a", "slice_val_loss/b": "b"}, many="columns")
    ['taken: val_loss from eval, 2 columns of slice_val_loss from a, b']
    """
    slices = [logged for name, logged in chosen.items() if name.startswith(SLICE)]
    pairs = [f"{name} from {shorten_name(logged)}" for name, logged in chosen.items() if not name.startswith(SLICE)]
    if slices:
        pairs.append(f"{len(slices)} {many} of slice_val_loss from {list_names(slices, max_names=2)}")
    return [f"taken: {', '.join(pairs)}"] if pairs else []


def note_on_other_choices(name: str, others: Sequence[str]) -> str:
    """Return a note on the other columns that could be taken for a catalogue name."""
    return f"{name} could also be {list_names(others)}, which holds no more values; --map decides otherwise"


def notes_on_left_out(names: Sequence[str], taken: Iterable[str] = ()) -> list[str]:
    """Return notes on the names that were left out; empty where none was.

    Args:
        names: The names that were left out.
        taken: The names that were taken; rewards among them show that a loss is a policy's.
    """
    together = [*names, *taken]
    positions = {position for position in policy_losses(together) if position < len(names)}
    notes = policy_note(names, [names[position] for position in sorted(positions)])
    names = [name for position, name in enumerate(names) if position not in positions]
    if not names:
        return notes
    has_loss = any(catalogue_name(name) == "train_loss_raw" for name in together)
    offer = "" if has_loss or logs_rollouts(together) else option_for_training_loss(names)
    return [*notes, f"left out, because no common name says what they are: {list_names(names)}{'; ' if offer else ''}{offer}"]


def policy_note(names: Sequence[str], losses: Sequence[str] | None = None) -> list[str]:
    """Return a note on a policy's losses among names, with the option that takes one that may be a whole loss.

    Args:
        names: All logged names.
        losses: The policy's losses, where they are known.

    >>> print(*policy_note(["policy_loss", "value_loss"]))
    policy_loss, value_loss were left out: they are losses of a policy, whose data and targets change with it
    """
    losses = [names[position] for position in policy_losses(names)] if losses is None else losses
    if not losses:
        return []
    whole = next((name for name in losses if not is_of_policy(name)), "")
    beside = "beside rewards of rollouts " if catalogue_name(whole) else ""
    offer = f"; --map {quote(f'loss={whole}')} takes it all the same" if whole else ""
    is_one = len(losses) == 1
    was, are = ("was", "it is the loss") if is_one else ("were", "they are losses")
    return [f"{list_names(losses)} {was} left out: {beside}{are} of a policy, whose data and targets change with it{offer}"]


def option_for_training_loss(names: Sequence[str]) -> str:
    """Return the option that takes the first name that may be the training loss; empty where none may be."""
    adversaries = adversarial_pair(names)
    apart = () if adversaries is None else (names[adversaries.generator], names[adversaries.discriminator])
    losses = [name for name in names if looks_like_a_loss(name) and name not in apart]
    pair = (losses[0], held_out_twin(losses[0], names)) if losses else train_and_val_columns(names)
    if pair is None:
        return ""
    loss, twin = pair
    beside = f" --map {quote(f'val_loss={twin}')}" if twin else ""
    also = f", {shorten_name(twin)} for that of validation" if twin else ""
    return f"--map {quote(f'loss={loss}')}{beside} would take {shorten_name(loss)} for the training loss{also}"


def _offer_of_numbered(names: Sequence[str]) -> str:
    """Return the option that takes the first of several losses that differ only by a number; empty where there are none.

    >>> print(_offer_of_numbered(["epoch", "loss0", "loss1", "acc0"]))
    --map loss=loss0 would take loss0 for the training loss; nothing tells which of loss0, loss1 is that
    """
    bare = {name: name.rstrip("0123456789").rstrip("_- ") for name in names}
    losses = [name for name, word in bare.items() if word != name and looks_like_a_loss(word)]
    if len(losses) < 2:
        return ""
    first = losses[0]
    option = f"--map {quote(f'loss={first}')} would take {shorten_name(first)} for the training loss"
    return f"{option}; nothing tells which of {list_names(losses)} is that"


def hint_on_unknown_names(names: Sequence[str], what: str) -> str:
    """Return advice where no name is known: take a possible loss, log one beside scores, or name columns.

    >>> hint_on_unknown_names(["epoch", "acc"], "COLUMN").partition(":")[0]
    'acc is a score, and no check judges how a training goes by scores alone'
    """
    scores = [name for name in names if is_named_like_a_score(name)]
    if offer := option_for_training_loss(names) or _offer_of_numbered(names):
        return offer
    if not scores:
        return f"Name them, as in --map loss={what} --map step={what}."
    are = "is a score" if len(scores) == 1 else "are scores"
    alone = f"{list_names(scores)} {are}, and no check judges how a training goes by scores alone"
    return f"{alone}: log the training loss beside them, or name it with --map loss={what}."
