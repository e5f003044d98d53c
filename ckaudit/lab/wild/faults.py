"""Faults that a training of any family can have, each with the cause that is to be named."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import asdict, replace
from torch import nn

from ckaudit.lab.wild import damage
from ckaudit.lab.zoo.recipe import Recipe, Resume
from ckaudit.recorder.drill import damage as shared
from ckaudit.recorder.drill.damage import Amount
from ckaudit.recorder.drill.order import KINDS, FaultKind


class Fault(FaultKind, frozen=True, kw_only=True):
    """One way in which a training goes wrong.

    Attributes:
        done: Makes the ill recipe of a healthy one.
        loop: Whether it can only happen in a loop that the user wrote.
        suits: Whether it can be done to a recipe at all.
    """

    done: Callable[[Recipe, Amount], Recipe]
    loop: bool = False
    suits: Callable[[Recipe], bool] = lambda _: True


def known(name: str, done: Callable[[Recipe, Amount], Recipe], **more: Any) -> Fault:
    """Return a fault that a drill can do as well, with what is said of it there."""
    return Fault(**asdict(KINDS[name]) | {"done": done} | more)


FAULTS: Mapping[str, Fault] = {
    "rate_too_high": known(
        "rate_too_high", done=lambda healthy, amount: replace(healthy, lr=healthy.lr * amount.between(10, 100), clip=None)
    ),
    "rate_too_low": known(
        "rate_too_low", done=lambda healthy, amount: replace(healthy, lr=healthy.lr / amount.between(100, 10_000))
    ),
    "rate_raised": known(
        "rate_raised",
        done=lambda healthy, amount: replace(healthy, rate=damage.change_rate(amount, amount.between(10, 50)), clip=None),
    ),
    "schedule_too_short": Fault(
        title="a schedule that ends in the first third",
        done=lambda healthy, _: replace(healthy, schedule="linear", horizon=0.3, warmup=min(healthy.warmup, healthy.steps // 10)),
        truth="schedule_horizon_wrong",
        acceptable=("learning_rate_is_zero",),
    ),
    "part_drawn_anew": known("part_drawn_anew", done=damage.once(shared.draw_part_anew)),
    "matrix_zeroed": known("matrix_zeroed", done=damage.once(shared.zero_matrix)),
    "half_zeroed": known("half_zeroed", done=damage.once(shared.zero_half_of_matrix)),
    "weights_times_5": known("weights_times_5", done=damage.once(shared.multiply_weights)),
    "gradient_nan": known("gradient_nan", done=damage.once(shared.spoil_gradient)),
    "gradients_lost": known(
        "gradients_lost",
        done=lambda healthy, _: replace(healthy, gradients=damage.gradient_hook(1, shared.lose_gradients, always=True)),
    ),
    "gradients_kept": known("gradients_kept", done=lambda healthy, _: replace(healthy, zeroes=False), loop=True),
    "sign_flipped": known(
        "sign_flipped",
        done=lambda healthy, _: replace(healthy, gradients=damage.gradient_hook(1, shared.flip_gradients, always=True)),
    ),
    "part_frozen": known("part_frozen", done=lambda healthy, _: damage.built(healthy, shared.freeze_part)),
    "part_detached": known(
        "part_detached",
        done=damage.detach_part,
        suits=lambda recipe: bool(list(recipe.model().get_submodule(shared.middle_part(recipe.model())).children())),
    ),
    "not_in_optimizer": known("not_in_optimizer", done=damage.leave_part_out_of_optimizer),
    "updates_left_out": known(
        "updates_left_out", done=lambda healthy, amount: replace(healthy, updates=lambda step: step < amount.onset)
    ),
    "optimizer_state_lost": known(
        "optimizer_state_lost",
        done=lambda healthy, amount: replace(healthy, resume=Resume(amount.onset, optimizer=False)),
        loop=True,
        suits=damage.has_momentum,
    ),
    "rate_wrong_after_resume": Fault(
        title="a resume with ten times the learning rate",
        done=lambda healthy, amount: replace(healthy, resume=Resume(amount.onset, rate=amount.between(5, 20))),
        truth="learning_rate_wrong_after_resume",
        acceptable=("learning_rate_changed", "learning_rate_too_high"),
        is_fact=True,
        loop=True,
        sudden=True,
    ),
    "decay_too_strong": known(
        "decay_too_strong", done=lambda healthy, amount: replace(healthy, weight_decay=amount.between(2, 20))
    ),
    "clipped_to_nothing": Fault(
        title="a clipping limit far below every gradient",
        done=lambda healthy, amount: replace(healthy, clip=1e-2 / amount.between(1, 1_000)),
        truth="clip_limit_too_low",
    ),
    "epsilon_too_large": known(
        "epsilon_too_large", done=lambda healthy, amount: replace(healthy, eps=amount.between(0.1, 10)), suits=damage.is_adam
    ),
    "init_too_large": known(
        "init_too_large",
        done=lambda healthy, amount: damage.built(healthy, lambda model: shared.scale_matrices(model, amount.between(5, 30))),
    ),
    "init_too_small": known(
        "init_too_small",
        done=lambda healthy, amount: damage.built(
            healthy, lambda model: shared.scale_matrices(model, 1 / amount.between(100, 10_000))
        ),
    ),
    "norms_missing": known(
        "norms_missing",
        done=lambda healthy, _: damage.built(healthy, shared.leave_norms_out),
        suits=damage.has_module(shared.is_norm),
    ),
    "units_saturated": known(
        "units_saturated",
        done=lambda healthy, _: damage.built(healthy, shared.saturate_activations),
        suits=damage.has_module(shared.is_activation),
    ),
    "units_dead": known(
        "units_dead",
        done=lambda healthy, _: damage.built(healthy, shared.kill_units),
        suits=damage.has_module(lambda module: isinstance(module, nn.ReLU)),
    ),
    "dropout_too_high": known(
        "dropout_too_high",
        done=lambda healthy, amount: damage.built(
            healthy, lambda model: shared.raise_dropout(model, 0.7 + 0.25 * amount.strength)
        ),
        suits=damage.has_module(shared.is_dropout),
    ),
    "targets_permuted": Fault(
        title="targets that belong to other rows",
        done=lambda healthy, _: damage.change_rows(healthy, damage.permute_targets(1.0)),
        truth="targets_misaligned",
        acceptable=("noisy_labels",),
        suits=damage.has_target,
    ),
    "targets_noisy": Fault(
        title="targets of which 40 to 80 % belong to other rows",
        done=lambda healthy, amount: damage.change_rows(healthy, damage.permute_targets(0.4 + 0.4 * amount.strength)),
        truth="noisy_labels",
        acceptable=("targets_misaligned",),
        suits=damage.has_target,
    ),
    "inputs_unscaled": Fault(
        title="inputs 30 to 255 times too large", done=damage.scale_inputs, truth="inputs_not_normalized", suits=damage.has_floats
    ),
    "loader_stuck": known("loader_stuck", done=damage.repeat_one_batch, loop=True),
    "batches_doubled": known("batches_doubled", done=damage.repeat_half_of_batch, loop=True),
    "bad_batch": Fault(
        title="one batch that is unlike the rest", done=damage.spoil_batch, truth="bad_batch", loop=True, sudden=True
    ),
    "data_shifted": Fault(
        title="data that comes from elsewhere from the middle on",
        done=damage.shift_inputs,
        truth="data_distribution_shift",
        loop=True,
        sudden=True,
    ),
    "too_few_rows": Fault(
        title="a training set of one to three batches",
        done=damage.keep_few_rows,
        truth="too_little_data",
        acceptable=("loader_stuck",),
        suits=lambda recipe: recipe.held_out > 0,
    ),
    "evaluated_in_training_mode": Fault(
        title="validations with dropout and the statistics of the batch",
        done=lambda healthy, _: replace(healthy, eval_mode=False),
        truth="evaluation_in_training_mode",
        loop=True,
        suits=lambda recipe: recipe.held_out > 0 and damage.has_module(shared.is_dropout)(recipe),
    ),
}
