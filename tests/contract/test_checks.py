"""Contradictions: none in honest files however they are rounded, none for what was left out, and never a crash."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.checks import checks
from ckaudit.contract.checks.histograms import edges_of
from ckaudit.contract.contradictions import PERCENTILES_ARE_LEVELS, SAMPLE_STD
from ckaudit.contract.schema.checkpoint import BinRange, Histogram
from ckaudit.contract.violations import KINDS
from ckaudit.explain.names import KIND_MODULES
from tests.loops import for_each

EVERY_FIELD = Path(__file__).parents[2] / "fixtures/checkpoints/valid/every_field.json"
LEVELS = (1, 5, 25, 50, 75, 95, 99)


def codes(document: dict[str, Any], file: str = "x.json") -> set[str]:
    return {finding.code for finding in check_checkpoint(json.dumps(document).encode(), file).findings}


def of_weight(**entry: Any) -> set[str]:
    return codes({"schema_version": "ck.analysis.v1", "step": 1, "weights": {"a": entry}})


def digits(value: float, count: int) -> float:
    return float(f"{value:.{count}g}")


def bfloat16(value: float) -> float:
    """Cut a float32 to its upper sixteen bits, as the crudest conversion does."""
    bits = np.array(value, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return float(bits.view(np.float32))


def statistics(values: np.ndarray, write: Any) -> dict[str, Any]:
    """Everything the contract asks of a tensor, from one-pass float32 sums: the least exact way anyone computes them."""
    flat = values.astype(np.float32)
    total, squares = np.float32(0), np.float32(0)
    for part in np.array_split(flat, 8):
        total, squares = total + part.sum(dtype=np.float32), squares + np.square(part).sum(dtype=np.float32)
    mean = total / np.float32(flat.size)
    std = np.sqrt(max(squares / np.float32(flat.size) - mean * mean, np.float32(0)))
    low, high = float(flat.min()), float(flat.max())
    counts = np.histogram(flat.astype(np.float64), bins=16, range=(low, high))[0]
    numbers = {"mean": mean, "std": std, "frobenius_norm": np.sqrt(squares), "min": low, "max": high}
    entry = {name: write(float(value)) for name, value in numbers.items()}
    entry |= {"numel": flat.size, "shape": [flat.size], "percentiles": [digits(float(p), 4) for p in np.percentile(flat, LEVELS)]}
    return entry | {"histogram": {"bins": {"range": [write(low), write(high)], "count": 16}, "counts": counts.tolist()}}


SHAPES = {
    "normal": lambda rng, size: rng.normal(0, 0.02, size),
    "far from zero": lambda rng, size: rng.normal(3.0, 0.01, size),
    "constant": lambda rng, size: np.full(size, 0.123456789),
    "heavy tails": lambda rng, size: rng.standard_cauchy(size),
    "mostly zero": lambda rng, size: rng.normal(0, 1, size) * (rng.random(size) < 0.01),
    "two values": lambda rng, size: rng.choice([-1.0, 1.0], size),
    "one outlier": lambda rng, size: np.append(np.zeros(size - 1), 1000.0),
    "tiny": lambda rng, size: rng.normal(0, 1e-12, size),
    "positive": lambda rng, size: rng.exponential(1.0, size),
}


@for_each("size", [1, 2, 3, 100, 20_000])
@for_each("write", [float, lambda v: digits(v, 4), bfloat16])
@for_each("name", SHAPES)
def test_an_honest_tensor_has_no_contradiction(name, write, size):
    values = SHAPES[name](np.random.default_rng(size), size)
    assert of_weight(**statistics(values, write)) == set()


def test_the_norm_of_an_honest_gradient_with_the_sample_deviation_is_no_contradiction():
    values = np.array([1.0, -1.0, 2.0])
    entry = {"norm": float(np.linalg.norm(values)), "mean": float(values.mean()), "std": float(values.std(ddof=1)), "numel": 3}
    assert codes({"schema_version": "ck.analysis.v1", "step": 1, "gradients": {"a": entry}}) == set()


def test_a_sample_deviation_beside_m2_is_named_as_what_it_is():
    values = np.array([1.0, -1.0, 2.0, 5.0])
    m2 = float(np.square(values - values.mean()).sum())
    assert of_weight(numel=4, m2=m2, std=float(values.std(ddof=1))) == {SAMPLE_STD.code}
    assert of_weight(numel=4, m2=m2, std=float(values.std())) == set()


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in node if isinstance(node, dict) else range(min(len(node), 3)) if isinstance(node, list) else ():
        yield (*path, key)
        yield from places(node[key], (*path, key))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def shortened() -> dict[str, Any]:
    """Every field, but fewer tensors and small grids: these tests look at hundreds of changes."""
    document: dict[str, Any] = json.loads(EVERY_FIELD.read_bytes())
    for section in ("weights", "gradients", "weight_deltas"):
        document[section] = {name: entry for name, entry in document[section].items() if name.endswith("up.weight")}
    rows = document["weights"]["blocks.0.mlp.up.weight"]["sampled_grid_32x32"]
    document["weights"]["blocks.0.mlp.up.weight"]["sampled_grid_32x32"] = [row[:3] for row in rows[:3]]
    layer = document["attention"]["layer.0"]
    layer["sampled_qk_grid_32x32_per_head"] = [[row[:3] for row in grid[:3]] for grid in layer["sampled_qk_grid_32x32_per_head"]]
    del document["parity"]["worst_tensor"]
    document["scalars"]["grad_global_norm"] = document["gradients"]["blocks.0.mlp.up.weight"]["norm"]
    return document


WHOLE = shortened()
SPOTS = list(places(WHOLE))
FIELDS = [path for path in SPOTS if isinstance(path[-1], str) and path[-1] not in ("schema_version", "step")]
NUMBERS = [path for path in SPOTS if type(at(WHOLE, path)) in (int, float)]


def test_the_shortened_document_is_still_valid():
    assert codes(WHOLE) == set()


def test_leaving_out_any_field_makes_no_contradiction():
    # But `sampled`: the contract says that without it, all elements were counted.
    wrong = {}
    for path in FIELDS:
        document = deepcopy(WHOLE)
        del at(document, path[:-1])[path[-1]]
        if path[-1] != "sampled" and (found := {code for code in codes(document) if code.startswith("VAL")}):
            wrong[path] = found
    assert wrong == {}


def test_a_word_in_place_of_any_number_makes_no_contradiction_but_an_uncounted_extreme():
    wrong = {}
    for path in NUMBERS:
        document = deepcopy(WHOLE)
        at(document, path[:-1])[path[-1]] = "Infinity"
        if found := {code for code in codes(document) if code.startswith("VAL")} - {"VAL016"}:
            wrong[path] = found
    assert wrong == {}


@pytest.mark.parametrize("extreme", [0, 1e-320, 1.7e308, -1.7e308, 10**300], ids=str)
def test_no_number_however_strange_breaks_a_check(extreme):
    for path in NUMBERS:
        document = deepcopy(WHOLE)
        at(document, path[:-1])[path[-1]] = extreme
        check_checkpoint(json.dumps(document).encode(), "x.json")


@pytest.mark.parametrize("file", ["", "/", "a\nb", "analysis_checkpoint_step_00000500.json", "x/analysis_checkpoint_best.json"])
def test_a_file_name_without_another_step_is_no_contradiction(file):
    assert codes({"schema_version": "ck.analysis.v1", "step": 500}, file) == set()


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_the_levels_in_place_of_the_values_are_named_even_where_they_would_fit(scale):
    percentiles = [scale * level / 100 for level in LEVELS]
    assert of_weight(percentiles=percentiles, min=0.0, max=scale) == {PERCENTILES_ARE_LEVELS.code}


@pytest.mark.parametrize(
    ("bins", "edges"),
    [
        (BinRange(range=[0.0, 3.0], count=3), [0.0, 1.0, 2.0, 3.0]),
        ([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0]),
        ([0.5, 1.5, 2.5], [0.0, 1.0, 2.0, 3.0]),
        ([0.0, 2.0, 3.0], [-1.0, 1.0, 2.5, 3.5]),
    ],
)
def test_all_three_ways_of_writing_bins_give_edges(bins, edges):
    assert edges_of(Histogram(bins=bins, counts=[1.0, 2.0, 3.0])) == pytest.approx(edges)


def test_bins_that_do_not_reach_the_extremes_may_leave_elements_out():
    bins = {"range": [-1.0, 1.0], "count": 2}
    assert of_weight(numel=10, min=-5.0, max=5.0, histogram={"bins": bins, "counts": [3, 4]}) == set()
    assert of_weight(numel=10, min=-1.0, max=1.0, histogram={"bins": bins, "counts": [3, 4]}) == {"VAL023"}


def test_every_check_declares_each_kind_it_can_find():
    declared = {kind.code for check in checks() for kind in check.kinds}
    assert declared == {code for code in KINDS if code.startswith("VAL")}


def test_kinds_have_a_stable_unique_name_and_a_help():
    assert KIND_MODULES  # a kind is known once its module is loaded
    names = [kind.name for kind in KINDS.values()]
    assert len(set(names)) == len(names)
    assert all(kind.title.endswith(".") and kind.help.endswith(".") for kind in KINDS.values())


@pytest.mark.parametrize(("counts", "expected"), [([1, 8, 0], {"VAL022"}), ([0, 8, 1], {"VAL022"}), ([0, 9, 0], set())])
def test_a_single_element_counted_where_the_tensor_has_none_is_told(counts, expected):
    histogram = {"bins": [-3.0, -1.0, 1.0, 3.0], "counts": counts}
    assert of_weight(numel=9, min=-0.5, max=0.5, histogram=histogram) == expected
