"""Faults that a training of any family can have, each with the cause that is to be named."""

from collections.abc import Mapping

import torch
from msgspec.structs import replace
from torch import nn

from ckaudit.lab.wild import damage
from ckaudit.lab.wild.data_faults import DATA_FAULTS
from ckaudit.lab.wild.fault import Fault
from ckaudit.lab.zoo.recipe import Resume, own_loss
from ckaudit.recorder.drill import damage as shared

WRITTEN = ("silent_data_corruption",)
FAULTS: Mapping[str, Fault] = {
    **DATA_FAULTS,
    "rate_too_high": Fault(
        title="a learning rate 10 to 100 times too high",
        done=lambda healthy, amount: replace(healthy, lr=healthy.lr * amount.between(10, 100), clip=None),
        truth="learning_rate_too_high",
        acceptable=("missing_warmup",),
        slow=True,
    ),
    "rate_too_low": Fault(
        title="a learning rate 100 to 10,000 times too low",
        done=lambda healthy, amount: replace(healthy, lr=healthy.lr / amount.between(100, 10_000)),
        truth="learning_rate_too_low",
        acceptable=("optimizer_unsuited",),  # under plain descent: its rates are a hundred times Adam's
    ),
    "rate_raised": Fault(
        title="a learning rate that is raised 10 to 50 times in the middle",
        done=lambda healthy, amount: replace(healthy, rate=damage.change_rate(amount, amount.between(10, 50)), clip=None),
        truth="learning_rate_changed",
        acceptable=("learning_rate_too_high",),
        sudden=True,
        slow=True,
    ),
    "rate_creeps_up": Fault(
        title="a learning rate that grows from the middle on, to 20 to 100 times",
        on=lambda healthy: replace(healthy, schedule="constant", clip=None),
        done=lambda healthy, amount: replace(healthy, rate=damage.creep_up(amount, healthy.steps, amount.between(20, 100))),
        truth="warmup_never_ends",
        acceptable=("learning_rate_changed", "learning_rate_too_high"),
        sudden=True,
        slow=True,
    ),
    "queries_too_fast": Fault(
        title="queries and keys that learn 10 to 40 times faster than the rest",
        done=damage.hurry_queries,
        truth="attention_logits_grow",
        acceptable=("learning_rate_too_high", "saturated_attention"),
        suits=damage.has_queries,
        slow=True,
    ),
    "optimizer_unsuited": Fault(
        title="plain SGD with the learning rate of Adam",
        done=lambda healthy, _: replace(healthy, optimizer="sgd", momentum=0.0),
        truth="optimizer_unsuited",
        acceptable=("learning_rate_too_low",),
        suits=damage.is_adam,
    ),
    "schedule_too_short": Fault(
        title="a schedule that ends in the first third",
        done=lambda healthy, _: replace(healthy, schedule="linear", horizon=0.3, warmup=min(healthy.warmup, healthy.steps // 10)),
        truth="schedule_horizon_wrong",
        acceptable=("learning_rate_is_zero",),
    ),
    "part_drawn_anew": Fault(
        title="a part that is initialised anew in the middle",
        done=damage.once(shared.draw_part_anew),
        truth="weights_changed_outside_optimizer",
        acceptable=WRITTEN,
        is_fact=True,
        sudden=True,
        place=True,
    ),
    "matrix_zeroed": Fault(
        title="a matrix that is zeroed in the middle",
        done=damage.once(shared.zero_matrix),
        truth="weights_changed_outside_optimizer",
        acceptable=WRITTEN,
        is_fact=True,
        sudden=True,
        place=True,
    ),
    "half_zeroed": Fault(
        title="half of a matrix that is zeroed in the middle",
        done=damage.once(shared.zero_half_of_matrix),
        truth="weights_changed_outside_optimizer",
        acceptable=WRITTEN,
        is_fact=True,
        sudden=True,
        place=True,
    ),
    "weights_times_5": Fault(
        title="weights that are multiplied by five in the middle",
        done=damage.once(shared.multiply_weights),
        truth="weights_changed_outside_optimizer",
        acceptable=WRITTEN,
        is_fact=True,
        sudden=True,
    ),
    "gradient_nan": Fault(
        title="a gradient that is NaN at one step",
        done=damage.once(shared.spoil_gradient),
        truth="nonfinite_operation",
        acceptable=("silent_data_corruption", "bad_batch"),
        is_fact=True,
        sudden=True,
        place=True,
    ),
    "gradients_lost": Fault(
        title="a part whose gradients are thrown away",
        done=lambda healthy, _: replace(healthy, gradients=damage.gradient_hook(1, shared.lose_gradients, always=True)),
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
        done=lambda healthy, _: replace(healthy, gradients=damage.gradient_hook(1, shared.flip_gradients, always=True)),
        truth="loss_sign_flipped",
    ),
    "part_frozen": Fault(
        title="a part that asks for no gradient",
        done=lambda healthy, _: damage.built(healthy, shared.freeze_part),
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
        suits=damage.has_parts_within,
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
        slow=True,
    ),
    "clipped_to_nothing": Fault(
        title="a clipping limit far below every gradient",
        done=lambda healthy, amount: replace(healthy, clip=1e-2 / amount.between(1, 1_000)),
        truth="clip_limit_too_low",
    ),
    "clipped_by_value": Fault(
        title="gradients of which every element is clipped far below its size",
        done=lambda healthy, amount: replace(healthy, clip=None, clip_value=1e-4 / amount.between(1, 1_000)),
        truth="clip_limit_too_low",
        loop=True,
    ),
    "loss_summed": Fault(
        title="a loss that is the sum over a batch where a mean is meant",
        done=lambda healthy, _: replace(healthy, loss=damage.summed(healthy.loss, healthy.batch), clip=None),
        truth="loss_reduced_by_sum",
        acceptable=("learning_rate_too_high",),
        suits=lambda recipe: recipe.loss is not own_loss,
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
        done=lambda healthy, _: damage.built(healthy, shared.leave_norms_out),
        truth="normalization_missing",
        suits=damage.has_module(shared.is_norm),
    ),
    "units_saturated": Fault(
        title="activation functions that are driven into their flat ends",
        done=lambda healthy, _: damage.built(healthy, shared.saturate_activations),
        truth="saturating_activation",
        suits=damage.has_module(shared.is_activation),
        slow=True,
    ),
    "units_alike": Fault(
        title="a part whose matrices begin as one number",
        done=damage.make_units_alike,
        truth="symmetry_not_broken",
        is_fact=True,
        place=True,
    ),
    "softmax_twice": Fault(
        title="a model that puts out probabilities, of which the loss takes a softmax again",
        done=damage.apply_softmax,
        truth="softmax_applied_twice",
        suits=damage.ends_in_softmax,
    ),
    "weights_in_bfloat16": Fault(
        title="weights in bfloat16, which rounds small updates away",
        on=lambda healthy: replace(healthy, lr=healthy.lr / 5, precision="float32"),
        done=damage.keep_weights_in(torch.bfloat16),
        truth="updates_lost_to_rounding",
        suits=damage.runs_in(torch.bfloat16),
        slow=True,
    ),
    "weights_in_float16": Fault(
        title="weights and Adam's moments in float16, where its epsilon and small squares are zero",
        on=lambda healthy: replace(healthy, precision="float32"),
        done=damage.keep_weights_in(torch.float16),
        truth="nonfinite_operation",
        acceptable=("gradient_underflow", "updates_lost_to_rounding"),
        suits=lambda recipe: damage.is_adam(recipe) and damage.runs_in(torch.float16)(recipe),
    ),
    "loss_scale_too_high": Fault(
        title="a loss scale that doubles after every three good steps",
        on=lambda healthy: replace(healthy, precision="float16", through="loop"),
        done=lambda healthy, _: replace(healthy, scale_grows=3),
        truth="loss_scale_too_high",
        is_fact=True,
        loop=True,
        suits=damage.runs_under(torch.float16),
    ),
    "gradients_underflow": Fault(
        title="gradients that pass through float16 at a millionth to a ten thousandth of their size",
        done=lambda healthy, amount: replace(
            healthy, gradients=damage.gradient_hook(1, damage.underflow(amount.between(1e-6, 1e-4)), always=True)
        ),
        truth="gradient_underflow",
        is_fact=True,
    ),
    "units_dead": Fault(
        title="ReLUs of which nine in ten never fire",
        done=lambda healthy, _: damage.built(healthy, shared.kill_units),
        truth="dead_units",
        suits=damage.has_module(lambda module: isinstance(module, nn.ReLU)),
    ),
    "dropout_too_high": Fault(
        title="a dropout of 0.7 to 0.95",
        done=lambda healthy, amount: damage.built(
            healthy, lambda model: shared.raise_dropout(model, 0.7 + 0.25 * amount.strength)
        ),
        truth="dropout_too_high",
        suits=damage.has_module(shared.is_dropout),
    ),
    "evaluated_in_training_mode": Fault(
        title="validations with dropout and the statistics of the batch",
        done=lambda healthy, _: replace(healthy, eval_mode=False),
        truth="evaluation_in_training_mode",
        loop=True,
        suits=lambda recipe: recipe.held_out > 0 and damage.has_module(shared.is_dropout)(recipe),
    ),
}
