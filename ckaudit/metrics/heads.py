"""Kind and similarity of attention heads, from sampled maps if a checkpoint does not record them."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple, get_args

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.checkpoint import HeadKind
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled
from ckaudit.run.run import Grids, Run
from ckaudit.run.series import Floats, Mask, Series, Steps, at, empty

GRIDS = ("attention.*.sampled_qk_grid_32x32_per_head", "attention.*.sampled_qk_grid_32x32")
OF_HEADS = ("attention.*.entropy_per_head", "attention.*.max_attn_per_head")

AT_ONCE = 1 << 17
"""Elements that are measured together: a megabyte, which fits into a processor's cache."""

KINDS: tuple[HeadKind, ...] = get_args(HeadKind)

UNIFORM_ABOVE = 0.95
"""Normalized entropy above which a head is uniform, the recorder's own limit."""
SMALLEST = float(np.finfo(np.float64).tiny)


@metric(unit="1", reads=["attention.*.nearest_similarity_per_head", *GRIDS, *OF_HEADS], source="playbook D3.2", memory=1)
def head_similarity(run: Run) -> Series:
    r"""Cosine of each head's attention to the most similar other head of its layer.

    $$\max_{g \ne h} \frac{\langle A_h, A_g \rangle}{\lVert A_h \rVert \lVert A_g \rVert}$$

    Shape (C, H): checkpoints by query heads, 0 to 1. From whole maps if the checkpoint records it, else from the sampled grids of
    32 by 32. Not recorded for a single head.
    """
    return filled(run.series("attention", "nearest_similarity_per_head"), of_own_maps(run, "nearest"))


@metric(
    unit="kind",
    reads=["attention.*.kind_per_head", *GRIDS, *OF_HEADS],
    source="playbook D2.5 and D3.1; Voita et al. 2019",
    memory=1,
)
def head_kind(run: Run) -> Series:
    r"""Kind of position that each head mostly attends to: 0 positional, 1 first token, 2 diagonal, 3 uniform, 4 content.

    $$\text{uniform: } H / \log K > 0.95, \quad \text{else the place with } \tfrac1Q \sum_q \alpha_{q,\cdot} > \tfrac12$$

    Shape (C, H): checkpoints by query heads. From the checkpoint, else from the sampled grids with rows scaled to sum to 1: first
    token and diagonal are the share of these columns, positional that of any other distance of up to 8 samples. For sequences
    longer than 32 a grid holds every n-th key, so a head that attends to the previous token looks like content.
    """
    return filled(run.series("attention", "kind_per_head"), of_own_maps(run, "kinds"))


@metric(unit="1", reads=[*GRIDS, *OF_HEADS], source="playbook D2.5 and D3.1", memory=1)
def sampled_evenness(run: Run) -> Series:
    r"""Entropy of each head's sampled map, relative to that of uniform attention.

    $$h = \tfrac{1}{|Q|} \sum_q H_q / \log K_q$$

    Shape (C, H): checkpoints by query heads, 0 to 1; K are the sampled keys that a query sees. It does not need the number of
    keys, but covers only every n-th key. Not recorded if the head's own entropy and largest weight contradict the map.
    """
    return of_own_maps(run, "evenness")


@metric(unit="1", reads=[*GRIDS, *OF_HEADS], source="playbook, broken causal mask", memory=1)
def sampled_upper_mass(run: Run) -> Series:
    r"""Attention that the sampled queries of each head give to later sampled keys.

    $$\tfrac{1}{|Q|} \sum_q \sum_{k > q} \alpha_{q,k} \,/\, \sum_k \alpha_{q,k}$$

    Shape (C, H): checkpoints by query heads, 0 to 1; only for square maps, in which the n-th query is the n-th key.
    """
    return of_own_maps(run, "later")


@metric(unit="1", reads=[head_kind], source="playbook D3.1", memory=1)
def head_kind_share(run: Run) -> Series:
    r"""Share of the heads of each kind.

    $$s_k = \tfrac1H \sum_h \mathbb{1}[\,\mathrm{kind}_h = k\,]$$

    Shape (C, 5): checkpoints by kinds: positional, first_token, diagonal, uniform, content; over the heads of known kind, if
    those are at least half of the heads with an entropy.
    """
    kinds = head_kind(run).recorded_rows()
    heads = max(len(kinds.labels), len(run.series("attention", "entropy_per_head").labels))
    enough = kinds.recorded.sum(axis=1) * 2 >= heads
    kinds = replace(kinds, steps=kinds.steps[enough], values=kinds.values[enough], recorded=kinds.recorded[enough])
    known = kinds.recorded.sum(axis=1)
    shares = [(kinds.recorded & (kinds.values == place)).sum(axis=1) / known for place in range(len(KINDS))]
    values = np.array(shares).reshape(len(KINDS), -1).T
    return Series("head_kind_share", "1", kinds.steps, KINDS, values, np.ones(values.shape, bool))


# Sampled attention maps, read from the checkpoints and compared with other records of their heads.
def of_own_maps(run: Run, name: str) -> Series:
    """Return one field of `HeadNumbers` for every sampled layer, without the heads that contradict their map.

    A writer may sample something other than attention. A map does not belong to its head if it is uniform and the head is surely
    not, or if nearly all attention falls on the sampled keys and the entropy still differs.
    """
    measured = run.derived("measured_maps", lambda: _measured(run))
    series = measured[name]
    foreign = run.derived("foreign_maps", lambda: _foreign(run, measured))
    if not foreign or not series:
        return series
    wrong = _cells(foreign, series.labels, series.steps) == 1
    return replace(series, values=np.where(wrong, np.nan, series.values), recorded=series.recorded & ~wrong)


def _measured(run: Run) -> dict[str, Series]:
    """Return every measure of the maps of all layers, (C, H)."""
    measures: dict[str, Series] = dict.fromkeys(HeadNumbers._fields, empty("heads"))
    for path in GRIDS:
        section, _, field = path.partition(".*.")
        of_path = _by_step(run.grid(section, field))
        measures = {name: filled(measures[name], of_path[name]) for name in measures}
    return measures


def _foreign(
    run: Run, maps: dict[str, Series], *, twice: float = 2.0, near: float = UNIFORM_ABOVE, apart: float = 1.3, nats: float = 0.3
) -> Series:
    """Return 1 for each head whose map contradicts its entropy and its largest weight, else 0.

    A uniform head gives each key exp(-H), and its entropy is at least that of uniform attention to the sampled keys alone. The
    first query of a causal head sees one key and gives it 1, which shows nothing.
    """
    widest, entropy = maps["widest"], run.series("attention", "entropy_per_head")
    if not entropy or not widest:
        return empty("foreign_maps")
    beside = (entropy, run.series("attention", "max_attn_per_head"), maps["evenness"], widest, maps["entropy"])
    mean, top, flat, strongest, mapped = (_cells(series, widest.labels, widest.steps) for series in beside)
    chooses = ((top < 0.999) & (top > twice * np.exp(-mean))) | (mean < near * strongest)
    low, high = np.fmin(mean, mapped), np.fmax(mean, mapped)
    differs = np.isfinite(mean) & np.isfinite(mapped) & (high > apart * low) & (high > low + nats)
    values = (((flat > UNIFORM_ABOVE) & chooses) | differs).astype(float)
    return replace(widest, values=values, recorded=np.ones(values.shape, bool))


def _cells(series: Series, labels: tuple[str, ...], steps: Steps) -> Floats:
    """Return a series at other steps and labels, shape (T, P); NaN where it has no value."""
    values = at(series, steps).values
    if series.labels == labels:
        return values
    cells, place = np.full((len(steps), len(labels)), np.nan), {label: column for column, label in enumerate(series.labels)}
    known = [(column, place[label]) for column, label in enumerate(labels) if label in place]
    if known:
        ours, theirs = np.array(known).T
        cells[:, ours] = values[:, theirs]
    return cells


def _by_step(grids: Grids) -> dict[str, Series]:
    """Return every measure of the maps that are attention, by step and head."""
    measured = sorted(_measure_all(grids), key=lambda measured_row: measured_row[0])
    places = [(grids.steps[row], grids.labels[row], len(measures[0])) for row, measures in measured]
    heads = {(layer, count): [f"{layer}/head.{head}" for head in range(count)] for _, layer, count in places}
    labels = tuple(dict.fromkeys(label for names in heads.values() for label in names))
    place = {label: column for column, label in enumerate(labels)}
    columns = {key: np.array([place[label] for label in names]) for key, names in heads.items()}
    steps = np.array(sorted({step for step, _, _ in places}), np.int64)
    rows = {int(step): row for row, step in enumerate(steps)}
    table = np.full((len(HeadNumbers._fields), len(steps), len(labels)), np.nan)
    for (step, layer, count), (_, measures) in zip(places, measured, strict=True):
        table[:, rows[step], columns[layer, count]] = measures
    return {
        name: Series("heads", "1", steps, labels, values, ~np.isnan(values))
        for name, values in zip(HeadNumbers._fields, table, strict=True)
    }


def _measure_all(grids: Grids) -> Iterator[tuple[int, Floats]]:
    """Yield the row of each attention grid with all its measures, shape (measures, H), grouped by the shape of the grids."""
    shapes: dict[tuple[int, ...], list[int]] = {}
    for row, maps in enumerate(grids.values):
        if maps.ndim == 3 and maps.size:
            shapes.setdefault(maps.shape, []).append(row)
    for alike in shapes.values():
        count = max(1, AT_ONCE // grids.values[alike[0]].size)
        for start in range(0, len(alike), count):
            yield from _measure_some(alike[start : start + count], grids.values)


def _measure_some(rows: Sequence[int], values: Sequence[Floats]) -> Iterator[tuple[int, Floats]]:
    maps, places = np.stack([values[row] for row in rows]), np.array(rows)
    with np.errstate(all="ignore"):
        shares = are_shares(maps)
        causal = are_causal(maps)
        for kind in (True, False):
            if (chosen := shares & (causal == kind)).any():
                measures = np.stack(measure(maps if chosen.all() else maps[chosen], causal=kind), axis=1)  # (N, measures, H)
                yield from zip(places[chosen].tolist(), measures, strict=True)


# Measures of attention maps: many maps of one shape at once, shape (N, H, q, k).
class HeadNumbers(NamedTuple):
    """Measures of each head of each map, shape (N, H), NaN if a map does not show them.

    Attributes:
        nearest: Cosine to the most similar other head.
        kinds: Index in KINDS.
        evenness: Normalized entropy.
        later: Attention to later keys, for square maps.
        widest: Entropy of uniform attention to the sampled keys.
        entropy: Entropy of a map whose rows hold nearly all attention.
    """

    nearest: Floats
    kinds: Floats
    evenness: Floats
    later: Floats
    widest: Floats
    entropy: Floats


def are_shares(maps: Floats, *, rounding: float = 1e-2, max_row_sum: float = 1.1) -> Mask:
    """Tell which maps are attention after softmax, shape (N,); a writer may have sampled the scores before it.

    Args:
        maps: The sampled maps.
        rounding: Rounding error of one element.
        max_row_sum: Largest sum of a row; 32 elements of one byte each are up to 0.06 off.
    """
    outside = ((maps < -rounding) | (maps > 1 + rounding)).any(axis=(1, 2, 3))
    return np.asarray(~outside & ~(maps.sum(axis=3) > max_row_sum).any(axis=(1, 2)))


def are_causal(maps: Floats) -> Mask:
    """Return which maps have no query that sees a later key in any head, shape (N,)."""
    queries, keys = maps.shape[2:]
    if queries != keys:
        return np.zeros(len(maps), bool)
    return np.asarray(~((maps != 0) & ~earlier(keys)).any(axis=(1, 2, 3)))


def measure(maps: Floats, *, causal: bool) -> HeadNumbers:
    """Return all measures of some maps.

    Args:
        maps: Attention after softmax, sampled or whole.
        causal: Whether no query sees a later key.
    """
    queries, keys = maps.shape[2:]
    seen = earlier(keys) if causal else _all_seen(queries, keys)
    sums = maps.sum(axis=3)
    shares = maps / sums[..., None]
    even, kinds = _evenness_and_kinds(shares, seen)
    widest = np.full(sums.shape[:2], float(np.log(seen.sum(axis=1)).mean()))
    return HeadNumbers(_nearest(maps), kinds, even, _later(shares, causal=causal), widest, _entropy(maps, sums))


@cache
def earlier(size: int) -> Mask:
    """Return the mask of keys that each query of a causal map sees: its own and earlier ones."""
    return np.tril(_all_seen(size, size))


@cache
def _all_seen(queries: int, keys: int) -> Mask:
    return np.ones((queries, keys), bool)


def _evenness_and_kinds(shares: Floats, seen: Mask) -> tuple[Floats, Floats]:
    """Return normalized entropy and kind of each head, from the queries that see at least two keys."""
    rows = np.flatnonzero(seen.sum(axis=1) > 1)
    if not len(rows):
        nothing = np.full(shares.shape[:2], np.nan)
        return nothing, nothing
    shares = shares[:, :, rows[0] :]  # queries that see too few keys come first
    even = (-_terms(shares).sum(axis=3) / np.log(seen[rows].sum(axis=1))).mean(axis=2)
    return even, _kinds(shares, rows, even)


def _terms(shares: Floats) -> Floats:
    """Return p log p of each share, 0 for a share of 0."""
    return np.asarray(np.maximum(shares, 0.0) * np.log(np.maximum(shares, SMALLEST)))


def _entropy(maps: Floats, sums: Floats, *, whole: float = 0.99) -> Floats:
    entropy = np.full(sums.shape[:2], np.nan)
    complete = (sums >= whole).all(axis=2)
    entropy[complete] = -_terms(maps[complete]).sum(axis=2).mean(axis=1)
    return entropy


def _nearest(maps: Floats) -> Floats:
    flat = maps.reshape(*maps.shape[:2], -1)
    unit = flat / np.linalg.norm(flat, axis=2, keepdims=True)
    cosine = unit @ unit.transpose(0, 2, 1)
    heads = np.arange(maps.shape[1])
    cosine[:, heads, heads] = -np.inf
    nearest = cosine.max(axis=2)
    return np.where(np.isneginf(nearest), np.nan, nearest)


def _kinds(shares: Floats, rows: Steps, even: Floats, *, mass: float = 0.5, farthest: int = 8) -> Floats:
    """Return the index in KINDS of each head.

    Args:
        shares: Attention of the queries that count, shape (N, H, q, k), rows sum to 1.
        rows: Indexes of these queries.
        even: Normalized entropy of each head.
        mass: Share from which a head attends to one position (Voita et al. 2019), the recorder's own limit.
        farthest: Largest distance that counts as a position, in samples.
    """
    placed = _mass_at(shares, rows + np.arange(-farthest, farthest + 1)[:, None])
    near = np.delete(placed, farthest, axis=2).max(axis=2)
    first = shares[..., 0].mean(axis=2)
    return np.select(
        [np.isnan(even), even > UNIFORM_ABOVE, first > mass, placed[..., farthest] > mass, near > mass],
        [np.nan, 3.0, 1.0, 2.0, 0.0],
        4.0,
    )


def _mass_at(shares: Floats, columns: Steps) -> Floats:
    """Return the mean share of some columns, one per query, over the queries that have the column, shape (N, H, n).

    Args:
        shares: Shape (N, H, q, k).
        columns: Shape (n, q); outside 0 to k - 1: the query has no such column.
    """
    queries, keys = shares.shape[2:]
    inside = (columns >= 0) & (columns < keys)
    place = np.arange(queries) * keys + np.where(inside, columns, 0)
    taken = shares.reshape(*shares.shape[:2], -1).take(place, axis=2)
    return np.asarray(np.where(inside, taken, 0.0).sum(axis=3) / np.maximum(1, inside.sum(axis=1)))


def _later(shares: Floats, *, causal: bool) -> Floats:
    queries, keys = shares.shape[2:]
    if queries != keys or keys < 2:
        return np.full(shares.shape[:2], np.nan)
    unknown = 0 * shares.sum(axis=(2, 3))
    return np.asarray(unknown if causal else np.where(earlier(keys), 0.0, shares).sum(axis=3).mean(axis=2) + unknown)
