"""What only tells when something was written and how fast the machine was: two runs of one arithmetic differ in it."""

SECTIONS = frozenset({"time", "session", "cost", "history"})
"""Members of a checkpoint; the black box holds what the lines of its steps say, and a resume begins it anew."""

SCALARS = frozenset(
    {
        "time",
        "session",
        "schema_version",
        "step_time",
        "rank_step_time",
        "step_time_tail",
        "tokens_per_sec",
        "mfu",
        "gpu_util",
        "gpu_mem_used",
        "rank_memory",
        "dataloader_stall_frac",
        "comm_time_frac",
        "compute_time_frac",
        "straggler_ratio",
        "checkpoint_time",
        "checkpoint_size",
        "restart_rate",
        "error_event_rate",
        "metrics_ingest_lag",
        "heartbeat_missing",
        "file_ok",
        "file_bytes",
        "file_time",
        "recording_share",
        "recording_seconds",
        "log_silence",
    }
)
"""Scalars by their catalogue names."""

RANK_FACTS = frozenset({"step_time", "input_time", "compute_time", "comm_time", "heartbeat", "memory_used"})
"""Members of what only one rank knows."""


def tells_time(name: str) -> bool:
    """Tell whether a scalar, with its label or without, says nothing of the arithmetic.

    >>> tells_time("step_time/rank.3"), tells_time("train_loss_raw")
    (True, False)
    """
    return name.partition("/")[0] in SCALARS
