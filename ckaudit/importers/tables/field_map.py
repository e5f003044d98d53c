"""Members of JSON objects by catalogue name: a known writer's members from its own table, others by their common names."""

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from ckaudit.contract.schema.loss_names import loss_part_of
from ckaudit.importers.kinds_of_loss import adversarial_pair, logs_rollouts, loss_parts, may_be_a_cost, may_be_a_loss, only_loss
from ckaudit.importers.layers.names import place_of
from ckaudit.importers.names import (
    are_rewards_alone,
    catalogue_name,
    factor_of,
    is_test_loss,
    may_be_a_reward,
    only_test_loss,
    policy_losses,
    resolve_columns,
    reward_columns,
    writable,
)
from ckaudit.importers.notes_on_names import note_on_other_choices, notes_on_left_out
from ckaudit.importers.notes_on_names import note_on_taken as taken_note
from ckaudit.importers.tables.curves import broken_losses, drop_placeholders, take_adversarial_sum
from ckaudit.importers.tables.data_loading_time import may_time_a_step, named_times, take_times
from ckaudit.importers.tables.jsonrows import JsonRows
from ckaudit.importers.tables.numbers import Numbers, fullest_column

WRAPPERS = ("metrics/", "data/", "scalars/", "log/", "logs/")
SCALARS_ONLY = "the log holds scalars only: weights, gradients, activations and attention of single tensors were not recorded"


class Mapped(Struct, frozen=True):
    """The meaning of a writer's member.

    Attributes:
        name: Its catalogue name; empty: it has none, whatever its name suggests.
        factor: Converts its values to the catalogue's unit.
    """

    name: str
    factor: float = 1.0


Names = Mapping[str, Mapped]


class MappedSeries(Struct, frozen=True):
    """The series of a log.

    Attributes:
        series: By catalogue name; includes `step` where a member holds it.
        keys: The member that each series came from.
        notes: What was taken, and what was left out.
        layers: Statistics of single tensors and layers, by their own names without a wrapper's.
    """

    series: dict[str, Numbers]
    keys: Mapping[str, str]
    notes: list[str]
    layers: dict[str, Numbers]


def mapped_keys(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the members that the user mapped, as given and with slashes for dots, each with the user's spelling."""
    return {spelt: key for key in columns.values() for spelt in (key, key.replace(".", "/"))}


def is_wanted(columns: Mapping[str, str], names: Names) -> Callable[[str], bool]:
    """Return a function that tells whether a member's numbers are needed."""
    mapped = mapped_keys(columns)
    return lambda key: (
        key in mapped
        or bool(name_of(key, names))
        or (key not in names and is_test_loss(key))
        or is_of_layer(key, names)
        or (key not in names and loss_part_of(key) is not None)
        or (key not in names and (may_time_a_step(key) or may_be_a_loss(key) or may_be_a_cost(key) or may_be_a_reward(key)))
    )


def is_of_layer(key: str, names: Names) -> bool:
    """Tell whether a member is a statistic of one tensor or layer."""
    return key not in names and place_of(_unwrapped(key)) is not None


def _unwrapped(key: str) -> str:
    return next((key.removeprefix(wrapper) for wrapper in WRAPPERS if key.startswith(wrapper)), key)


def name_of(key: str, names: Names) -> str:
    """Return the catalogue name of a member, with or without a wrapper such as "metrics/"; empty: there is none."""
    if key in names:
        return names[key].name
    return writable(catalogue_name(key) or catalogue_name(_unwrapped(key)) or "")


def map_members(rows: JsonRows, columns: Mapping[str, str], names: Names, *, silent: Collection[str] = ()) -> MappedSeries:
    """Return the series of a log.

    Args:
        rows: The entries.
        columns: Members that the user mapped, by catalogue name.
        names: Meaning of the writer's members.
        silent: Members that are left out without a note.

    Raises:
        UsageError: Where `columns` names something that does not exist.
    """
    mapped = _resolved(rows, columns)
    choices: dict[str, list[str]] = {}
    for key in rows.keys:
        if key not in mapped.values() and key in rows.columns and (name := name_of(key, names)):
            choices.setdefault(name, []).append(key)
    _settle_losses(choices, rows, mapped.values())
    numeric = [key for key in rows.keys if key in rows.columns and key not in names]
    choices |= {name: [numeric[position]] for name, position in loss_parts(numeric).items()}
    choices |= {name: [key] for name, key in mapped.items()}
    keys: dict[str, str] = {}
    series: dict[str, Numbers] = {}
    for name, candidates in choices.items():
        key = candidates[fullest_column(range(len(candidates)), {at: rows.columns[key] for at, key in enumerate(candidates)})]
        factor = names[key].factor if key in names and key not in mapped.values() else factor_of(key)
        values = rows.columns[key]
        keys[name], series[name] = key, values if factor == 1 else values.times(factor)
    notes = drop_placeholders(series, keys)
    adversaries = adversarial_pair(rows.keys)
    if adversaries and "train_loss_raw" not in series:
        pair = rows.keys[adversaries.generator], rows.keys[adversaries.discriminator]
        notes += take_adversarial_sum(series, pair, [rows.column(key) for key in pair])
        silent = {*silent, *pair}
    offered = {key for candidates in choices.values() for key in candidates}
    times = named_times([key for key in rows.columns if key not in names and key not in mapped.values()])
    if times and "dataloader_stall_frac" not in series and (time_notes := take_times(series, times, rows.columns)):
        notes += time_notes
        silent = {*silent, times.data, times.whole}
    layers = {_unwrapped(key): rows.columns[key] for key in rows.columns if key not in offered and is_of_layer(key, names)}
    known = {*silent, *names, *(key for key in rows.keys if is_of_layer(key, names))}
    return MappedSeries(series, keys, [*_notes(rows, keys, choices, known), *notes], layers)


def _settle_losses(choices: dict[str, list[str]], rows: JsonRows, mapped: Collection[str]) -> None:
    """Remove a policy's loss from the choices unless it is broken, and add the only loss in the log, whatever its name."""
    free = [key for key in rows.keys if key in rows.columns and key not in mapped]
    if (of_rollouts := logs_rollouts(rows.keys)) or are_rewards_alone(rows.keys, choices):
        if of_rollouts:
            choices.pop("train_loss_raw", None)
        rewards = reward_columns(rows.keys, choices)
        known = {name: [key for position in places if (key := rows.keys[position]) in free] for name, places in rewards.items()}
        choices |= {name: keys for name, keys in known.items() if keys}
    elif "train_loss_raw" not in choices and (lone := only_loss(free)):
        choices["train_loss_raw"] = [free[lone.train]]
        if lone.val is not None:
            choices.setdefault("val_loss", [free[lone.val]])
    if "val_loss" not in choices and (tested := only_test_loss(free)) is not None:
        choices["val_loss"] = [free[tested]]
    of_policy = [key for position in policy_losses(rows.keys) if (key := rows.keys[position]) in free]
    broken = [of_policy[place] for place in broken_losses([rows.columns[key] for key in of_policy])]
    if broken:
        choices.setdefault("train_loss_raw", broken)


def _resolved(rows: JsonRows, columns: Mapping[str, str]) -> dict[str, str]:
    spelt = {name: key if key in rows.keys else key.replace(".", "/") for name, key in columns.items()}
    for name, key in spelt.items():
        if key not in rows.keys:
            spelt[name] = columns[name]
    return {name: rows.keys[position] for name, position in resolve_columns(spelt, rows.keys).items()}


def _notes(rows: JsonRows, keys: Mapping[str, str], choices: Mapping[str, list[str]], mapped: Collection[str]) -> list[str]:
    notes = taken_note(keys)
    for name, candidates in choices.items():
        if len(candidates) > 1:
            notes.append(note_on_other_choices(name, [key for key in candidates if key != keys[name]]))
    offered = {key for candidates in choices.values() for key in candidates}
    return notes + notes_on_left_out([key for key in rows.keys if key not in offered and key not in mapped], offered)
