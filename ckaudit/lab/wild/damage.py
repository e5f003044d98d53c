"""Ways to damage a training of any family, through hooks that ask nothing of a model but its parameters and modules."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn
from torch.optim import Optimizer

from ckaudit.lab.zoo.recipe import Batches, Recipe, Rows
from ckaudit.lab.zoo.synthetic_data import FIRST, WORDS

TARGETS = ("labels", "y", "target", "targets")


class Amount(Struct, frozen=True):
    """How a fault is done.

    Attributes:
        onset: First step at which it acts, where it comes in the middle of a training.
        strength: How strong it is, from 0 (the weakest) to 1.
    """

    onset: int
    strength: float

    def between(self, low: float, high: float) -> float:
        """Return a factor between two, evenly in its logarithm.

        >>> round(Amount(1, 0.5).between(10, 1000))
        100
        """
        return low * (high / low) ** self.strength


def matrices(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that are matrices or filters."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.dim() >= 2]


def middle_matrix(model: nn.Module) -> tuple[str, nn.Parameter]:
    """Return the matrix in the middle of the model; embeddings are left out where there is another, frozen ones always."""
    trained = [(name, weight) for name, weight in matrices(model) if weight.requires_grad]
    inner = [(name, weight) for name, weight in trained if "emb" not in name] or trained
    return inner[len(inner) // 2]


def middle_part(model: nn.Module) -> str:
    """Return the name of the module around the matrix in the middle: an attention, an MLP, or one layer where it stands alone."""
    name = middle_matrix(model)[0]
    module = name.partition(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]
    around = module.rpartition(".")[0]
    whole = sum(weight.numel() for weight in model.parameters())
    size = sum(weight.numel() for weight in model.get_submodule(around).parameters()) if around else whole
    return around if size < whole / 2 else module


def part_of(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters of the part in the middle."""
    prefix = middle_part(model)
    return [(name, weight) for name, weight in model.named_parameters() if name.startswith(prefix + ".")]


# Faults of weights and gradients at one step, or at each from it on.
Act = Callable[[nn.Module], object]


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


def draw_part_anew(model: nn.Module) -> None:
    """Initialise the matrices of the part in the middle anew, as large as they are."""
    for _, weight in part_of(model):
        if weight.dim() >= 2:
            weight.copy_(torch.randn_like(weight) * weight.std())


def zero_matrix(model: nn.Module) -> None:
    """Set the matrix in the middle to zero."""
    middle_matrix(model)[1].zero_()


def zero_half_of_matrix(model: nn.Module) -> None:
    """Set half of the rows of the matrix in the middle to zero."""
    weight = middle_matrix(model)[1]
    weight[: len(weight) // 2].zero_()


def multiply_weights(model: nn.Module) -> None:
    """Multiply all matrices by five."""
    for _, weight in matrices(model):
        weight.mul_(5.0)


def spoil_gradient(model: nn.Module) -> None:
    """Write NaN into a row of the gradient of the matrix in the middle."""
    gradient = middle_matrix(model)[1].grad
    if gradient is not None:
        gradient[0] = torch.nan


def lose_gradients(model: nn.Module) -> None:
    """Throw the gradients of the part in the middle away."""
    for _, weight in part_of(model):
        weight.grad = None


def flip_gradients(model: nn.Module) -> None:
    """Turn all gradients round."""
    for weight in model.parameters():
        if weight.grad is not None:
            weight.grad.neg_()


# Faults of the model.
def _built(healthy: Recipe, act: Act) -> Recipe:
    def model() -> nn.Module:
        made = healthy.model()
        with torch.no_grad():
            act(made)
        return made

    return replace(healthy, model=model)


def scale_initial_weights(healthy: Recipe, scale: float) -> Recipe:
    """Multiply the initial matrices that are trained."""

    def act(model: nn.Module) -> None:
        for _, weight in matrices(model):
            if weight.requires_grad:
                weight.mul_(scale)

    return _built(healthy, act)


def freeze_part(healthy: Recipe, _amount: Amount) -> Recipe:
    """Let the part in the middle ask for no gradient."""

    def act(model: nn.Module) -> None:
        for _, weight in part_of(model):
            weight.requires_grad = False

    return _built(healthy, act)


def detach_part(healthy: Recipe, _amount: Amount) -> Recipe:
    """Detach what the part in the middle puts out."""

    def cut(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        return output.detach() if isinstance(output, Tensor) else (output[0].detach(), *output[1:])

    return _built(healthy, lambda model: model.get_submodule(middle_part(model)).register_forward_hook(cut))


def _replaced(model: nn.Module, is_wanted: Callable[[nn.Module], bool], make: Callable[[], nn.Module]) -> None:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if is_wanted(child):
                setattr(module, name, make())


def is_norm(module: nn.Module) -> bool:
    """Tell whether a module is a normalisation with a scale."""
    return "norm" in type(module).__name__.lower() and sum(weight.dim() == 1 for weight in module.parameters()) > 0


def is_activation(module: nn.Module) -> bool:
    """Tell whether a module is an activation function that is not bounded."""
    kind = type(module).__name__.lower()
    return not list(module.children()) and any(word in kind for word in ("relu", "gelu", "silu", "activation"))


def has_module(is_wanted: Callable[[nn.Module], bool]) -> Callable[[Recipe], bool]:
    """Return a test of recipes: whether their model has such a module."""
    return lambda recipe: any(is_wanted(module) for module in recipe.model().modules())


class Saturated(nn.Module):
    """A sigmoid that is driven far into its flat ends."""

    def forward(self, x: Tensor) -> Tensor:
        """Map any tensor to one of its shape."""
        return torch.sigmoid(20 * x)


def leave_norms_out(healthy: Recipe, _amount: Amount) -> Recipe:
    """Replace every normalisation by nothing."""
    return _built(healthy, lambda model: _replaced(model, is_norm, nn.Identity))


def saturate_activations(healthy: Recipe, _amount: Amount) -> Recipe:
    """Replace every activation function by a sigmoid that is flat nearly everywhere."""
    return _built(healthy, lambda model: _replaced(model, is_activation, Saturated))


def is_dropout(module: nn.Module) -> bool:
    """Tell whether a module drops values out."""
    return isinstance(module, nn.Dropout)


def raise_dropout(healthy: Recipe, amount: Amount) -> Recipe:
    """Raise every dropout."""
    share = 0.7 + 0.25 * amount.strength
    return _built(healthy, lambda model: _replaced(model, is_dropout, lambda: nn.Dropout(share)))


def kill_units(healthy: Recipe, _amount: Amount) -> Recipe:
    """Push nine in ten units before a ReLU below zero."""

    def act(model: nn.Module) -> None:
        layers = list(model.modules())
        for layer, after in pairwise(layers):
            if isinstance(layer, nn.Linear | nn.Conv2d | nn.BatchNorm2d | nn.BatchNorm1d) and isinstance(after, nn.ReLU):
                bias: Tensor = layer.bias  # type: ignore[assignment]
                bias[: len(bias) * 9 // 10].fill_(-20.0)

    return _built(healthy, act)


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

    return replace(_built(healthy, note), trained=lambda name: name not in left_out)


def is_adam(recipe: Recipe) -> bool:
    """Tell whether the optimizer is of the kind that divides by a second moment and has an epsilon."""
    return recipe.optimizer in ("adamw", "adam", "nadam", "radam")


def has_momentum(recipe: Recipe) -> bool:
    """Tell whether the optimizer has a state that a resume can lose."""
    return is_adam(recipe) or recipe.momentum > 0
