"""A checkpoint with 79 tensors and 212 grids, from each encoding into each other: what is lost is what is said."""

import gzip
import json
import sys
from base64 import b64decode
from itertools import cycle, product
from pathlib import Path

import numpy as np
import pytest
import zstandard

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.codec import encode
from ckaudit.contract.io.convert import Encoding, convert

sys.path.insert(0, str(Path(__file__).parents[2] / "fixtures"))

from checkpoints.qwen import checkpoint

UNPACK = {".json": bytes, ".json.gz": gzip.decompress, ".json.zst": lambda data: zstandard.ZstdDecompressor().decompress(data)}
ENCODINGS = [
    {"grids": grids, "histogram": histogram, "suffix": suffix}
    for (grids, histogram), suffix in zip(product(("q8", "nested"), ("range", "edges")), cycle(UNPACK))
]
GRIDS = ("sampled_grid_32x32", "sampled_qk_grid_32x32_per_head")


def numbers(grid):
    """The values of a grid, read by the formula of the contract."""
    if isinstance(grid, list):
        return np.array(grid, dtype=np.float64)
    data = np.frombuffer(b64decode(grid["data"]), dtype=np.uint8).reshape(grid["shape"])
    return grid["min"] + (grid["max"] - grid["min"]) * (data.astype(np.float64) / 255)


def edges(bins):
    """The n+1 edges of equal bins, whichever way they are written."""
    return np.linspace(*bins["range"], bins["count"] + 1) if isinstance(bins, dict) else np.array(bins)


def taken_apart(document):
    """Grids, bins, percentiles, and everything else of a plain document, by path."""
    grids, bins, levels, rest = {}, {}, {}, {}
    for section, entries in document.items():
        if section not in ("weights", "gradients", "activations", "attention"):
            rest[section] = entries
            continue
        for name, stats in entries.items():
            plain = rest[section, name] = dict(stats)
            for field in set(GRIDS) & set(stats):
                grids[section, name] = numbers(plain.pop(field))
            if "histogram" in stats:
                bins[section, name] = edges(stats["histogram"]["bins"])
                plain["histogram"] = stats["histogram"]["counts"]
            if "percentiles" in stats:
                levels[section, name] = np.array(plain.pop("percentiles"))
    return grids, bins, levels, rest


@pytest.fixture(scope="module")
def original():
    data = encode(checkpoint(1, blocks=7))
    return data, taken_apart(json.loads(data))


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_from_bytes_nothing_is_lost(original, encoding):
    data, (grids, bins, levels, rest) = original
    made = convert(data, "x.json", Encoding(**encoding))
    found = taken_apart(json.loads(UNPACK[encoding["suffix"]](made)))
    assert found[3] == rest
    assert len(found[0]) == len(grids) == 50 + 50 + 7
    for path, values in grids.items():
        np.testing.assert_allclose(found[0][path], values, rtol=0, atol=1e-15 + 1e-14 * np.abs(values).max())
    for path, values in bins.items():
        np.testing.assert_allclose(found[1][path], values, rtol=0, atol=1e-14 * np.abs(values).max())
    assert all(np.array_equal(found[2][path], values) for path, values in levels.items())


def test_from_nested_and_edges_back_to_bytes_gives_the_same_file(original):
    nested = convert(original[0], "x.json", Encoding(grids="nested", histogram="edges"))
    assert len(nested) > 5 * len(original[0])
    back = convert(nested, "x.json", Encoding(grids="q8", histogram="range", suffix=".json.zst"))
    assert UNPACK[".json.zst"](back) == original[0]


def test_four_digits_change_no_value_by_more_than_half_of_the_fourth(original):
    data, (grids, bins, levels, rest) = original
    short = convert(data, "x.json", Encoding(grids="nested", histogram="edges", digits=4, suffix=".json.zst"))
    text = UNPACK[".json.zst"](short)
    found = taken_apart(json.loads(text))
    assert found[3] == rest
    for path, values in grids.items():
        np.testing.assert_allclose(found[0][path], values, rtol=5.001e-4)
    for path, values in bins.items():
        np.testing.assert_allclose(found[1][path], values, rtol=5.001e-4)
    assert all(np.array_equal(found[2][path], values) for path, values in levels.items())
    assert check_checkpoint(text, "x.json").findings == []
    packed = convert(text, "x.json", Encoding(grids="q8", histogram="range"))
    again = taken_apart(json.loads(packed))
    for path, values in grids.items():
        half = (values.max() - values.min()) / 510
        np.testing.assert_allclose(again[0][path], values, rtol=0, atol=half + 1e-3 * np.abs(values).max())
    assert again[3] == rest


def test_without_grids_the_file_says_so_and_keeps_the_rest(original):
    data, (grids, bins, _levels, rest) = original
    found = taken_apart(json.loads(convert(data, "x.json", Encoding(grids="none"))))
    lost = ["weights.*.sampled_grid_32x32", "gradients.*.sampled_grid_32x32", "attention.*.sampled_qk_grid_32x32_per_head"]
    assert found[3].pop("left_out") == lost
    assert found[0] == {}
    assert found[1].keys() == bins.keys()
    assert found[3] == rest
    assert len(grids) == 107
