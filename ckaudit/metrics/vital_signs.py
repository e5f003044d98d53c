"""What is looked at with every step and every minute, by `watch` as by a report: the intensive-care panel of the playbook."""

PER_STEP = (
    "train_loss_raw",
    "train_loss_ema",
    "grad_global_norm",
    "update_to_weight_global",
    "loss_scale",
    "overflow_rate",
    "steps_seen",
    "tokens_seen",
    "max_attn_logit",
    "attn_entropy",
)
"""The playbook speaks of ten and names nine; the tenth is the loss as it is, of which a smoothed one shows too little."""
PER_MINUTE = (
    "tokens_per_sec",
    "step_time",
    "step_time_tail",
    "mfu",
    "dataloader_stall_frac",
    "comm_time_frac",
    "straggler_ratio",
)
