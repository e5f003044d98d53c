"""Ways to damage a training of any family: recipes become ill ones, whatever the model, through its parameters and modules."""

from collections.abc import Callable, Mapping

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.optim import Optimizer

from ckaudit.lab.zoo.recipe import Batches, Recipe, Rows
from ckaudit.lab.zoo.synthetic_data import FIRST, WORDS
from ckaudit.recorder.drill.damage import Act, Amount, detached, middle_part, part_of

TARGETS = ("labels", "y", "target", "targets")


# Faults of weights and gradients at one step, or at each from it on.
def gradient_hook(onset: int, act: Act, *, always: bool = False) -> Callable[[nn.Module, Optimizer, int], None]:
    """Return a hook that acts on the model after the backward pass of one step, or of each from it on."""

    @torch.no_grad()
    def gradients(model: nn.Module, _optimizer: Optimizer, step: int) -> None:
        if step == onset or (always and step > onset):
            act(model)

    return gradients


def once(act: Act) -> Callable[[Recipe, Amount], Recipe]:
    """Return a change of recipes that acts on the model once, at the onset."""
    return lambda healthy, amount: replace(healthy, gradients=gradient_hook(amount.onset, act))


# Faults of the model.
def built(healthy: Recipe, act: Act) -> Recipe:
    """Return a recipe whose model is acted on before it is trained."""

    def model() -> nn.Module:
        made = healthy.model()
        with torch.no_grad():
            act(made)
        return made

    return replace(healthy, model=model)


def detach_part(healthy: Recipe, _amount: Amount) -> Recipe:
    """Detach what the part in the middle puts out."""

    def act(model: nn.Module) -> None:
        model.get_submodule(middle_part(model)).register_forward_hook(lambda _module, _inputs, output: detached(output))

    return built(healthy, act)


def has_module(is_wanted: Callable[[nn.Module], bool]) -> Callable[[Recipe], bool]:
    """Return a test of recipes: whether their model has such a module."""
    return lambda recipe: any(is_wanted(module) for module in recipe.model().modules())


# Faults of the data.
def _target_of(columns: Mapping[str, Tensor]) -> str | None:
    return next((name for name in TARGETS if name in columns), None)


def change_rows(healthy: Recipe, change: Callable[[dict[str, Tensor], torch.Generator], dict[str, Tensor]]) -> Recipe:
    """Return a recipe whose rows are changed, for training and validation alike."""
    rows: Rows = healthy.rows
    return replace(healthy, rows=lambda source, count: change(rows(source, count), source))


def has_target(recipe: Recipe) -> bool:
    """Tell whether the data of a recipe has a column of targets."""
    return _target_of(recipe.rows(torch.Generator().manual_seed(0), 4)) is not None


def permute_targets(share: float) -> Callable[[dict[str, Tensor], torch.Generator], dict[str, Tensor]]:
    """Return a change of rows that gives a share of them the target of another."""

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
    """Tell whether inputs of a recipe are real numbers."""
    return bool(_floats(recipe.rows(torch.Generator().manual_seed(0), 4)))


def scale_inputs(healthy: Recipe, amount: Amount) -> Recipe:
    """Multiply all inputs that are real numbers."""
    factor = amount.between(30, 255)
    return change_rows(healthy, lambda columns, _: columns | {name: columns[name] * factor for name in _floats(columns)})


def _feed(change: Callable[[int, dict[str, Tensor]], dict[str, Tensor]]) -> Callable[[Batches], Batches]:
    def feed(source: Batches) -> Batches:
        for index, batch in enumerate(source, 1):
            yield change(index, batch)

    return feed


def repeat_one_batch(healthy: Recipe, amount: Amount) -> Recipe:
    """Give the same batch from the onset on."""
    last: list[dict[str, Tensor]] = []
    at = amount.onset * healthy.accumulate

    def change(index: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        if index < at or not last:
            last[:] = [batch]
        return last[0]

    return replace(healthy, feed=_feed(change))


def repeat_half_of_batch(healthy: Recipe, _amount: Amount) -> Recipe:
    """Fill the second half of each batch with the first."""

    def change(_index: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        half = len(next(iter(batch.values()))) // 2
        return {name: torch.cat([column[:half], column[:half]]) for name, column in batch.items()}

    return replace(healthy, feed=_feed(change))


def _foreign(batch: dict[str, Tensor], factor: float) -> dict[str, Tensor]:
    """Return a batch whose numbers are large, whose tokens are all the same, and whose targets belong to other rows."""
    wrong = {name: batch[name] * factor for name in _floats(batch)}
    for name, column in batch.items():
        if name in TARGETS:
            wrong[name] = column.flip(0)
        elif not column.is_floating_point() and column.dim() > 1:
            wrong[name] = column[:, :1].expand_as(column).clone()
    return batch | wrong


def spoil_batch(healthy: Recipe, amount: Amount) -> Recipe:
    """Give a batch unlike the others at the onset."""
    first = (amount.onset - 1) * healthy.accumulate + 1
    bad = range(first, first + healthy.accumulate)
    factor = amount.between(10, 100)
    return replace(healthy, feed=_feed(lambda index, batch: _foreign(batch, factor) if index in bad else batch))


def shift_inputs(healthy: Recipe, amount: Amount) -> Recipe:
    """Return a training whose data comes from elsewhere: numbers turned and larger, tokens renamed, in targets too."""
    before = (amount.onset - 1) * healthy.accumulate
    renamed = torch.randperm(WORDS - FIRST, generator=torch.Generator().manual_seed(3)) + FIRST

    def elsewhere(name: str, column: Tensor) -> Tensor:
        if column.is_floating_point():
            return column if name in TARGETS else 2.0 * column.flip(-1) + 1.0
        if column.dim() == 1 or name == "attention_mask":
            return column
        return torch.where(column < FIRST, column, renamed[(column - FIRST).clamp(0, len(renamed) - 1)])

    def change(index: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: elsewhere(name, column) for name, column in batch.items()} if index > before else batch

    return replace(healthy, feed=_feed(change))


def keep_few_rows(healthy: Recipe, amount: Amount) -> Recipe:
    """Train on one to three batches, again and again."""
    rows, count, held_out = healthy.rows, round(healthy.batch * (1 + 2 * (1 - amount.strength))), healthy.held_out

    def few(source: torch.Generator, total: int) -> dict[str, Tensor]:
        columns = rows(source, total)
        return {name: torch.cat([column[:count], column[total - held_out :]]) for name, column in columns.items()}

    return replace(healthy, rows=few, train=count)


# Faults of the optimizer.
def change_rate(amount: Amount, factor: float) -> Callable[[int], float]:
    """Return the multiple of the learning rate: from the onset on a factor."""
    return lambda step: factor if step >= amount.onset else 1.0


def leave_part_out_of_optimizer(healthy: Recipe, _amount: Amount) -> Recipe:
    """Hand the optimizer all but the part in the middle."""
    left_out: set[str] = set()

    def note(model: nn.Module) -> None:
        left_out.update(name for name, _ in part_of(model))

    return replace(built(healthy, note), trained=lambda name: name not in left_out)


def is_adam(recipe: Recipe) -> bool:
    """Tell whether the optimizer is of the kind that divides by a second moment and has an epsilon."""
    return recipe.optimizer in ("adamw", "adam", "nadam", "radam")


def has_momentum(recipe: Recipe) -> bool:
    """Tell whether the optimizer has a state that a resume can lose."""
    return is_adam(recipe) or recipe.momentum > 0
