"""One tensor's gradient sets the global norm."""

from collections.abc import Iterator

import numpy as np

from ckaudit.causes.cause import Findings, cause, contradicts, supports
from ckaudit.contract.report import Evidence
from ckaudit.metrics.gradients import gradient_share
from ckaudit.rules.exploding_gradient import exploding_gradient
from ckaudit.rules.frequent_clipping import frequent_clipping
from ckaudit.run.series import Series
from ckaudit.run.tensors import TensorTable


@cause(
    prior=-1.5,
    explains=[frequent_clipping, exploding_gradient],
    wants=[gradient_share],
    knob="Lower the learning rate or scale of that tensor alone, or regularise it; then look at what feeds it.",
    inspect="Gradient norm per tensor and the tail of that tensor's gradient histogram.",
    runbook="Save a checkpoint at a clipped step; compare the tensor's gradient with and without the batch's longest sample.",
)
def one_tensor_dominates(
    _: Findings, share: Series | None, *, most: float = 0.8, warmup: int = 100,
    strong: float = 3.0, medium: float = 1.0,
) -> Iterator[Evidence]:  # fmt: skip
    """One tensor makes up nearly all of the gradient norm, so clipping starves the others.

    The embedding carries 95 to 99 % of it in the first steps of every healthy run: the first `warmup` steps do not count.
    A tensor dominates with more than `most` of the squared norm.
    Weights are starting values, to be fitted on runs of known truth.
    """
    late = share.steps > warmup if share is not None else np.zeros(0, bool)
    if share is None or not late.any():
        return
    middle = np.nanmedian(np.where(share.finite, share.values, np.nan)[late], axis=0)  # (P,)
    top = int(np.nanargmax(middle))
    where, value = share.labels[top], float(middle[top])
    if value > most:
        weight = medium if TensorTable({}).kind(where) == "embedding" else strong
        yield supports(weight, f"{where} makes up {value:.0%} of the squared gradient norm", share.name)
    else:
        yield contradicts(strong, f"no tensor makes up more than {value:.0%} of the squared gradient norm", share.name)
