"""Faults that a training of any family can have, each with the cause that is to be named."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace
from torch import nn

from ckaudit.lab.wild import damage
from ckaudit.lab.wild.damage import Amount
from ckaudit.lab.zoo.recipe import Recipe, Resume


class Fault(Struct, frozen=True, kw_only=True):
    """One way in which a training goes wrong.

    Attributes:
        title: What is wrong, in a few words.
        done: Makes the ill recipe of a healthy one.
        truth: Name of the cause.
        acceptable: Other causes that name the same, or that nobody could tell from it.
        is_fact: Whether it is done to damage.once, gradients or code, so that a record shows it whatever the loss says: then it
            always counts as one with an effect.
        loop: Whether it can only happen in a loop that the user wrote.
        sudden: Whether it comes at the onset, not from the start.
        suits: Whether it can be done to a recipe at all.
        place: Whether there is a place that a finding should name: the part in the middle.
    """

    title: str
    done: Callable[[Recipe, Amount], Recipe]
    truth: str
    acceptable: tuple[str, ...] = ()
    is_fact: bool = False
    loop: bool = False
    sudden: bool = False
    suits: Callable[[Recipe], bool] = lambda _: True
    place: bool = False


WRITTEN = ("silent_data_corruption",)
FAULTS: Mapping[str, Fault] = {
    "rate_too_high": Fault(
        title="a learning rate 10 to 100 times too high",
        done=lambda healthy, amount: replace(healthy, lr=healthy.lr * amount.between(10, 100), clip=None),
        truth="learning_rate_too_high",
        acceptable=("missing_warmup",),
    ),
    "rate_too_low": Fault(
        title="a learning rate 100 to 10,000 times too low",
        done=lambda healthy, amount: replace(healthy, lr=healthy.lr / amount.between(100, 10_000)),
        truth="learning_rate_too_low",
    ),
    "rate_raised": Fault(
        title="a learning rate that is raised 10 to 50 times in the middle",
        done=lambda healthy, amount: replace(healthy, rate=damage.change_rate(amount, amount.between(10, 50)), clip=None),
        truth="learning_rate_changed",
        acceptable=("learning_rate_too_high",),
        sudden=True,
    ),
    "schedule_too_short": Fault(
        title="a schedule that ends in the first third",
        done=lambda healthy, _: replace(healthy, schedule="linear", horizon=0.3, warmup=min(healthy.warmup, healthy.steps // 10)),
        truth="schedule_horizon_wrong",
        acceptable=("learning_rate_is_zero",),
    ),
    "part_drawn_anew": Fault(
        title="a part that is initialised anew in the middle",
        done=damage.once(damage.draw_part_anew),
        truth="weights_changed_outside_optimizer",
        acceptable=WRITTEN,
        is_fact=True,
        sudden=True,
        place=True,
    ),
    "matrix_zeroed": Fault(
        title="a matrix that is zeroed in the middle",
        done=damage.once(damage.zero_matrix),
        truth="weights_changed_outside_optimizer",
        acceptable=WRITTEN,
        is_fact=True,
        sudden=True,
        place=True,
    ),
    "half_zeroed": Fault(
        title="half of a matrix that is zeroed in the middle",
        done=damage.once(damage.zero_half_of_matrix),
        truth="weights_changed_outside_optimizer",
        acceptable=WRITTEN,
        is_fact=True,
        sudden=True,
        place=True,
    ),
    "weights_times_5": Fault(
        title="weights that are multiplied by five in the middle",
        done=damage.once(damage.multiply_weights),
        truth="weights_changed_outside_optimizer",
        acceptable=WRITTEN,
        is_fact=True,
        sudden=True,
    ),
    "gradient_nan": Fault(
        title="a gradient that is NaN at one step",
        done=damage.once(damage.spoil_gradient),
        truth="nonfinite_operation",
        acceptable=("silent_data_corruption", "bad_batch"),
        is_fact=True,
        sudden=True,
        place=True,
    ),
    "gradients_lost": Fault(
        title="a part whose gradients are thrown away",
        done=lambda healthy, _: replace(healthy, gradients=damage.gradient_hook(1, damage.lose_gradients, always=True)),
        truth="gradient_path_cut",
        acceptable=("not_in_optimizer", "frozen_by_mistake"),
        is_fact=True,
        place=True,
    ),
    "gradients_kept": Fault(
        title="gradients that are never zeroed",
        done=lambda healthy, _: replace(healthy, zeroes=False),
        truth="gradients_not_zeroed",
        is_fact=True,
        loop=True,
    ),
    "sign_flipped": Fault(
        title="gradients with the wrong sign",
        done=lambda healthy, _: replace(healthy, gradients=damage.gradient_hook(1, damage.flip_gradients, always=True)),
        truth="loss_sign_flipped",
    ),
    "part_frozen": Fault(
        title="a part that asks for no gradient",
        done=damage.freeze_part,
        truth="frozen_by_mistake",
        acceptable=("not_in_optimizer",),
        is_fact=True,
        place=True,
    ),
    "part_detached": Fault(
        title="a part whose output is detached",
        done=damage.detach_part,
        truth="gradient_path_cut",
        acceptable=("dead_path",),
        is_fact=True,
        place=True,
        suits=lambda recipe: bool(list(recipe.model().get_submodule(damage.middle_part(recipe.model())).children())),
    ),
    "not_in_optimizer": Fault(
        title="a part that the optimizer does not hold",
        done=damage.leave_part_out_of_optimizer,
        truth="not_in_optimizer",
        acceptable=("frozen_by_mistake",),
        is_fact=True,
        place=True,
    ),
    "updates_left_out": Fault(
        title="an optimizer that takes no step any more",
        done=lambda healthy, amount: replace(healthy, updates=lambda step: step < amount.onset),
        truth="updates_not_applied",
        is_fact=True,
        sudden=True,
    ),
    "optimizer_state_lost": Fault(
        title="a resume without the optimizer's state",
        done=lambda healthy, amount: replace(healthy, resume=Resume(amount.onset, optimizer=False)),
        truth="optimizer_state_lost",
        is_fact=True,
        loop=True,
        sudden=True,
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
    "decay_too_strong": Fault(
        title="a weight decay of 2 to 20",
        done=lambda healthy, amount: replace(healthy, weight_decay=amount.between(2, 20)),
        truth="weight_decay_too_high",
    ),
    "clipped_to_nothing": Fault(
        title="a clipping limit far below every gradient",
        done=lambda healthy, amount: replace(healthy, clip=1e-2 / amount.between(1, 1_000)),
        truth="clip_limit_too_low",
    ),
    "epsilon_too_large": Fault(
        title="an epsilon of 0.1 to 10 in Adam",
        done=lambda healthy, amount: replace(healthy, eps=amount.between(0.1, 10)),
        truth="adam_epsilon_too_large",
        suits=damage.is_adam,
    ),
    "init_too_large": Fault(
        title="initial weights 5 to 30 times too large",
        done=lambda healthy, amount: damage.scale_initial_weights(healthy, amount.between(5, 30)),
        truth="init_too_large",
    ),
    "init_too_small": Fault(
        title="initial weights 100 to 10,000 times too small",
        done=lambda healthy, amount: damage.scale_initial_weights(healthy, 1 / amount.between(100, 10_000)),
        truth="init_too_small",
    ),
    "norms_missing": Fault(
        title="a model whose normalisations were left out",
        done=damage.leave_norms_out,
        truth="normalization_missing",
        suits=damage.has_module(damage.is_norm),
    ),
    "units_saturated": Fault(
        title="activation functions that are driven into their flat ends",
        done=damage.saturate_activations,
        truth="saturating_activation",
        suits=damage.has_module(damage.is_activation),
    ),
    "units_dead": Fault(
        title="ReLUs of which nine in ten never fire",
        done=damage.kill_units,
        truth="dead_units",
        suits=damage.has_module(lambda module: isinstance(module, nn.ReLU)),
    ),
    "dropout_too_high": Fault(
        title="a dropout of 0.7 to 0.95",
        done=damage.raise_dropout,
        truth="dropout_too_high",
        suits=damage.has_module(damage.is_dropout),
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
    "loader_stuck": Fault(
        title="a loader that gives the same batch from the middle on",
        done=damage.repeat_one_batch,
        truth="loader_stuck",
        acceptable=("too_little_data",),
        is_fact=True,
        loop=True,
        sudden=True,
    ),
    "batches_doubled": Fault(
        title="batches whose second half repeats the first",
        done=damage.repeat_half_of_batch,
        truth="batches_repeated",
        acceptable=("batch_too_small",),
        is_fact=True,
        loop=True,
    ),
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
        suits=lambda recipe: recipe.held_out > 0 and damage.has_module(damage.is_dropout)(recipe),
    ),
}
