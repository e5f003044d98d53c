"""What attention heads do, and which of them do the same, from sampled maps where a checkpoint does not say."""

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.attention_maps import KINDS
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled
from ckaudit.metrics.sampled_maps import GRIDS, OF_HEADS, of_own_maps
from ckaudit.run.run import Run
from ckaudit.run.series import Series


@metric(unit="1", reads=["attention.*.nearest_similarity_per_head", *GRIDS, *OF_HEADS], source="playbook D3.2", memory=1)
def head_similarity(run: Run) -> Series:
    r"""Cosine of each head's attention to the most similar other head of its layer.

    $$\max_{g \ne h} \frac{\langle A_h, A_g \rangle}{\lVert A_h \rVert \lVert A_g \rVert}$$

    Shape (C, H): checkpoints by query heads, 0 to 1. Of whole maps where the checkpoint says it, else of the sampled grids
    of 32 by 32. Not recorded for a single head.
    """
    return filled(run.series("attention", "nearest_similarity_per_head"), of_own_maps(run, "nearest"))


@metric(
    unit="kind",
    reads=["attention.*.kind_per_head", *GRIDS, *OF_HEADS],
    source="playbook D2.5 and D3.1; Voita et al. 2019",
    memory=1,
)
def head_kind(run: Run) -> Series:
    r"""What each head mostly follows: 0 positional, 1 first token, 2 diagonal, 3 uniform, 4 content.

    $$\text{uniform: } H / \log K > 0.95, \quad \text{else the place with } \tfrac1Q \sum_q \alpha_{q,\cdot} > \tfrac12$$

    Shape (C, H): checkpoints by query heads. As the checkpoint says, else from the sampled grids, whose rows are scaled to
    sum to 1: first token and diagonal are the share of these columns, positional that of any other distance of up to 8
    samples. Of sequences longer than 32 a grid sees every n-th key, so that a head of the previous token looks like content.
    """
    return filled(run.series("attention", "kind_per_head"), of_own_maps(run, "kinds"))


@metric(unit="1", reads=[*GRIDS, *OF_HEADS], source="playbook D2.5 and D3.1", memory=1)
def sampled_evenness(run: Run) -> Series:
    r"""Entropy of each head's sampled map, relative to that of looking everywhere alike.

    $$h = \tfrac{1}{|Q|} \sum_q H_q / \log K_q$$

    Shape (C, H): checkpoints by query heads, 0 to 1; K are the sampled keys that a query sees. It needs no number of keys, but
    sees every n-th key only. Not recorded where the head's own entropy and largest weight say that the map is not its own.
    """
    return of_own_maps(run, "evenness")


@metric(unit="1", reads=[*GRIDS, *OF_HEADS], source="playbook, broken causal mask", memory=1)
def sampled_upper_mass(run: Run) -> Series:
    r"""Attention that the sampled queries of each head give to later sampled keys.

    $$\tfrac{1}{|Q|} \sum_q \sum_{k > q} \alpha_{q,k} \,/\, \sum_k \alpha_{q,k}$$

    Shape (C, H): checkpoints by query heads, 0 to 1; of square maps alone, in which the n-th query is the n-th key.
    """
    return of_own_maps(run, "later")


@metric(unit="1", reads=[head_kind], source="playbook D3.1", memory=1)
def head_kind_share(run: Run) -> Series:
    r"""Share of the heads of each kind.

    $$s_k = \tfrac1H \sum_h \mathbb{1}[\,\mathrm{kind}_h = k\,]$$

    Shape (C, 5): checkpoints by kinds: positional, first_token, diagonal, uniform, content; over the heads whose kind is
    known, where those are half of the heads with an entropy or more.
    """
    kinds = head_kind(run).recorded_rows()
    heads = max(len(kinds.labels), len(run.series("attention", "entropy_per_head").labels))
    enough = kinds.recorded.sum(axis=1) * 2 >= heads
    kinds = replace(kinds, steps=kinds.steps[enough], values=kinds.values[enough], recorded=kinds.recorded[enough])
    known = kinds.recorded.sum(axis=1)
    shares = [(kinds.recorded & (kinds.values == place)).sum(axis=1) / known for place in range(len(KINDS))]
    values = np.array(shares).reshape(len(KINDS), -1).T
    return Series("head_kind_share", "1", kinds.steps, KINDS, values, np.ones(values.shape, bool))
