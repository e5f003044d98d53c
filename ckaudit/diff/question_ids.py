"""Names of the questions that a difference between two runs can leave without an answer."""

PER_STEP = ("final_loss", "smoothed_loss", "steps_to_loss")
TRAINING = (*PER_STEP, "loss_at_equal_tokens", "loss_at_equal_time")
LOSSES = (*TRAINING, "validation_loss")
MACHINE = ("speed", "memory")
TENSORS = ("tensors",)
EXACT = ("exact",)
