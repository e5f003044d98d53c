"""Logged numbers that can be recomputed, and the nearest value that their raw numbers allow."""

from ckaudit.metrics import claims_of_checkpoints, claims_of_losses, claims_of_progress
from ckaudit.metrics.claims import CLAIMS, as_table, every_bound
from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series

_KINDS = (claims_of_checkpoints, claims_of_losses, claims_of_progress)
_READS = tuple(dict.fromkeys(path for claim in CLAIMS.values() for path in claim.reads))
_SOURCE = "catalogue, the definition of each name"


@metric(unit="1", reads=_READS, source=_SOURCE)
def claimed_value(run: Run) -> Series:
    r"""What the trainer logged of each number that can be recomputed, where it can be.

    $$c_t$$

    Shape (T, K): steps by names, "val_ppl"; each in its own unit. Speeds are means or medians over 50 lines, at the last
    of them.
    """
    return as_table("claimed_value", [(bounds.label, bounds.steps, bounds.claimed) for bounds in every_bound(run)])


@metric(unit="1", reads=_READS, source=_SOURCE)
def nearest_allowed_value(run: Run) -> Series:
    r"""What the raw numbers of the same run allow each logged number to be, at the nearest.

    $$\min(\max(c_t, l_t), h_t)$$

    Shape (T, K): as claimed_value, and equal to it where nothing is contradicted. The range from $l$ to $h$ holds rounding
    and every convention that the catalogue leaves open: which average of a loss, whether pads count, what a timer leaves out.
    """
    return as_table("nearest_allowed_value", [(bounds.label, bounds.steps, bounds.nearest) for bounds in every_bound(run)])
