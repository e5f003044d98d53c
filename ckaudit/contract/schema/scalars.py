"""`ck.scalars.v1`: the file `scalars.jsonl`, one JSON object per line and optimizer step; its shares; its exported tables.

A line holds `step`, `time`, `session` and any number of values by their catalogue names. A label follows a slash:
"slice_val_loss/regular". Values are numbers, the words of `NonFinite`, or text for names and hashes; null means not recorded.
True and false are numbers only under the names of `FLAGS`, and words elsewhere.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType

from ckaudit.contract.schema.numbers import Count, NonNegative, Step, doc

VERSION = "ck.scalars.v1"

Value = float | str | bool | None

Unit = Literal["percent", "fraction"]

NAMES = frozenset(
    """
    tokens_seen steps_seen train_loss_raw train_loss_ema train_ppl learning_rate lr_phase tokens_per_update grad_global_norm
    grad_clip_rate update_to_weight opt_state_finite loss_scale overflow_rate skipped_updates grad_noise_scale
    grad_carried_over top_gradient_share clip_coefficient
    scaling_law_residual curvature_trace_est curvature_trace_error
    spectral_norm
    max_attn_logit attn_entropy residual_rms activation_outlier_rate logit_entropy_probe topk_mass_probe output_kl_to_prev
    min_normalized_entropy dead_head_fraction dead_unit_fraction residual_rms_p50 residual_rms_p99
    moe_drop_rate moe_util_entropy moe_load_balance_loss
    source_mix_share language_share filter_reject_rate bytes_per_token seq_len_p50_p95 pad_fraction token_kl_drift
    near_dup_rate train_val_overlap doc_repeat_hotspots batch_repeat_distance batch_reused held_out_rows_trained_on
    tokens_per_sec samples_per_sec step_time mfu gpu_util gpu_mem_used
    dataloader_stall_frac comm_time_frac compute_time_frac straggler_ratio
    data_toxicity_rate rtp_toxicity_prob rtp_prompt_stats pii_hit_rate memorization_rate
    val_loss val_ppl loss_part train_val_gap slice_val_loss fixed_probe_loss microbench_score eval_artifact_hash
    nan_inf_events checkpoint_ok checkpoint_time checkpoint_size restart_rate error_event_rate metrics_ingest_lag
    heartbeat_missing
    """.split()  # noqa: SIM905  one word a line would take five times the room
)
"""Names under which values are logged for rules and metrics."""

FLAGS = frozenset(
    {"batch_reused", "checkpoint_ok", "eval_in_training_mode", "opt_state_finite", "replay_identical", "train_in_eval_mode"}
)
"""Names whose value is 1 for yes and 0 for no, or true and false."""

NUMBERS = (NAMES | FLAGS) - {"eval_artifact_hash"}
"""Names whose values can only be numbers."""

SHARE_UNITS: Mapping[str, Unit] = {
    **dict.fromkeys(
        (
            "mfu",
            "dataloader_stall_frac",
            "comm_time_frac",
            "compute_time_frac",
            "source_mix_share",
            "language_share",
            "pad_fraction",
            "rtp_toxicity_prob",
            "grad_clip_rate",
        ),
        "fraction",
    ),
    **dict.fromkeys(
        (
            "gpu_util",
            "topk_mass_probe",
            "filter_reject_rate",
            "lr_phase",
            "overflow_rate",
            "moe_drop_rate",
            "activation_outlier_rate",
            "near_dup_rate",
            "train_val_overlap",
            "data_toxicity_rate",
            "pii_hit_rate",
            "memorization_rate",
        ),
        "percent",
    ),
}
"""Unit in which each logged share is assumed; the other unit is recognised by its range if possible."""

EXPORT_MARK = "ckaudit.export"
"""Metadata key of a Parquet or Arrow file, and writer of an event file, that mark exported scalars of ckaudit."""

EXPORTED_WORDS = ":text"
"""Suffix of the names of columns with words in such a table."""

EXPORT_KEYS = ("step", "session")
"""First columns of such a table, by which a CSV is recognised."""

EXPORT_SESSION = "_ckaudit_session"
"""Session column by which an exported history in the form of W&B is recognised."""


_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


def inert(text: str) -> str:
    """Return a CSV cell that no spreadsheet reads as a formula: with a leading apostrophe if it begins as one.

    >>> inert("=cmd|x"), inert("loss"), inert("'a")
    ("'=cmd|x", 'loss', "''a")
    """
    return f"'{text}" if text.startswith(_FORMULAS) else text


def as_written(cell: str) -> str:
    """Return the text from which `inert` made a cell.

    >>> as_written(inert("=cmd|x")), as_written("loss"), as_written("it's")
    ('=cmd|x', 'loss', "it's")
    """
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULAS) else cell


def is_number(name: str) -> bool:
    """Tell whether the values of a name, with or without a label, can only be numbers.

    >>> is_number("slice_val_loss/regular"), is_number("eval_artifact_hash"), is_number("my_phase")
    (True, False, False)
    """
    return name.partition("/")[0] in NUMBERS


def word_of(name: str, value: bool) -> str | None:
    """Return the word that a boolean is read as; None for a flag, of which it is the number 1 or 0.

    >>> word_of("grad_global_norm", False), word_of("opt_state_finite", True)
    ('false', None)
    """
    return None if name.partition("/")[0] in FLAGS else str(value).lower()


class ScalarLine(Struct, kw_only=True, omit_defaults=True):
    """The fixed part of a line; all its other members are values."""

    step: Annotated[Step, doc("Number of update attempts completed.", unit="steps")]
    schema_version: Annotated[
        Literal["ck.scalars.v1"] | UnsetType, doc("Version of the contract that the lines follow; in a session's first line.")
    ] = UNSET
    time: Annotated[NonNegative | UnsetType, doc("When the line was written, Unix time.", unit="s")] = UNSET
    session: Annotated[Count | UnsetType, doc("Number of the session that wrote the line; absent: 0.")] = UNSET


def in_unit(unit: Unit) -> str:
    """Return the names of the shares with one unit as a list for a sentence."""
    return ", ".join(sorted(name for name, share_unit in SHARE_UNITS.items() if share_unit == unit))
