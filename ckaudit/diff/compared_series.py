"""What is looked at when two runs are compared: quantities that have no noise, those of the whole run, and those of places."""

from collections.abc import Mapping

from ckaudit.diff.timing_fields import RANK_FACTS, SECTIONS, tells_time
from ckaudit.metrics import Metric
from ckaudit.metrics.activations import activation_rms
from ckaudit.metrics.attention import attn_entropy
from ckaudit.metrics.gradients import grad_global_norm, gradient_norm
from ckaudit.metrics.loss import slice_val_loss, train_loss_raw, val_loss
from ckaudit.metrics.optimizer import grad_clip_rate, learning_rate
from ckaudit.metrics.progress import tokens_per_update, tokens_seen
from ckaudit.metrics.speed import step_time, tokens_per_sec
from ckaudit.metrics.weights import update_norm, update_to_weight, update_to_weight_global, weight_norm

EXACT: tuple[Metric, ...] = (learning_rate, tokens_per_update)
"""Decided by the configuration, not by chance."""

WHOLE: Mapping[Metric, float] = {train_loss_raw: 0.2, grad_global_norm: 0.4, update_to_weight_global: 0.4, val_loss: 0.4}
"""One number of the whole run; where it leaves the band, the runs part. With each what a seed does to its level, over the
noise of one point: see docs/diff-calibration.md."""

PLACES: tuple[Metric, ...] = (activation_rms, attn_entropy, gradient_norm, update_norm, update_to_weight, weight_norm)
"""A number of each tensor, layer or head, in the order in which a step computes them."""

ASKED: tuple[Metric, ...] = (slice_val_loss, grad_clip_rate, tokens_seen, step_time, tokens_per_sec)
"""What the questions look at besides."""

NAMES: Mapping[str, str] = {
    "activations.*.rms": "activation_rms",
    "attention.*.entropy_per_head": "attn_entropy",
    "gradients.*.norm": "gradient_norm",
    "weights.*.frobenius_norm": "weight_norm",
    "weight_deltas.*.relative": "update_to_weight",
}
"""Paths that are a metric as they stand, one of each section: what follows the parting is told by these alone."""

ORDER = (
    "data",
    "learning_rate",
    "activations",
    "attention",
    "train_loss_raw",
    "gradients",
    "grad_global_norm",
    "weight_deltas",
    "weights",
    "optimizer",
)
"""How a step comes about: what stands first can be the reason of what stands behind."""


def reads() -> frozenset[str]:
    """Return the checkpoint paths that a comparison looks at."""
    return frozenset[str]().union(*(metric.paths for metric in (*EXACT, *WHOLE, *PLACES, *ASKED)))


def is_of_machine(path: str) -> bool:
    """Tell whether a scalar or a path into the checkpoints tells of the machine and not of the training."""
    section, _, rest = path.partition(".")
    return tells_time(path) or section in SECTIONS or (section == "rank_facts" and rest in RANK_FACTS)


def place_in_step(path: str) -> int:
    """Return how early in a step a quantity comes about."""
    section = path.partition(".")[0]
    return ORDER.index(section) if section in ORDER else len(ORDER)
