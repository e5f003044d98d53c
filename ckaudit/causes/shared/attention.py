"""Measures of attention for causes: which tensors make queries and keys, and logits larger than the weights explain."""

import re
from collections.abc import Iterable

import numpy as np

from ckaudit.run.series import Series, at
from ckaudit.run.tensors import TensorTable

_QUERY_KEY = re.compile(
    r"(^|[._])(w?[qk]|[qk]_proj|q_?k_?v(_proj)?|query|key|query_key_value|c_attn|in_proj\w*)([._]|$)", re.IGNORECASE
)


def is_query_or_key(name: str) -> bool:
    """Tell whether a tensor's name says that it makes queries or keys.

    >>> [is_query_or_key(name) for name in ("blocks.0.attn.q.weight", "h.0.attn.c_attn.weight", "blocks.0.attn.out.weight")]
    [True, True, False]
    """
    return _QUERY_KEY.search(name) is not None


def only_queries_and_keys(places: Iterable[str], table: TensorTable) -> bool:
    """Tell whether there are places, and all of them make queries or keys."""
    names = list(places)
    return bool(names) and all(_makes_query_or_key(name, table) for name in names)


def _makes_query_or_key(name: str, table: TensorTable) -> bool:
    return is_query_or_key(name) or is_query_or_key(table.module(name))


def logits_over_expected(logit: Series, std: Series, table: TensorTable) -> float | None:
    r"""Return the ratio of the first recorded logits to those that their weights explain; None where a number is missing.

    Queries and keys of a normed input have elements of spread $g_q$ and $g_k$, the gains of their matrices,
    $\sigma\sqrt{\mathrm{fan\,in}}$. Their products over the root of the head's width have a spread of $g_q g_k$ while queries
    and keys are independent of each other.
    """
    if not len(logit.steps) or not len(std.steps):
        return None
    spread = at(std, logit.steps[:1]).values[0]
    ratios = []
    for column, label in enumerate(logit.labels):
        depth = table.depth(label.partition("/")[0])
        gains = [
            float(spread[place] * np.sqrt(np.prod(fact.shape[1:])))
            for place, name in enumerate(std.labels)
            if _makes_query_or_key(name, table)
            and table.depth(name) == depth
            and (fact := table.facts.get(name)) is not None
            and fact.shape
            and len(fact.shape) >= 2
        ]
        value = abs(float(logit.values[0, column]))
        if gains and np.isfinite([*gains, value]).all() and min(gains) > 0:
            ratios.append(value / max(gains) / min(gains))  # the product of two small gains may be none
    ratios = [ratio for ratio in ratios if np.isfinite(ratio)]
    return max(ratios) if ratios else None
