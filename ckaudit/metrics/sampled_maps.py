"""Sampled maps of attention: read from the checkpoints, and held against what else is recorded of their heads."""

from collections.abc import Callable
from functools import cache

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.pairs import filled
from ckaudit.run.run import Grids, Run
from ckaudit.run.series import Floats, Mask, Series, Steps, at, empty

GRIDS = ("attention.*.sampled_qk_grid_32x32_per_head", "attention.*.sampled_qk_grid_32x32")
OF_HEADS = ("attention.*.entropy_per_head", "attention.*.max_attn_per_head")
UNIFORM_ABOVE = 0.95
"""Normalized entropy of a uniform head, the recorder's own bound."""


def of_own_maps(run: Run, judge: Callable[[Floats], Floats]) -> Series:
    """Apply a function to the maps of every sampled layer, and leave out the heads that contradict their map.

    A writer may sample something else than attention, or nothing. A map is not its head's own where it is even and the head is
    surely not, or where nearly all of the attention is on the sampled keys and yet the entropy is another.

    Args:
        run: The run.
        judge: From maps (H, q, k) to a number per head, NaN for unknown.
    """
    found = of_grids(run, judge)
    foreign = run.derived("foreign_maps", lambda: _foreign(run))
    if not foreign or not found:
        return found
    wrong = np.column_stack([_column_at(foreign, label, found.steps) for label in found.labels]) == 1
    return replace(found, values=np.where(wrong, np.nan, found.values), recorded=found.recorded & ~wrong)


def _foreign(run: Run, *, twice: float = 2.0, near: float = UNIFORM_ABOVE, apart: float = 1.3, nats: float = 0.3) -> Series:
    """Return 1 for each head whose map is not its own, by its entropy and its largest weight.

    An even head gives each key exp(-H), and has no less entropy than an even one of the sampled keys alone. The first query of a
    causal head sees one key and gives it 1, which tells nothing.
    """
    entropy, largest = (run.series("attention", path.rpartition(".")[2]) for path in OF_HEADS)
    even, widest, own = (of_grids(run, judge) for judge in (evenness, _largest_entropy, _whole_entropy))
    if not entropy or not widest:
        return empty("foreign_maps")
    columns = []
    for label in widest.labels:
        mean, top, flat, most, mapped = (_column_at(each, label, widest.steps) for each in (entropy, largest, even, widest, own))
        chooses = ((top < 0.999) & (top > twice * np.exp(-mean))) | (mean < near * most)
        low, high = np.fmin(mean, mapped), np.fmax(mean, mapped)
        differs = np.isfinite(mean) & np.isfinite(mapped) & (high > apart * low) & (high > low + nats)
        columns.append(((flat > UNIFORM_ABOVE) & chooses) | differs)
    values = np.column_stack(columns).astype(float)
    return replace(widest, values=values, recorded=np.ones(values.shape, bool))


def _column_at(series: Series, label: str, steps: Steps) -> Floats:
    """Return one column of a series at other steps, shape (T,); NaN where it has none."""
    if label not in series.labels:
        return np.full(len(steps), np.nan)
    return at(series.only(label.__eq__), steps).values[:, 0]


def of_grids(run: Run, judge: Callable[[Floats], Floats]) -> Series:
    """Apply a function from the maps of a layer (H, q, k) to a number per head, NaN for unknown, to every sampled layer."""
    found: Series = empty("heads")
    for path in GRIDS:
        section, _, field = path.partition(".*.")
        found = filled(found, _by_step(run.grid(section, field), judge))
    return found


def _by_step(grids: Grids, judge: Callable[[Floats], Floats]) -> Series:
    found = zip(grids.steps, grids.labels, grids.values, strict=True)
    rows = [(step, label, judge(maps)) for step, label, maps in found if _are_shares(maps)]
    labels = tuple(dict.fromkeys(f"{label}/head.{head}" for _, label, heads in rows for head in range(len(heads))))
    place = {label: column for column, label in enumerate(labels)}
    steps = np.array(sorted({step for step, _, _ in rows}), np.int64)
    values = np.full((len(steps), len(labels)), np.nan)
    for step, label, heads in rows:
        columns = [place[f"{label}/head.{head}"] for head in range(len(heads))]
        values[np.searchsorted(steps, step), columns] = heads
    return Series("heads", "1", steps, labels, values, ~np.isnan(values))


def _are_shares(maps: Floats, *, rounding: float = 1e-2, most: float = 1.1) -> bool:
    """Tell whether maps are attention after softmax, (H, q, k): a writer may have sampled the scores before it.

    Args:
        maps: As sampled.
        rounding: Of one element.
        most: Sum of a row; 32 elements of one byte each are up to 0.06 off.
    """
    if maps.ndim != 3 or not maps.size:
        return False
    with np.errstate(all="ignore"):
        return not bool(np.any(maps < -rounding) or np.any(maps > 1 + rounding) or np.any(maps.sum(axis=2) > most))


def evenness(maps: Floats) -> Floats:
    """Return the normalized entropy of each head's map (H, q, k), NaN where it is not finite or empty."""
    return even_rows(maps)[2]


def even_rows(maps: Floats) -> tuple[Floats, Mask, Floats]:
    """Return the maps with rows that sum to 1, of queries that see two keys or more; which queries; the evenness of each head."""
    seen = _seen(maps)
    rows: Mask = seen.sum(axis=1) > 1
    with np.errstate(all="ignore"):
        shares = (maps / maps.sum(axis=2, keepdims=True))[:, rows]  # (H, q, k)
        terms = np.where(shares > 0, shares * np.log(shares), np.where(np.isnan(shares), np.nan, 0.0))
        even = (-terms.sum(axis=2) / np.log(seen[rows].sum(axis=1))).mean(axis=1) if rows.any() else np.full(len(maps), np.nan)
    return shares, rows, even


def _largest_entropy(maps: Floats) -> Floats:
    """Return the entropy of an even head of the sampled keys for each map (H, q, k)."""
    seen = _seen(maps)
    return np.full(len(maps), float(np.log(seen.sum(axis=1)).mean()))


def _whole_entropy(maps: Floats, *, whole: float = 0.99) -> Floats:
    """Return the entropy of each head's map (H, q, k) where every row holds nearly all of the attention, else NaN."""
    with np.errstate(all="ignore"):
        terms = np.where(maps > 0, maps * np.log(maps), np.where(np.isnan(maps), np.nan, 0.0))
        means = -terms.sum(axis=2).mean(axis=1)
        return np.where((maps.sum(axis=2) >= whole).all(axis=1), means, np.nan)


def _seen(maps: Floats) -> Mask:
    """Return which keys each query sees: those before it alone, where all maps (H, q, k) keep to them."""
    _, queries, keys = maps.shape
    causal = queries == keys and not maps[:, ~earlier(keys)].any()
    return earlier(keys) if causal else _all_seen(queries, keys)


@cache
def _all_seen(queries: int, keys: int) -> Mask:
    return np.ones((queries, keys), bool)


@cache
def earlier(size: int) -> Mask:
    """Return which keys a query of a causal map sees: itself and those before."""
    return np.tril(_all_seen(size, size))
