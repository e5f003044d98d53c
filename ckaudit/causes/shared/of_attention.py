"""What causes ask of attention: how large its logits would be for their weights, and which tensors are its own."""

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
    return bool(names) and all(_makes_them(name, table) for name in names)


def _makes_them(name: str, table: TensorTable) -> bool:
    return is_query_or_key(name) or is_query_or_key(table.module(name))


def surplus(logit: Series, std: Series, table: TensorTable) -> float | None:
    r"""Return how many times larger the first recorded logits are than their weights make them; None where it cannot be told.

    Queries and keys of a normed input have elements of spread $g_q$ and $g_k$, the gains of their matrices,
    $\sigma\sqrt{\mathrm{fan\,in}}$; over the root of the head's width their products have a spread of $g_q g_k$, as long as
    the two know nothing of each other.
    """
    if not len(logit.steps) or not len(std.steps):
        return None
    spread = at(std, logit.steps[:1]).values[0]
    found = []
    for column, label in enumerate(logit.labels):
        depth = table.depth(label.partition("/")[0])
        gains = [
            float(spread[place] * np.sqrt(np.prod(fact.shape[1:])))
            for place, name in enumerate(std.labels)
            if _makes_them(name, table)
            and table.depth(name) == depth
            and (fact := table.facts.get(name)) is not None
            and fact.shape
            and len(fact.shape) >= 2
        ]
        value = abs(float(logit.values[0, column]))
        if gains and np.isfinite([*gains, value]).all() and min(gains) > 0:
            found.append(value / (max(gains) * min(gains)))
    return max(found) if found else None
