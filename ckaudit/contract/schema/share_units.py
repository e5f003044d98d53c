"""The unit of every share that may be logged: each has one."""

from collections.abc import Mapping
from typing import Literal

Unit = Literal["percent", "fraction"]

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
"""What a reader takes a logged share to be in; the other unit is recognised by its range where that is possible."""


def in_unit(unit: Unit) -> str:
    """Return the names of the shares of one unit as a list for a sentence."""
    return ", ".join(sorted(name for name, own in SHARE_UNITS.items() if own == unit))
