"""WGT004: initial weights are far from the usual scale."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.weights import weight_std
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.series import Series
from ckaudit.run.tensors import table_of


@rule("WGT004", severity="sev2", needs=[weight_std, FACTS], unit="1", memory=1)
def weight_scale_off(
    std: Series, facts: Manifest, *, min_gain: float = 0.01, max_gain: float = 2.8, single_ratio: float = 3.0
) -> Iterator[Hit | Skip]:
    r"""Initial weights are far from the usual scale.

    ## What it checks
    At step 0 the gain of each matrix, $\sigma\sqrt{\mathrm{fan\,in}}$: 0.58 for the default of PyTorch, 1 and 1.4 after
    Glorot and He, 0.02 times the root of the width for the GPTs (0.14 to 1.3). The median matrix below `min_gain` or above
    `max_gain`, twice the largest of these, is sev2 (300 healthy trainings of 50 families: 0.15 to 0.83); a single matrix above
    `single_ratio` times the highest, or above `max_gain` while the median is not, is noted.
    ## Why it matters
    Far too large, outputs saturate and the first losses are huge; far too small, hardly any gradient comes back.
    ## False alarms
    Projections that start at zero by design are left out, and so are embeddings. A run that goes on from trained weights
    has none of the usual scales, and is judged by the same wide band.
    """
    if not len(std.steps) or std.steps[0] != 0:
        yield Skip("not_recorded", "needs a checkpoint of step 0")
        return
    gains = _gains(std, facts)
    if not gains:
        yield Skip("not_recorded", "needs the shapes of the matrices")
        return
    middle = median(list(gains.values()))
    if not min_gain <= middle <= max_gain:
        yield _at_start(
            "sev2",
            "median matrix",
            middle,
            max_gain if middle > max_gain else min_gain,
            "the initial gain of the median matrix is {value:.2g}, beyond {limit:.2g}: the usual is 0.1 to 1.4",
        )
        return
    for name, gain in gains.items():
        if gain > max_gain * (single_ratio if middle > 1 else 1.0):
            message = "the initial gain of {where} is {value:.2g}, while that of the median matrix is " + f"{middle:.2g}"
            yield _at_start("note", name, gain, max_gain, message)


def _at_start(severity: Severity, where: str, gain: float, limit: float, message: str) -> Hit:
    """Return a hit of step 0."""
    return Hit.at([0], severity, message, where=where, value=gain, limit=limit, worst=0)


def _gains(std: Series, facts: Manifest) -> dict[str, float]:
    """Return the gain of each matrix at step 0, zero ones left out."""
    tensors = table_of(facts)
    gains = {}
    for column, name in enumerate(std.labels):
        fact = tensors.facts.get(name)
        shape = fact.shape if fact is not None and fact.shape is not UNSET else ()
        if len(shape) >= 2 and tensors.kind(name) != "embedding" and std.finite[0, column] and std.values[0, column] > 0:
            gains[name] = float(std.values[0, column] * np.sqrt(np.prod(shape[1:])))
    return gains
