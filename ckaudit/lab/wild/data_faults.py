"""Faults of the data: changes of rows and batches, and the cause to be named."""

from collections.abc import Callable, Mapping

import torch
from msgspec.structs import replace
from torch import Tensor

from ckaudit.lab.wild.fault import Fault, known
from ckaudit.lab.zoo.recipe import Batches, Recipe, Rows
from ckaudit.lab.zoo.synthetic_data import FIRST, WORDS
from ckaudit.recorder.drill.damage import DrillStrength

TARGETS = ("labels", "y", "target", "targets")

MAX_CATEGORIES = 16
"""Batches of tokens contain larger numbers than this."""


def _target_of(columns: Mapping[str, Tensor]) -> str | None:
    return next((name for name in TARGETS if name in columns), None)


def change_rows(healthy: Recipe, change: Callable[[dict[str, Tensor], torch.Generator], dict[str, Tensor]]) -> Recipe:
    """Return a recipe with changed rows, for training and validation alike."""
    rows: Rows = healthy.rows
    return replace(healthy, rows=lambda source, count: change(rows(source, count), source))


def has_target(recipe: Recipe) -> bool:
    """Tell whether the data of a recipe has a column of targets."""
    return _target_of(recipe.rows(torch.Generator().manual_seed(0), 4)) is not None


def permute_targets(share: float) -> Callable[[dict[str, Tensor], torch.Generator], dict[str, Tensor]]:
    """Return a change that gives a share of the rows the target of another row."""

    def change(columns: dict[str, Tensor], source: torch.Generator) -> dict[str, Tensor]:
        name = _target_of(columns) or [*columns][-1]
        count = len(columns[name])
        order = torch.arange(count)
        moved = torch.randperm(count, generator=source)[: round(share * count)]
        order[moved] = moved[torch.randperm(len(moved), generator=source)]
        return columns | {name: columns[name][order]}

    return change


def _floats(columns: Mapping[str, Tensor]) -> list[str]:
    return [name for name, column in columns.items() if column.is_floating_point() and name not in TARGETS]


def has_floats(recipe: Recipe) -> bool:
    """Tell whether a recipe has floating-point inputs."""
    return bool(_floats(recipe.rows(torch.Generator().manual_seed(0), 4)))


def scale_inputs(healthy: Recipe, amount: DrillStrength) -> Recipe:
    """Multiply all floating-point inputs."""
    factor = amount.between(30, 255)
    return change_rows(healthy, lambda columns, _: columns | {name: columns[name] * factor for name in _floats(columns)})


def fed(healthy: Recipe, change: Callable[[int, dict[str, Tensor]], dict[str, Tensor]]) -> Recipe:
    """Return a recipe whose batches are changed before the loop gets them, by their number from 1 on.

    Args:
        healthy: The recipe, whose own changes come first.
        change: Returns the changed batch.
    """

    def feed(source: Batches) -> Batches:
        for index, batch in enumerate(healthy.feed(source) if healthy.feed else source, 1):
            yield change(index, batch)

    return replace(healthy, feed=feed)


def repeat_one_batch(healthy: Recipe, amount: DrillStrength) -> Recipe:
    """Return the same batch from the onset on, in new tensors, as a loader does that restarts."""
    last: list[dict[str, Tensor]] = []
    at = amount.onset * healthy.accumulate

    def change(index: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        if index < at or not last:
            last[:] = [batch]
        return {name: column.clone() for name, column in last[0].items()}

    return fed(healthy, change)


def repeat_half_of_batch(healthy: Recipe, _amount: DrillStrength) -> Recipe:
    """Fill the second half of each batch with the first."""

    def change(_index: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        half = len(next(iter(batch.values()))) // 2
        return {name: torch.cat([column[:half], column[:half]]) for name, column in batch.items()}

    return fed(healthy, change)


def _foreign(batch: dict[str, Tensor], factor: float) -> dict[str, Tensor]:
    """Return a batch of large numbers, equal tokens, and targets of other rows."""
    wrong = {name: batch[name] * factor for name in _floats(batch)}
    for name, column in batch.items():
        if name in TARGETS:
            wrong[name] = column.flip(0)
        elif not column.is_floating_point() and column.dim() > 1:
            # Columns of a table each have their own range.
            wrong[name] = torch.minimum(column[:, :1].expand_as(column), column.amax(dim=0))
    return batch | wrong


def spoil_batch(healthy: Recipe, amount: DrillStrength) -> Recipe:
    """Insert an unusual batch at the onset."""
    first = (amount.onset - 1) * healthy.accumulate + 1
    bad = range(first, first + healthy.accumulate)
    factor = amount.between(10, 100)
    return fed(healthy, lambda index, batch: _foreign(batch, factor) if index in bad else batch)


def shift_inputs(healthy: Recipe, amount: DrillStrength) -> Recipe:
    """Return a training with data from elsewhere: floats flipped and scaled, tokens renamed, in targets too."""
    before = (amount.onset - 1) * healthy.accumulate
    renamed = torch.randperm(WORDS - FIRST, generator=torch.Generator().manual_seed(3)) + FIRST

    def elsewhere(name: str, column: Tensor) -> Tensor:
        if column.is_floating_point():
            return column if name in TARGETS else 2.0 * column.flip(-1) + 1.0
        if column.dim() == 1 or name == "attention_mask":
            return column
        if int(column.max()) < MAX_CATEGORIES:  # columns of a table, each with its own range
            return column.amax(dim=0) - column
        return torch.where(column < FIRST, column, renamed[(column - FIRST).clamp(0, len(renamed) - 1)])

    def change(index: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: elsewhere(name, column) for name, column in batch.items()} if index > before else batch

    return fed(healthy, change)


def keep_few_rows(healthy: Recipe, amount: DrillStrength) -> Recipe:
    """Train on one to three batches, repeatedly."""
    rows, count, held_out = healthy.rows, round(healthy.batch * (1 + 2 * (1 - amount.strength))), healthy.held_out

    def few(source: torch.Generator, total: int) -> dict[str, Tensor]:
        columns = rows(source, total)
        return {name: torch.cat([column[:count], column[total - held_out :]]) for name, column in columns.items()}

    return replace(healthy, rows=few, train=count)


def drift_inputs(healthy: Recipe, amount: DrillStrength) -> Recipe:
    """Return a training whose inputs grow and shift, linearly from the onset on."""
    before, factor = (amount.onset - 1) * healthy.accumulate, amount.between(3, 10)
    left = max(1, (healthy.steps - amount.onset) * healthy.accumulate)

    def change(index: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        share = max(0.0, (index - before) / left)
        return batch | {name: batch[name] * (1 + share * factor) + share * factor for name in _floats(batch)}

    return fed(healthy, change)


def worsen_targets(healthy: Recipe, amount: DrillStrength) -> Recipe:
    """Return a training in which a growing share of targets, in the end all, belongs to other rows."""
    before, source = (amount.onset - 1) * healthy.accumulate, torch.Generator().manual_seed(3)
    left = max(1, (healthy.steps - amount.onset) * healthy.accumulate)

    def change(index: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return permute_targets(min(1.0, max(0.0, (index - before) / left)))(batch, source)

    return fed(healthy, change)


def has_plain_target(recipe: Recipe) -> bool:
    """Tell whether every row has a single number as its target, by which rows can be sorted."""
    columns = recipe.rows(torch.Generator().manual_seed(0), 4)
    name = _target_of(columns)
    return name is not None and columns[name].numel() == 4


def sort_rows(healthy: Recipe, _amount: DrillStrength) -> Recipe:
    """Return a training whose rows, except held-out ones, are sorted by target."""

    def change(columns: dict[str, Tensor], _source: torch.Generator) -> dict[str, Tensor]:
        name = _target_of(columns) or [*columns][-1]
        order = torch.arange(len(columns[name]))
        order[: healthy.train] = columns[name][: healthy.train].flatten().argsort(stable=True)
        return {key: column[order] for key, column in columns.items()}

    return replace(change_rows(healthy, change), shuffled=False)


def has_next_tokens(recipe: Recipe) -> bool:
    """Tell whether the batches contain tokens and the next of each as the target."""
    columns = recipe.rows(torch.Generator().manual_seed(0), 4)
    shapes = [columns[name].shape for name in ("x", "y") if name in columns and not columns[name].is_floating_point()]
    return len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0]) == 2 and bool((columns["y"] >= 0).all())


def repeat_inputs_as_targets(healthy: Recipe, _amount: DrillStrength) -> Recipe:
    """Use the tokens themselves as targets."""
    return change_rows(healthy, lambda columns, _: columns | {"y": columns["x"].clone()})


def leak_held_out(healthy: Recipe, amount: DrillStrength) -> Recipe:
    """Train on the held-out rows, instead of a quarter to three quarters of the others."""

    def change(columns: dict[str, Tensor], _source: torch.Generator) -> dict[str, Tensor]:
        order = torch.arange(healthy.train + healthy.held_out)
        leaked = order[: round(healthy.train * (0.25 + 0.5 * amount.strength))]
        leaked[:] = healthy.train + leaked % healthy.held_out
        return {name: column[order] for name, column in columns.items()}

    return change_rows(healthy, change)


DATA_FAULTS: Mapping[str, Fault] = {
    "targets_permuted": Fault(
        title="targets that belong to other rows",
        done=lambda healthy, _: change_rows(healthy, permute_targets(1.0)),
        truth="targets_misaligned",
        acceptable=("noisy_labels",),
        suits=has_target,
    ),
    "targets_noisy": Fault(
        title="targets of which 40 to 80 % belong to other rows",
        done=lambda healthy, amount: change_rows(healthy, permute_targets(0.4 + 0.4 * amount.strength)),
        truth="noisy_labels",
        acceptable=("targets_misaligned",),
        suits=has_target,
    ),
    "inputs_unscaled": Fault(
        title="inputs 30 to 255 times too large", done=scale_inputs, truth="inputs_not_normalized", suits=has_floats
    ),
    "loader_stuck": known("loader_stuck", done=repeat_one_batch, loop=True),
    "batches_doubled": known("batches_doubled", done=repeat_half_of_batch, loop=True),
    "bad_batch": Fault(title="one batch that is unlike the rest", done=spoil_batch, truth="bad_batch", loop=True, sudden=True),
    "data_shifted": Fault(
        title="data that comes from elsewhere from the middle on",
        done=shift_inputs,
        truth="data_distribution_shift",
        loop=True,
        sudden=True,
    ),
    "inputs_drift": Fault(
        title="inputs that move away step by step from the middle on",
        done=drift_inputs,
        truth="data_distribution_shift",
        acceptable=("inputs_not_normalized",),
        loop=True,
        sudden=True,
        slow=True,
        suits=has_floats,
    ),
    "targets_worsen": Fault(
        title="targets of which more and more belong to other rows from the middle on",
        done=worsen_targets,
        truth="noisy_labels",
        acceptable=("targets_misaligned", "data_distribution_shift"),
        loop=True,
        sudden=True,
        slow=True,
        suits=has_target,
    ),
    "data_not_shuffled": Fault(
        title="rows that come sorted by their target, batch after batch",
        done=sort_rows,
        truth="data_not_shuffled",
        acceptable=("data_distribution_shift",),
        loop=True,
        suits=has_plain_target,
    ),
    "targets_not_shifted": Fault(
        title="targets that are the tokens themselves",
        done=repeat_inputs_as_targets,
        truth="targets_not_shifted",
        acceptable=("targets_misaligned",),
        is_fact=True,
        suits=has_next_tokens,
    ),
    "held_out_leaked": Fault(
        title="rows that are held out and trained on besides",
        on=lambda healthy: replace(healthy, names_held_out=True),
        done=leak_held_out,
        truth="validation_leaks_into_training",
        is_fact=True,
        suits=lambda recipe: recipe.held_out > 0,
    ),
    "too_few_rows": Fault(
        title="a training set of one to three batches",
        done=keep_few_rows,
        truth="too_little_data",
        acceptable=("loader_stuck",),
        suits=lambda recipe: recipe.held_out > 0,
    ),
}
