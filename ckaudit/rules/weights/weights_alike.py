"""WGT003: the elements of a weight matrix are all equal."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.weights import weight_norm, weight_std
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.series import Series, at
from ckaudit.run.spans import spans
from ckaudit.run.tensors import TensorTable, table_of


@rule("WGT003", severity="sev2", needs=[weight_std, weight_norm, FACTS], unit="1")
def weights_alike(
    std: Series, norm: Series, facts: Manifest, *, min_relative_std: float = 1e-6, min_points: int = 2
) -> Iterator[Hit | Skip]:
    r"""The elements of a weight matrix are all equal.

    ## What it checks
    The standard deviation of each trainable matrix over the root mean square of its elements: below `min_relative_std` (the
    rounding of float32) at `min_points` checkpoints in a row, all its elements are one number. Step 0 is enough for a matrix of
    several rows and columns that is no gain: its columns may part later, as the inputs do, and its rows never.
    ## Why it matters
    Units with equal weights get equal gradients and stay copies of each other: the matrix has rank one for good.
    ## False alarms
    Gains and biases start equal, as they should, in tables of many layers too: only matrices are judged that belong to no
    normalisation. A matrix of zeros is another matter.
    """
    yield from too_few(std, min_points)
    tensors = table_of(facts)
    sizes = dict(zip(std.labels, tensors.elements(std.labels), strict=True))
    judged = std.only(
        lambda name: tensors.is_matrix(name) and sizes[name] > 1 and tensors.is_trainable(name) and name in norm.labels
    )
    if not judged.labels:
        yield Skip("not_recorded", "needs the shapes of the matrices")
        return
    places = [norm.labels.index(name) for name in judged.labels]
    mean_square = at(norm, judged.steps).values[:, places] / np.sqrt([sizes[name] for name in judged.labels])
    with np.errstate(all="ignore"):
        spread = judged.values / mean_square
    is_alike = (spread < min_relative_std) & (mean_square > 0)
    for span in spans(judged, is_alike, min_points=1):
        if span.points < min_points and not (span.first == 0 and _is_full(tensors, span.label)):
            continue
        yield Hit.over(
            span,
            "sev2",
            "the elements of {where} are all equal: their spread is {value:.2g} of their size",
            badness=-spread,
            value=spread,
            limit=min_relative_std,
        )


def _is_full(tensors: TensorTable, name: str) -> bool:
    """Tell whether a tensor has several rows and several columns, and is no gain."""
    shape = tensors.facts[name].shape
    return shape is not UNSET and sum(size > 1 for size in shape) > 1 and tensors.kind(name) != "norm"
