"""What goes wrong in a training of any family, through hooks that ask nothing of the model but its parameters."""

from collections.abc import Callable, Mapping

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks.healthy.recipe import Damage, Recipe, Rows

AT = 100
"""Step at which a sudden damage is done: half of a training of 200 steps."""

TARGETS = ("labels", "y", "target", "targets")


class Fault(Struct, frozen=True):
    """One way in which a training goes wrong.

    Attributes:
        done: Makes the ill recipe of a healthy one.
        truth: Name of the cause.
        acceptable: Other causes that name the same, or what nobody could tell from it.
        is_sudden: Whether it is done to the weights at one step, or to the code: then there is an effect, whatever the loss says.
        through: Who trains where it can happen; empty: anybody.
    """

    done: Callable[[Recipe], Recipe]
    truth: str
    acceptable: tuple[str, ...] = ()
    is_sudden: bool = False
    through: tuple[str, ...] = ()


def matrices(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the parameters that are matrices or filters."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.dim() >= 2]


def middle_matrix(model: nn.Module) -> tuple[str, Tensor]:
    """Return the matrix in the middle of the model, embeddings and frozen ones left out."""
    inner = [(name, weight) for name, weight in matrices(model) if "emb" not in name and weight.requires_grad]
    return inner[len(inner) // 2]


def block_around(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters of the module two levels above the matrix in the middle: a block, or what stands for one."""
    name, _ = middle_matrix(model)
    prefix = name.rsplit(".", 2)[0]
    return [(other, weight) for other, weight in model.named_parameters() if other.startswith(prefix)]


@torch.no_grad()
def _draw_anew(model: nn.Module) -> None:
    for _, weight in block_around(model):
        if weight.dim() >= 2:
            weight.copy_(torch.randn_like(weight) * weight.std())


@torch.no_grad()
def _zero(model: nn.Module) -> None:
    middle_matrix(model)[1].zero_()


@torch.no_grad()
def _times_five(model: nn.Module) -> None:
    for _, weight in matrices(model):
        weight.mul_(5.0)


def _spoil_gradient(model: nn.Module) -> None:
    gradient = middle_matrix(model)[1].grad
    if gradient is not None:
        gradient[0] = torch.nan


def _lose_gradients(model: nn.Module, _optimizer: Optimizer, _step: int) -> None:
    for _, weight in block_around(model):
        weight.grad = None


def _once(what: Callable[[nn.Module], None]) -> Damage:
    def damage(model: nn.Module, _optimizer: Optimizer, step: int) -> None:
        if step == AT:
            what(model)

    return damage


def _with_model(recipe: Recipe, scale: float) -> Recipe:
    def made() -> nn.Module:
        model = recipe.model()
        with torch.no_grad():
            for _, weight in matrices(model):
                weight.mul_(scale)
        return model

    return replace(recipe, model=made)


def _with_rows(recipe: Recipe, change: Callable[[dict[str, Tensor], torch.Generator], dict[str, Tensor]]) -> Recipe:
    healthy: Rows = recipe.rows

    def rows(source: torch.Generator, count: int) -> dict[str, Tensor]:
        return change(healthy(source, count), source)

    return replace(recipe, rows=rows)


def _permuted(columns: dict[str, Tensor], source: torch.Generator) -> dict[str, Tensor]:
    name = next((name for name in TARGETS if name in columns), [*columns][-1])
    order = torch.randperm(len(columns[name]), generator=source)
    return columns | {name: columns[name][order]}


def _unscaled(columns: dict[str, Tensor], _source: torch.Generator) -> dict[str, Tensor]:
    return {
        name: column * 255 if column.is_floating_point() and name not in TARGETS else column for name, column in columns.items()
    }


WRITTEN = ("silent_data_corruption", "learning_rate_too_high")
FAULTS: Mapping[str, Fault] = {
    "rate_times_30": Fault(
        lambda healthy: replace(healthy, lr=healthy.lr * 30, clip=None), "learning_rate_too_high", ("missing_warmup",)
    ),
    "rate_times_8": Fault(lambda healthy: replace(healthy, lr=healthy.lr * 8), "learning_rate_too_high", ("missing_warmup",)),
    "rate_over_1000": Fault(lambda healthy: replace(healthy, lr=healthy.lr / 1000), "learning_rate_too_low"),
    "gradients_kept": Fault(
        lambda healthy: replace(healthy, zeroes=False), "gradients_not_zeroed", is_sudden=True, through=("loop",)
    ),
    "gradient_nan": Fault(
        lambda healthy: replace(healthy, before_step=_once(_spoil_gradient)),
        "nonfinite_operation",
        ("silent_data_corruption", "bad_batch"),
        is_sudden=True,
    ),
    "part_drawn_anew": Fault(
        lambda healthy: replace(healthy, before_step=_once(_draw_anew)), "weights_changed_outside_optimizer", WRITTEN, True
    ),
    "matrix_zeroed": Fault(
        lambda healthy: replace(healthy, before_step=_once(_zero)), "weights_changed_outside_optimizer", WRITTEN, True
    ),
    "weights_times_5": Fault(
        lambda healthy: replace(healthy, before_step=_once(_times_five)), "weights_changed_outside_optimizer", WRITTEN, True
    ),
    "gradients_lost": Fault(
        lambda healthy: replace(healthy, before_step=_lose_gradients),
        "gradient_path_cut",
        ("not_in_optimizer", "frozen_by_mistake", "path_weakly_coupled"),
        is_sudden=True,
    ),
    "labels_permuted": Fault(lambda healthy: _with_rows(healthy, _permuted), "targets_misaligned", ("noisy_labels",)),
    "inputs_unscaled": Fault(lambda healthy: _with_rows(healthy, _unscaled), "inputs_not_normalized"),
    "init_times_10": Fault(lambda healthy: _with_model(healthy, 10.0), "init_too_large"),
    "init_over_1000": Fault(lambda healthy: _with_model(healthy, 1e-3), "init_too_small"),
    "decay_5": Fault(lambda healthy: replace(healthy, weight_decay=5.0), "weight_decay_too_high"),
    "clipped_to_nothing": Fault(lambda healthy: replace(healthy, clip=1e-4), "clip_limit_too_low"),
}
