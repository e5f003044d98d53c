"""Columns of a text log with catalogue names: which key is the loss, which a policy's reward, and which are left out."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ckaudit.contract.schema.loss_names import may_be_adversarial
from ckaudit.contract.schema.manifest import StepUnit
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import logs_rollouts, loss_parts, only_loss
from ckaudit.importers.names import (
    are_rewards_alone,
    factor_of,
    list_names,
    may_be_a_reward,
    only_test_loss,
    policy_losses,
    reward_columns,
    shorten_name,
)
from ckaudit.importers.notes_on_names import policy_note
from ckaudit.importers.tables.data_loading_time import named_times, take_times
from ckaudit.importers.tables.numbers import Numbers, fill_missing
from ckaudit.importers.text.adversarial_losses import average_sides, discriminator_accuracies, take_adversarial_pair
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_reader import LogContent, RunFact, StepLines
from ckaudit.importers.text.line_values import (
    Columns,
    is_seconds_per_step,
    is_steps_per_second,
    is_wanted,
    may_be_of_a_loss,
    name_of,
)
from ckaudit.importers.text.log import Format, NamedLines, no_run_facts, parsed_dialect, read_scanned

_OF_TRAINING = re.compile(r"(?<![a-z])(?:tr|trn|train|training)(?![a-z])")


def read_named_lines(
    source: Source,
    columns: Mapping[str, str],
    name: str,
    rows: StepLines,
    *,
    notes: Sequence[str] = (),
    left_out: Sequence[str] = (),
    step_unit: StepUnit | UnsetType = UNSET,
) -> list[Imported]:
    """Return the runs of a log from its lines, where the log has no other facts about its runs.

    Args:
        source: The log.
        columns: Catalogue names of the keys that the user named.
        name: The name of the format.
        rows: The lines, with their columns by key.
        notes: How the lines were obtained.
        left_out: Keys that are not read.
        step_unit: The unit of a step, if it is not an update.

    Raises:
        UnreadableError: Where no line has a value.
        UsageError: Where `columns` names a key that no line holds.
    """
    log = LogContent(rows, [], error_lines(source.data), source.line_count, [], [*left_out])

    def meaning(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
        return replace(named_lines(rows, mapped, notes), step_unit=step_unit)

    return read_scanned(log, source, columns, Format(parsed_dialect(name, is_wanted), meaning, no_run_facts))


def named_lines(rows: StepLines, mapped: Mapping[str, str], notes: Sequence[str]) -> NamedLines:
    """Give the columns of a log without units and clocks their catalogue names.

    Args:
        rows: The lines, with their columns by key.
        mapped: Catalogue name of each key that the user named.
        notes: How the lines were obtained.
    """
    columns: Columns = {}
    taken = []
    averaged = average_sides(rows.columns)
    rows = replace(rows, columns=averaged.columns)
    parts = {key: name for name, key in parts_of(rows.columns).items() if name not in mapped.values()} | {**averaged.parts}
    mapped = {**parts, **with_reward(rows.columns, with_only_loss(rows.columns, with_test_loss(rows.columns, mapped)))}
    of_policy = losses_of_policy(rows.columns, mapped)
    scores = scores_to_leave_out(rows.columns)
    doubled = _beside_training_loss(rows, {*mapped, *scores})
    again = _beside_held_out_loss(rows, {*mapped, *scores})
    hidden = {*of_policy, *doubled, *again}
    for key, column in rows.columns.items():
        name = mapped.get(key) or name_of(key)
        if (
            name
            and (key not in scores or key in mapped)
            and key not in hidden
            and name not in ("step", "time")
            and (name != "step_time" or key in mapped or is_seconds_per_step(key))
        ):
            scaled = column.times(factor_of(key)) if name == "gpu_mem_used" else column
            columns[name] = fill_missing(columns[name], scaled) if name in columns else scaled
            taken.append(f"{name} from {shorten_name(key)}")
    naming_notes = [f"taken: {', '.join(taken)}"] if taken else []
    naming_notes += policy_note(list(rows.columns), of_policy)
    naming_notes += (
        [f"{list_names(doubled)} was left out: a loss that says it is of training stands at its steps"] if doubled else []
    )
    naming_notes += [f"{list_names(again)} was left out: another held-out loss stands at its steps"] if again else []
    timed, together = take_data_time(columns, rows.columns)
    naming_notes += timed + take_step_time_of_speed(columns, rows.columns)
    summed, pair = take_adversarial_pair(columns, rows.columns)
    naming_notes += [*averaged.notes, *summed]
    used = (*parts, *together, *averaged.used, *pair, *mapped)
    return NamedLines(
        StepLines(rows.steps, rows.origin, columns), [*naming_notes, *notes], used, unused_keys(rows.columns, {*used, *hidden})
    )


def _beside_training_loss(rows: StepLines, apart: Collection[str], *, min_share: float = 0.9) -> list[str]:
    """Return the keys of bare losses where another loss, named as a training loss, occurs at nearly all of the same steps.

    Lines of a final test have a bare loss too.
    """
    keys = [key for key in rows.columns if key not in apart and name_of(key) == "train_loss_raw"]
    plain = [key for key in keys if not _OF_TRAINING.search(key)]
    known = {key: set(rows.steps[rows.columns[key].recorded].tolist()) for key in keys if plain and len(plain) < len(keys)}
    named = set().union(*(known[key] for key in known if key not in plain))
    return [key for key in plain if named and len(named) >= min_share * len(known[key])]


def _beside_held_out_loss(rows: StepLines, apart: Collection[str], *, min_share: float = 0.9) -> list[str]:
    """Return the keys of held-out losses other than the first, where that occurs at nearly all of the same steps."""
    keys = [key for key in rows.columns if key not in apart and name_of(key) == "val_loss"]
    known = {key: set(rows.steps[rows.columns[key].recorded].tolist()) for key in keys}
    return [key for key in keys[1:] if len(known[key] & known[keys[0]]) >= min_share * max(1, len(known[key]))]


def losses_of_policy(raw: Mapping[str, Numbers], mapped: Mapping[str, str]) -> list[str]:
    """Return the keys of finite training losses beside a policy's returns, except those that the user named.

    A loss with NaN or infinity is not included, because that is an illness of any loss.
    """
    keys = list(raw)
    if "train_loss_raw" in mapped.values() or not logs_rollouts(keys):
        return []
    losses = [keys[position] for position in policy_losses(keys) if name_of(keys[position]) == "train_loss_raw"]
    return [key for key in losses if np.isfinite(raw[key].values[raw[key].recorded]).all()]


def with_only_loss(columns: Columns, mapped: Mapping[str, str]) -> Mapping[str, str]:
    """Return the user's mapping, with the only error measure added as the training loss where no key names a loss."""
    keys = list(columns)
    if {"train_loss_raw", "val_loss"} & {mapped.get(key) or name_of(key) for key in keys} or logs_rollouts(keys):
        return mapped
    if (lone := only_loss(keys)) is None:
        return mapped
    twin = {} if lone.val is None else {keys[lone.val]: "val_loss"}
    return {keys[lone.train]: "train_loss_raw", **twin, **mapped}


def with_reward(columns: Columns, mapped: Mapping[str, str]) -> Mapping[str, str]:
    """Return the user's mapping, with the reward of a policy added as its return where no key names one."""
    keys = list(columns)
    rewards = max((columns[key].count for key in keys if may_be_a_reward(key)), default=0)
    often = [key for key in keys if 10 * columns[key].count >= rewards]  # `return 1` may stand in a line of what a model wrote
    known = [name for key in often if (name := mapped.get(key) or name_of(key))]
    if not rewards or not (logs_rollouts(keys) or are_rewards_alone(keys, known)):
        return mapped
    return {**{keys[places[0]]: name for name, places in reward_columns(keys, known).items()}, **mapped}


def with_test_loss(columns: Columns, mapped: Mapping[str, str]) -> Mapping[str, str]:
    """Return the user's mapping, with the test loss added as the held-out loss where there is no other."""
    keys = list(columns)
    tested = None if "val_loss" in mapped.values() else only_test_loss(keys)
    return mapped if tested is None else {keys[tested]: "val_loss", **mapped}


def scores_to_leave_out(keys: Iterable[str]) -> frozenset[str]:
    """Return the keys whose numbers are neither a loss nor a score of the model.

    Beside a loss, these are scores named by their data alone, as in `Loss: 1.9, Train: 0.43, Val: 0.34`; elsewhere they are a
    discriminator's accuracies.
    """
    keys = set(keys)
    has_loss = any("loss" in key and name_of(key) in ("train_loss_raw", "val_loss") for key in keys)
    return frozenset(keys & {"train", "val"}) if has_loss else discriminator_accuracies(keys)


def parts_of(columns: Columns) -> dict[str, str]:
    """Return the keys of loss terms that are taken beside the loss, by catalogue name."""
    keys = list(columns)
    return {name: keys[position] for name, position in loss_parts(keys).items()}


def take_data_time(columns: Columns, raw: Mapping[str, Numbers]) -> tuple[list[str], tuple[str, ...]]:
    """Add step time and share of waiting for data, where lines hold both times; return a note and their keys."""
    times = named_times(list(raw))
    notes = take_times(columns, times, raw) if times and "step_time" not in columns else []
    return notes, (times.data, times.whole) if times and notes else ()


def take_step_time_of_speed(columns: Columns, raw: Mapping[str, Numbers]) -> list[str]:
    """Add the step time from the steps per second where no other key gives it, and return a note on it."""
    key = next((key for key in raw if is_steps_per_second(key)), None)
    if key is None or "step_time" in columns:
        return []
    known = raw[key].recorded & (raw[key].values > 0) & np.isfinite(raw[key].values)
    columns["step_time"] = Numbers(1 / np.where(known, raw[key].values, np.nan), known)
    return [f"step_time is one over {shorten_name(key)}"]


def unused_keys(columns: Columns, used: Collection[str]) -> tuple[str, ...]:
    """Return the keys that were read because they might be losses, and were not used."""
    free = (key for key in columns if name_of(key) is None and key not in used)
    return tuple(key for key in free if may_be_of_a_loss(key) or may_be_adversarial(key))
