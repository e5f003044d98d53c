"""The table for a first look at gradients and attention: what is seen, what lies behind it, what to turn, where to look."""

from msgspec import Struct


class Look(Struct, frozen=True, kw_only=True):
    """One row of the table.

    Attributes:
        row: TRI-1 to TRI-5.
        name: In words_with_underscores.
        seen: What is seen, one sentence.
        behind: What most likely lies behind it.
        knob: What to change first.
        inspect: Where to look.
        rules: Names of the rules that see it.
        causes: Names of the causes that triage weighs for it, the row's own first.
        metrics: What `ckaudit metrics` shows of it.
    """

    row: str
    name: str
    seen: str
    behind: str
    knob: str
    inspect: str
    rules: tuple[str, ...]
    causes: tuple[str, ...]
    metrics: tuple[str, ...]


FIRST_LOOK = (
    Look(
        row="TRI-1",
        name="gradient_pinched_in_the_middle",
        seen="The gradient gets narrow at some block, and little of it reaches the blocks before.",
        behind="The path around the blocks is broken, or a norm or an activation function lets little through.",
        knob="Check the residual path: each block adds to its input; then the initial scale, then the norms' parameters.",
        inspect="Activation statistics of what enters and leaves each block, beside the gradient norm per layer.",
        rules=("vanishing_gradient",),
        causes=("residual_path_broken", "path_pinched", "saturating_activation", "gradient_path_cut"),
        metrics=("block_gradient_norm", "waterfall_ratio", "activation_rms"),
    ),
    Look(
        row="TRI-2",
        name="spike_after_a_calm_time",
        seen="The loss was calm, and jumps.",
        behind="The learning rate is too high for how sharply the loss bends here.",
        knob="Decay the learning rate sooner or lower its peak, or make the warm-up longer.",
        inspect="Size of the weight updates against the gradient norm, from some steps before the jump on.",
        rules=("loss_spike", "loss_rises"),
        causes=("learning_rate_too_high", "missing_warmup", "bad_batch"),
        metrics=("loss_over_median", "update_to_weight_global", "grad_global_norm"),
    ),
    Look(
        row="TRI-3",
        name="clipping_all_the_time",
        seen="The gradient is clipped at most of the steps.",
        behind="One tensor makes up nearly all of the norm that is compared with the limit.",
        knob="Find that tensor; lower its learning rate or scale, or regularise it.",
        inspect="Gradient norm of each tensor, and the outliers of its gradient histogram.",
        rules=("dominant_tensor", "frequent_clipping"),
        causes=("one_tensor_dominates", "clip_limit_too_low", "loss_reduced_by_sum"),
        metrics=("grad_clip_rate", "gradient_share", "clip_coefficient"),
    ),
    Look(
        row="TRI-4",
        name="attention_sharp_too_early",
        seen="Heads look at one token each, long before the model has learnt where to look.",
        behind="The logits of attention are on too large a scale, so that the softmax saturates.",
        knob="Check the QK-norm path and the scale of the logits; then the initial weights, then the learning rate.",
        inspect="Entropy of each head over time, beside its sampled QK grids.",
        rules=("entropy_collapse", "logit_growth"),
        causes=("saturated_attention", "attention_logits_grow", "learning_rate_too_high"),
        metrics=("normalized_attention_entropy", "max_attn_logit", "attn_entropy"),
    ),
    Look(
        row="TRI-5",
        name="some_parameters_hardly_move",
        seen="Some tensors are after many steps nearly where they were, while others have moved.",
        behind="A path is dead or hangs on a thin thread: masked, multiplied by zero, detached, or not in the optimizer.",
        knob="Inspect upstream gradients, from the loss to the first tensor with little; then mask logic and frozen parts.",
        inspect="The ranking of all tensors by relative movement, and the flow of the gradient on either side of the cut.",
        rules=("barely_moving", "layer_not_contributing", "dead_parameter", "frozen_parameter", "starved_branch"),
        causes=("dead_path", "path_weakly_coupled", "not_in_optimizer", "gradient_path_cut", "frozen_by_mistake"),
        metrics=("movement_rank", "relative_movement", "gradient_norm"),
    ),
)
