"""WGT003: the elements, rows or columns of a weight matrix are all equal."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.weights import matrices_begun_at_zero, row_spread, weight_norm, weight_rms, weight_std
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.series import Series, at
from ckaudit.run.spans import spans
from ckaudit.run.tensors import TensorTable, table_of


@rule("WGT003", severity="sev2", needs=[weight_std], wants=[FACTS, weight_norm, weight_rms, row_spread], unit="1")
def weights_alike(
    std: Series,
    facts: Manifest | None,
    norm: Series | None,
    rms: Series | None,
    apart: Series | None,
    *,
    min_relative_std: float = 1e-6,
    min_points: int = 2,
) -> Iterator[Hit | Skip]:
    r"""The rows or columns of a weight matrix are all equal.

    ## What it checks
    Whether the elements, the rows or the columns of trainable matrices are all equal:

    - The standard deviation of a matrix over the root mean square of its elements is below `min_relative_std` (the rounding of
      float32) at `min_points` checkpoints in a row: all its elements are one number.
    - Step 0 is enough for a weight of several rows and columns that is no gain: its columns may part later, as the inputs do, and
      its rows never.
    - Where elements were sampled: the rows, or the columns, differ by less than `min_relative_std` at `min_points` checkpoints in
      a row.
    - All matrices but embeddings, two at least, are zero at the first checkpoint.
    ## Why it matters
    Units with equal weights get equal gradients and stay copies of each other: the matrix has rank one for good.
    ## False alarms
    Some tensors begin with equal elements, as they should:

    - Gains and biases start equal, in tables of many layers too, and so do rates of state-space models: only matrices that belong
      to no normalization are judged.
    - At step 0, and by samples, only matrices that multiply an input are judged: those that are called a weight or a kernel.
    - One matrix of zeros among others is how adapters and residual branches begin, and all that a linear model has.
    - One matrix alone of equal rows and unknown shape may have a single row: a note.
    """
    yield from too_few(std, min_points)
    tensors = table_of(facts)
    judged = std.only(lambda name: tensors.is_matrix(name) and tensors.is_trainable(name))
    yield from _all_zero(rms if rms is not None else norm, tensors)
    if not judged.labels and apart is None:
        yield Skip("not_recorded", "needs the shapes of the matrices")
        return
    of_one_number = list(_of_one_number(judged, norm, tensors, min_relative_std, min_points)) if norm is not None else []
    yield from of_one_number
    if apart is not None:
        reported = {hit.where for hit in of_one_number}
        rows = apart.only(lambda name: _multiplies(name) and name not in reported)
        yield from _of_equal_rows(rows, tensors, min_relative_std, min_points)


def _multiplies(name: str) -> bool:
    """Tell whether a tensor multiplies an input, by its name.

    >>> _multiplies("layer.0.fc.weight"), _multiplies("rnn.weight_hh_l0"), _multiplies("mixer.A_log")
    (True, True, False)
    """
    return any(word in name.rpartition(".")[2] for word in ("weight", "kernel"))


def _of_equal_rows(apart: Series, tensors: TensorTable, min_relative_std: float, min_points: int) -> Iterator[Hit]:
    """Yield matrices whose sampled rows are all equal, or whose columns are.

    One matrix alone of unknown shape may have a single row, which a sample of a fixed size repeats.
    """
    alike = list(spans(apart, apart.values < min_relative_std, min_points=min_points))
    is_alone = len({span.label for span in alike}) == 1
    for span in alike:
        severity: Severity = "note" if is_alone and span.label not in tensors.facts else "sev2"
        message = "the rows of {where} are all equal, or its columns: they differ by {value:.2g} of its size"
        yield Hit.over(span, severity, message, badness=-apart.values, value=apart.values, limit=min_relative_std)


def _of_one_number(std: Series, norm: Series, tensors: TensorTable, min_relative_std: float, min_points: int) -> Iterator[Hit]:
    """Yield matrices whose elements are all one number that is not zero."""
    sizes = dict(zip(std.labels, tensors.elements(std.labels), strict=True))
    judged = std.only(lambda name: sizes[name] > 1 and name in norm.places)
    places = [norm.places[name] for name in judged.labels]
    mean_square = at(norm, judged.steps).values[:, places] / np.sqrt([sizes[name] for name in judged.labels])
    with np.errstate(all="ignore"):
        spread = judged.values / mean_square
    for span in spans(judged, (spread < min_relative_std) & (mean_square > 0), min_points=1):
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


def _all_zero(size: Series | None, tensors: TensorTable) -> Iterator[Hit]:
    """Yield matrices that are all zero at the first checkpoint: no signal passes through two of them, forward or back."""
    names = matrices_begun_at_zero(size, tensors)
    if size is None or len(names) < 2:
        return
    step = int(size.steps[0])
    yield Hit(
        severity="sev2",
        where=names[0],
        also=names[1:],
        first=step,
        last=step,
        points=1,
        value=0.0,
        limit=0.0,
        message=f"all {len(names)} matrices are zero at step {step}: no signal passes through them",
    )


def _is_full(tensors: TensorTable, name: str) -> bool:
    """Tell whether a tensor has several rows and several columns, and is no gain."""
    shape = tensors.facts[name].shape
    has_both = shape is not UNSET and sum(size > 1 for size in shape) > 1
    return has_both and tensors.kind(name) != "norm" and _multiplies(name)
