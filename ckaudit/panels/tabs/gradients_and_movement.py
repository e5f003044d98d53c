"""The tabs on gradients and movement: whether each layer gets a gradient, and which weights move by how much."""

from ckaudit.panels.annotations import threshold
from ckaudit.panels.tab import TabBuilder, tab

OF_GRADIENTS = (
    "block_gradient_norm",
    "waterfall_ratio",
    "gradient_zero_fraction",
    "grad_to_weight",
    "grad_global_norm",
    "gradient_share",
    "top_gradient_share",
    "grad_clip_rate",
    "clip_coefficient",
    "grad_noise_scale",
)
OF_MOVEMENT = ("relative_movement", "update_to_weight", "update_to_weight_global", "update_norm", "moving_share", "weight_std")


@tab(
    20,
    asks=("D1.2", "D4.2", "D4.3", "D4.4"),
    rules=("gradients_carried_over", "noise_scale_jump", "gradient_noise_too_high"),
    reads=OF_GRADIENTS,
)
def gradients(builder: TabBuilder) -> None:
    """Do gradients reach every layer?"""
    builder.heat("gradient_waterfall", "Does the gradient reach every block, at every step?", "block_gradient_norm", log=True)
    builder.bars("gradient_last", "What does each block get at the last checkpoint?", "block_gradient_norm", log=True)
    limits = threshold("GRAD001", "note_ratio", "max_ratio")
    builder.curves("waterfall_ratio", "How far are the blocks apart?", "waterfall_ratio", log=True, lines=limits)
    builder.curves("gradient_norm", "Does the gradient as a whole grow or vanish?", "grad_global_norm", log=True)
    builder.heat("gradient_zeros", "Which part of each gradient is exactly zero?", "gradient_zero_fraction")
    builder.heat("gradient_ratio", "How large is each gradient beside its weight?", "grad_to_weight", log=True)
    builder.curves(
        "gradient_share", "Does one tensor have it all?", "gradient_share", lines=threshold("GRAD007", "max_share"), max_curves=6
    )
    builder.curves("clipping", "How often is it clipped?", "grad_clip_rate", lines=threshold("CLIP001", "note_rate", "max_rate"))
    builder.ridges("gradient_ridges", "How are the gradients of a tensor spread, over time?", "gradients")
    builder.grids("gradient_grids", "Which parts of a matrix get gradient?", "gradients")


@tab(50, asks=("D1.5", "D2.6", "D3.4", "D3.6"), rules=("update_size_changed", "weights_not_as_saved"), reads=OF_MOVEMENT)
def movement(builder: TabBuilder) -> None:
    """What moved?"""
    builder.bars("movement_ranking", "Which weights moved most since the start?", "relative_movement", ranked=True)
    builder.heat("movement", "When did each tensor move?", "relative_movement")
    builder.heat("update_ratio", "How large is an update beside its weight?", "update_to_weight", log=True)
    builder.curves(
        "update_ratio_global",
        "Is the step of the whole model in its band?",
        "update_to_weight_global",
        log=True,
        lines=threshold("MOVE002", "min_ratio", "max_ratio"),
    )
    builder.curves("moving_share", "How many tensors take part?", "moving_share")
    builder.ridges("weight_ridges", "How are the weights of a tensor spread, over time?", "weights")
    builder.grids("weight_grids", "How does a matrix look, over time?", "weights")
