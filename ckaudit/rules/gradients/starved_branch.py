"""GRAD009: attention, MLP or one matrix of a block gets hardly any gradient beside its like."""

import re
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.tensor_names import is_bias, other_attention_projections
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.weights import weight_rms
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.series import Series, root_sum_square
from ckaudit.run.spans import spans
from ckaudit.run.tensor_groups import MIN_LIKE_BLOCKS, alike_blocks
from ckaudit.run.tensors import BRANCHES, TensorTable, table_of

SMALL_GAIN = 0.1
"""Gains of residual branches begin at 1e-6 to 0.1 (Touvron et al. 2021, table 1), those of normalizations at 1."""

VALUE_OR_OUTPUT = re.compile(r"(?<![a-z0-9])(?:v|wv|values?|o|wo|out|output|c_proj|dense|proj)(?![a-z0-9])")
"""Names of the matrices of attention that do not wait for another, unless they also say query or key."""

NO_MATRIX = ("bias", ".b")
"""Endings of the names of biases, whose gradients differ a thousandfold with what follows them."""


@rule("GRAD009", severity="sev2", needs=[gradient_norm], wants=[weight_rms, FACTS], unit="1")
def starved_branch(
    norm: Series, rms: Series | None, facts: Manifest | None, *, max_ratio: float = 100.0, warmup: int = 20, min_points: int = 2
) -> Iterator[Hit | Skip]:
    """Attention, MLP or one matrix of a block gets hardly any gradient beside its like.

    ## What it checks
    The rule compares gradient norms inside a block, at `min_points` checkpoints in a row after `warmup` steps.

    - The norm over all attention parameters of a block and the norm over its MLP differ by more than `max_ratio`: the smaller
      branch is starved (playbook D4.2; healthy blocks of the lab stay between 0.05 and 7).
    - A matrix is starved where its share of its block's gradient is more than `max_ratio` times below the median share of the
      same matrix in all blocks of one build. Queries and keys, which wait for each other, are left out.
    - Matrices are compared where at least three blocks have that build (in healthy families those of an MLP stay within 36, those
      of attention within 2).
    ## Why it matters
    What a starved branch adds to the stream does not count. A model without attention predicts from single tokens, and its loss
    stands far above what the context would tell.
    ## False alarms
    Some blocks and branches are left out:

    - A gradient that is exactly zero is that of a dead parameter. Frozen parameters have none, and branches that begin at zero
      are young.
    - A block with a gain that began below `SMALL_GAIN` is left out: the gain is meant to grow (LayerScale).
    - Blocks that are built differently, as the stages of a convolutional network, are not compared.
    """
    table = table_of(facts)
    branches = norm.grouped([table.branch(name) for name in norm.labels], root_sum_square)
    known = {*branches.labels}
    blocks = [block for block in dict.fromkeys(map(_block, branches.labels)) if {f"{block}/{kind}" for kind in BRANCHES} <= known]
    if not blocks:
        yield Skip("not_applicable", "no block has both attention and an MLP")
        return
    young = _with_a_small_gain(rms, table)
    ratio = _other_over_own(branches, [block for block in blocks if block not in young])
    for span in spans(ratio, (ratio.values > max_ratio) & (ratio.steps > warmup)[:, None], min_points=min_points):
        kind = span.label.rpartition("/")[2]
        other = BRANCHES[1 - BRANCHES.index(kind)]
        yield Hit.over(
            span,
            "sev2",
            f"{{where}} gets {{value:.3g}}x less gradient than the {other} beside it; the limit is {{limit:.0f}}x",
            badness=ratio.values,
            limit=max_ratio,
        )
    lone = _beside_its_like(norm, rms, table, blocks)
    low = np.isfinite(lone.values) & (lone.values > max_ratio) & (lone.steps > warmup)[:, None]
    for span in spans(lone, low, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            "{where} gets {value:.3g}x less of its block's gradient than the same matrix in other blocks; "
            "the limit is {limit:.0f}x",
            badness=lone.values,
            limit=max_ratio,
        )


def _with_a_small_gain(rms: Series | None, table: TensorTable) -> frozenset[str]:
    """Return the blocks with a gain that began small; a gain is a vector that is no bias."""
    if rms is None or not len(rms.steps):
        return frozenset()
    gains = [name for name in rms.labels if name in table.facts and table.is_vector(name) and not is_bias(name)]
    first = {name: value for name, value in zip(rms.labels, rms.values[0].tolist(), strict=True) if value < SMALL_GAIN}
    return frozenset(block for name in gains if name in first and (block := table.block(name)) is not None)


def _other_over_own(branches: Series, blocks: list[str]) -> Series:
    """Return the gradient norm of the other branch of a block over that of each branch, shape (T, 2 L)."""
    order = [branches.places[f"{block}/{kind}"] for block in blocks for kind in BRANCHES]
    pairs = branches.values[:, order].reshape(len(branches.steps), len(blocks), 2)  # (T, L, 2)
    with np.errstate(all="ignore"):
        ratio = np.stack([pairs[..., 1] / pairs[..., 0], pairs[..., 0] / pairs[..., 1]], axis=2).reshape(len(pairs), -1)
    labels = tuple(branches.labels[place] for place in order)
    return replace(branches, labels=labels, values=ratio, recorded=branches.recorded[:, order])


def _beside_its_like(norm: Series, rms: Series | None, table: TensorTable, blocks: list[str]) -> Series:
    """Return a matrix's median share of its block's gradient in blocks of one build, over its own share: shape (T, N)."""
    alike = alike_blocks(blocks, table, norm, rms)
    whole = norm.grouped([table.block(name) for name in norm.labels], root_sum_square)
    matrices = norm.only(lambda name: table.block(name) in blocks and _is_comparable(name, table.kind(name)))
    homes, roles = [str(table.block(name)) for name in matrices.labels], table.roles(matrices.labels)
    ratio = np.full(matrices.values.shape, np.nan)
    with np.errstate(all="ignore"):
        share = matrices.values / whole.values[:, [whole.places[home] for home in homes]]
        kinds: dict[tuple[str, bytes], list[int]] = {}
        rows = {block: place for place, block in enumerate(blocks)}
        for column, (home, role) in enumerate(zip(homes, roles, strict=True)):
            kinds.setdefault((role, alike[rows[home]].tobytes()), []).append(column)
        for (role, mask), members in kinds.items():
            like = {blocks[place] for place in np.flatnonzero(np.frombuffer(mask, bool))}
            columns = [other for other, place in enumerate(homes) if place in like and roles[other] == role]
            if len(columns) >= MIN_LIKE_BLOCKS:
                ratio[:, members] = np.median(share[:, columns], axis=1, keepdims=True) / share[:, members]
    return replace(matrices, values=ratio)


def _is_comparable(name: str, kind: str) -> bool:
    """Tell whether a tensor is a matrix of an MLP, or a value or output projection."""
    if name.endswith(NO_MATRIX):
        return False
    is_projection = VALUE_OR_OUTPUT.search(name.lower()) is not None and other_attention_projections(name) is None
    return kind == "mlp" or (kind == "attention" and is_projection)


def _block(label: str) -> str:
    return label.partition("/")[0]
