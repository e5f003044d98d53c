"""Faults that a training of any family can have, each with the cause to be named."""

from collections.abc import Mapping

import torch
from msgspec.structs import replace
from torch import nn

from ckaudit.lab.wild import damage
from ckaudit.lab.wild.data_faults import DATA_FAULTS
from ckaudit.lab.wild.fault import Fault, known
from ckaudit.lab.zoo.recipe import Resume, own_loss
from ckaudit.recorder.drill import damage as shared

FAULTS: Mapping[str, Fault] = {
    **DATA_FAULTS,
    "rate_too_high": known(
        "rate_too_high",
        done=lambda healthy, amount: replace(healthy, lr=healthy.lr * amount.between(10, 100), clip=None),
        slow=True,
    ),
    "rate_too_low": known(
        "rate_too_low", done=lambda healthy, amount: replace(healthy, lr=healthy.lr / amount.between(100, 10_000))
    ),
    "rate_raised": known(
        "rate_raised",
        done=lambda healthy, amount: replace(healthy, rate=damage.change_rate(amount, amount.between(10, 50)), clip=None),
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
    "part_detached": known("part_detached", done=damage.detach_part, suits=damage.has_parts_within),
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
        "decay_too_strong", done=lambda healthy, amount: replace(healthy, weight_decay=amount.between(2, 20)), slow=True
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
    "left_in_evaluation_mode": known(
        "left_in_evaluation_mode",
        done=lambda healthy, _: damage.built(healthy, shared.stay_in_evaluation_mode),
        loop=True,
        suits=damage.has_module(shared.is_batch_norm),
    ),
    "causal_masks_dropped": known(
        "causal_masks_dropped",
        done=lambda healthy, _: damage.built(healthy, shared.drop_causal_masks),
        suits=damage.reads_causally,
    ),
    "evaluated_in_training_mode": Fault(
        title="validations with dropout and the statistics of the batch",
        done=lambda healthy, _: replace(healthy, eval_mode=False),
        truth="evaluation_in_training_mode",
        loop=True,
        suits=lambda recipe: recipe.held_out > 0 and damage.has_module(shared.is_dropout)(recipe),
    ),
}
