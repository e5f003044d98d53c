"""PARITY001: the implementation does not compute what its reference computes."""

from collections.abc import Iterator, Mapping

import numpy as np

from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.parity import gradient_check_error, parity_loss_diff, parity_param_diff
from ckaudit.metrics.words import element_type
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule
from ckaudit.run.series import Floats, Series, at

LOSS: Mapping[str, float] = {"float64": 1e-6, "float32": 1e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Largest difference of two losses, in nats: the playbook's D1.4 for float32, for a coarser type its machine epsilon."""
PARAMETERS: Mapping[str, float] = {"float64": 1e-5, "float32": 1e-5, "float16": 1e-3, "bfloat16": 1.6e-2}
"""Largest relative difference of a weight: D1.4 for float32, the tolerances of torch.testing.assert_close for coarser types."""

_TYPES = {0: "float32", 1: "bfloat16", 2: "float16", 3: "float64"}  # the numbers of `element_type`
_COARSEST = ("bfloat16", "float16")


@rule(
    "PARITY001",
    severity="sev1",
    needs=[],
    wants=[parity_loss_diff, parity_param_diff, gradient_check_error, train_loss_raw, element_type],
    unit="1",
    memory=1,
)
def parity_broken(
    loss: Series | None,
    parameters: Series | None,
    gradient: Series | None,
    level: Series | None,
    types: Series | None,
    *,
    loss_limit: float = LOSS["float32"],
    param_limit: float = PARAMETERS["float32"],
    gradient_limit: float = 1e-4,
    note_factor: float = 10.0,
) -> Iterator[Hit | Skip]:
    """The implementation does not compute what its reference computes.

    ## What it checks
    How far the loss and the parameters are from those of a reference implementation on the same batch, and gradients from finite
    differences. Where the run computes in a coarser type, that type's own limits hold for loss and parameters. A difference is
    too large where one of these holds:

    - The loss differs by more than `loss_limit` nats or, above one nat, by more than that share of the loss (playbook D1.4, in
      float32).
    - A parameter differs by more than `param_limit` of its size (playbook D1.4, in float32).
    - A gradient differs by more than `gradient_limit` (in float64, Press et al. 2007, section 5.7).
    - A difference of up to `note_factor` times its limit is a note, for other orders of summation can make it. A larger one is
      sev1, and sev2 for gradients.
    ## Why it matters
    What is trained is not the model that was meant, and every later number describes another one.
    ## False alarms
    A comparison on another batch, in training mode or with dropout compares two different things.
    """
    if loss is None and parameters is None and gradient is None:
        yield needs_one_of(parity_loss_diff, parity_param_diff, gradient_check_error)
        return
    if loss is not None:
        limits = loss_limits(loss, level, types, loss_limit)
        yield from _apart(loss, limits, note_factor, "the loss differs from the reference's by {value:.3g}", "sev1")
    if parameters is not None:
        limits = np.full(len(parameters.steps), max(param_limit, PARAMETERS[coarsest_type(types)]))
        yield from _apart(parameters, limits, note_factor, "a parameter differs from the reference's by {value:.3g}", "sev1")
    if gradient is not None:
        limits = np.full(len(gradient.steps), gradient_limit)
        yield from _apart(gradient, limits, note_factor, "a gradient differs from finite differences by {value:.3g}", "sev2")


def coarsest_type(types: Series | None) -> str:
    """Return the coarsest element type that a run computes in, float32 where none is recorded."""
    seen = {_TYPES.get(int(number), "") for number in (np.unique(types.values[types.finite]) if types is not None else ())}
    return next((name for name in _COARSEST if name in seen), "float32")


def loss_limits(loss: Series, level: Series | None, types: Series | None, limit: float) -> Floats:
    """Return how far two losses may be apart at each step, shape (T,): a share of the loss where the loss is above one nat.

    Args:
        loss: Differences of the loss.
        level: The loss itself.
        types: Element types of the run.
        limit: The limit of one nat in float32.
    """
    sizes = np.ones(len(loss.steps))
    if level is not None and level.labels:  # the rounding of a loss grows with it
        sizes = np.maximum(1.0, np.nan_to_num(np.abs(at(level, loss.steps).values[:, 0]), nan=1.0))
    return max(limit, LOSS[coarsest_type(types)]) * sizes


def _apart(series: Series, limits: Floats, factor: float, message: str, gravest: Severity) -> Iterator[Hit]:
    """Yield the steps at which a difference is over its limit; the worst one sets the severity."""
    values = np.where(series.finite[:, 0], np.abs(series.values[:, 0]), 0.0) if series.labels else np.zeros(0)
    over = np.flatnonzero(values > limits)
    if not len(over):
        return
    place = int(np.argmax(values[over] / limits[over]))
    worst = int(over[place])
    yield Hit.at(
        series.steps[over],
        gravest if values[worst] > factor * limits[worst] else "note",
        message + "; the limit is {limit:.2g}",
        where=series.name,
        value=float(values[worst]),
        limit=float(limits[worst]),
        worst=place,
    )
