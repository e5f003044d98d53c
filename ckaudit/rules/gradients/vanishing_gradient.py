"""GRAD001: the gradient shrinks on its way back to the early blocks."""

from collections.abc import Iterator, Sequence

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.contract.schema.tensor_names import is_bias
from ckaudit.metrics.gradients import block_gradient_norm, gradient_norm
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.weights import weight_rms
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.series import Floats, Mask, Series
from ckaudit.run.spans import Span, spans
from ckaudit.run.tensor_groups import alike_blocks
from ckaudit.run.tensors import TensorTable, last_of_stack, table_of


@rule("GRAD001", severity="sev2", needs=[block_gradient_norm], wants=[gradient_norm, weight_rms, FACTS], unit="1")
def vanishing_gradient(
    norm: Series,
    by_tensor: Series | None,
    rms: Series | None,
    facts: Manifest | None,
    *,
    note_ratio: float = 10.0,
    max_ratio: float = 100.0,
    initial_ratio: float = 20.0,
    initial_steps: int = 20,
) -> Iterator[Hit | Skip]:
    """The gradient shrinks on its way back to a block.

    ## What it checks
    At each checkpoint the rule divides the last block's gradient norm, or the median block's where that is larger, by each
    block's own. It compares blocks of one build.

    - Blocks are of one build where their tensors have the same shapes or, where no shapes are recorded, the same names and
      elements of a similar size.
    - A ratio up to `note_ratio` is ordinary (playbook D1.2); a larger one is a note.
    - A ratio above `max_ratio` is sev2: the block is starved (playbook D4.2).
    - A ratio above `note_ratio` at the first two checkpoints, and above `initial_ratio` within the first `initial_steps` steps,
      is sev2: the model is built so, and no training has made it.
    - Residual models of the lab begin below 2, an embedding below a plain stack of layers at 13.
    - A block of another build than the last one is a note. It is judged by `max_ratio` where blocks of one build show at the same
      checkpoint that the gradient shrinks, or where its ratio exceeds the square of `max_ratio`.
    ## Why it matters
    A block that gets a hundred times less gradient than the last one barely trains, while the loss still falls.
    ## False alarms
    Some blocks are rightly different:

    - Embedding, head and final norm are no blocks. Each list of blocks, as an encoder's, ends in a last block of its own: a
      policy and its critic say nothing of each other.
    - A model of one block has no depth to lose gradient in.
    - The size of a block's gradient depends on width, resolution and the scale of its weights too. Stages of a convolutional
      network or a U-Net, or branches that begin scaled by a millionth, differ a hundredfold and learn alike, above all under
      Adam.
    - A block that holds such a small scale is only compared with others of its build.
    - A block that is starved at first and never again has outgrown such a start: a note.
    - A single checkpoint is one batch's gradient: a note.
    """
    if len(norm.labels) < 2:
        yield Skip("not_applicable", "the model has fewer than two blocks")
        return
    ends = last_of_stack(norm.labels)
    table = table_of(facts)
    alike = alike_blocks(norm.labels, table, by_tensor, rms)
    with np.errstate(all="ignore"):
        ratio = _usual(norm, alike) / norm.values  # (T, L)
        apart = norm.values[:, ends] / norm.values
    apart[:, _scaled_down(norm.labels, rms, table)] = np.nan
    shrinks = (ratio > max_ratio).any(axis=1, keepdims=True)
    unlike = (apart > max_ratio) & (shrinks | (apart > max_ratio**2))
    ratio = np.where(unlike & ~(ratio > max_ratio), apart, ratio)
    for span in spans(norm, ratio > max_ratio):
        later = ratio[span.rows[-1] + 1 :, span.column]
        is_outgrown = span.rows[0] == 0 and len(later) > 0 and not (later > max_ratio).any()
        is_passing = span.points == 1 and len(later) > 0
        yield _starved(span, ratio, max_ratio, _other(span, alike), "note" if is_outgrown or is_passing else "sev2")
    for span in spans(norm, (ratio > note_ratio) & (ratio <= max_ratio)):
        begun = norm.steps[span.rows] <= initial_steps
        born = span.rows[0] == 0 and span.points > 1 and bool((ratio[span.rows, span.column] > initial_ratio)[begun].any())
        yield Hit.over(
            span,
            "sev2" if born else "note",
            f"{{where}} gets {{value:.3g}}x less gradient than {_other(span, alike)}"
            + (" from the first step on" if born else "")
            + "; within {limit:.0f}x is ordinary",
            badness=ratio,
            limit=note_ratio,
        )
    yield from _of_another_build(norm, apart, (apart > note_ratio) & ~(ratio > note_ratio), note_ratio)


def _scaled_down(blocks: Sequence[str], rms: Series | None, table: TensorTable, *, max_scale: float = 0.1) -> Mask:
    """Return which blocks multiply their output by a small learnt scale (Touvron et al. 2021)."""
    if rms is None:
        return np.zeros(len(blocks), bool)
    first = row_medians(np.where(rms.finite, rms.values, np.nan).T)
    scales = [
        name
        for name, size in zip(rms.labels, first, strict=True)
        if 0 < size < max_scale and table.is_vector(name) and not is_bias(name)
    ]
    return np.array([any(name.startswith(f"{block}.") for name in scales) for block in blocks])


def _usual(norm: Series, alike: Mask) -> Floats:
    """Return what each block is compared with, shape (T, L): the last block of its build, or their median where that is more."""
    known = np.where(norm.finite, norm.values, np.nan)
    usual = np.empty(known.shape)
    kinds: dict[bytes, list[int]] = {}
    for block, others in enumerate(alike):
        kinds.setdefault(others.tobytes(), []).append(block)
    for members in kinds.values():
        others = alike[members[0]]
        usual[:, members] = np.fmax(known[:, np.flatnonzero(others)[-1]], row_medians(known[:, others]))[:, None]
    return usual


def _other(span: Span, alike: Mask) -> str:
    """Return in words what a block is compared with: the last block of a build cannot be compared with itself."""
    like = np.flatnonzero(alike[span.column])
    return "the median block" if len(like) > 1 and like[-1] == span.column else "the last block"


def _starved(span: Span, ratio: Floats, limit: float, other: str, severity: Severity) -> Hit:
    none = np.isinf(ratio[span.rows, span.column]).any()
    less = f"no gradient at all, and {other} does" if none else f"{{value:.3g}}x less gradient than {other}"
    return Hit.over(span, severity, f"{{where}} gets {less}; the limit is {{limit:.0f}}x", badness=ratio, limit=limit)


def _of_another_build(norm: Series, apart: Floats, less: Mask, limit: float) -> Iterator[Hit]:
    """Yield the blocks that get less gradient than a last block whose tensors have other shapes."""
    for span in spans(norm, less):
        yield Hit.over(
            span,
            "note",
            "{where} gets {value:.3g}x less gradient than the last block, which is built differently",
            badness=apart,
            limit=limit,
        )
