"""Converting one checkpoint: what changes is only what was asked for, and by no more than was said."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.convert import Encoding, convert, equal_range, rounded
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.contract.io.grids import unpack
from ckaudit.contract.schema.checkpoint import PackedGrid

FIXTURES = Path(__file__).parents[2] / "fixtures" / "checkpoints"
VALID = sorted(path for path in (FIXTURES / "valid").rglob("*.json*") if path.is_file())
SOURCE = np.random.default_rng(2)
GRID, QK = SOURCE.normal(size=(32, 32)), SOURCE.dirichlet(np.ones(8), size=(3, 8))
DOCUMENT = {
    "schema_version": "ck.analysis.v1",
    "step": 7,
    "loss": 0.1 + 0.2,
    "mystery": {"deep": [1, 2.5, {"é\u2028": None}], "large": 2**70, "tiny": 5e-324, "minus": -0.0, "word": "NaN"},
    "scalars": {"grad_global_norm": "Infinity"},
    "weights": {
        "a": {
            "mean": "NaN",
            "frobenius_norm": 3.3333333333333335,
            "skew": 0.125,
            "sampled_grid_32x32": GRID.tolist(),
            "percentiles": [-2.00001, -1.5, -0.7, 0.0123456, 0.7, 1.5, 2.0],
            "histogram": {"bins": [-1.0, -0.5, 0.0, 0.5, 1.0], "counts": [1, 2, 3, 4], "unit": "elements"},
        },
        "b": {"sampled_grid_32x32": [[1.0, "NaN"], ["-Infinity", 2.0]]},
    },
    "gradients": {"a": {"norm": 1e-7, "histogram": {"bins": {"range": [-0.1, 0.3], "count": 4}, "counts": [1, 0, 2, 0]}}},
    "attention": {"layer.0": {"heads": 3, "sampled_qk_grid_32x32_per_head": QK.tolist()}},
}
TEXT = json.dumps(DOCUMENT).encode()


def converted(text, **encoding):
    return convert(text, "x.json", Encoding(**encoding))


def without_grids(document):
    plain = copy.deepcopy(document)
    for section, name in (("weights", "sampled_grid_32x32"), ("attention", "sampled_qk_grid_32x32_per_head")):
        for entry in plain[section].values():
            entry.pop(name, None)
    return plain


def test_nothing_asked_for_changes_nothing():
    assert json.loads(converted(TEXT)) == DOCUMENT
    assert list(json.loads(converted(TEXT))) == list(DOCUMENT)


def test_from_nested_to_bytes_and_back_is_off_by_half_a_step():
    packed = converted(TEXT, grids="q8")
    back = json.loads(converted(packed, grids="nested"))
    for found, values in (
        (back["weights"]["a"]["sampled_grid_32x32"], GRID),
        (back["attention"]["layer.0"]["sampled_qk_grid_32x32_per_head"], QK),
    ):
        assert np.abs(np.array(found) - values).max() <= (values.max() - values.min()) / 510 * (1 + 1e-9)
    assert json.loads(packed)["weights"]["a"]["sampled_grid_32x32"]["encoding"] == "q8"
    assert len(packed) < len(TEXT) / 4
    assert without_grids(json.loads(packed)) == without_grids(back) == without_grids(DOCUMENT)
    assert converted(json.dumps(back).encode(), grids="q8") == packed


def test_words_in_a_grid_keep_it_nested():
    for grids in ("q8", "nested"):
        assert json.loads(converted(TEXT, grids=grids))["weights"]["b"] == DOCUMENT["weights"]["b"]


def test_large_integers_and_the_smallest_floats_stay_to_the_bit():
    found = json.loads(converted(TEXT, grids="q8"))["mystery"]
    assert found == DOCUMENT["mystery"]
    assert str(found["minus"]) == "-0.0"


def test_digits_shorten_what_they_say_and_nothing_else():
    found = json.loads(converted(TEXT, digits=3))
    assert found["weights"]["a"]["percentiles"] == [-2.0, -1.5, -0.7, 0.0123, 0.7, 1.5, 2.0]
    grid = np.array(found["weights"]["a"]["sampled_grid_32x32"])
    assert np.abs(grid - GRID).max() > 0
    np.testing.assert_allclose(grid, GRID, rtol=5.1e-3)
    assert found["weights"]["a"]["frobenius_norm"] == 3.3333333333333335
    assert found["gradients"] == DOCUMENT["gradients"]


def test_edges_become_a_range_and_a_range_edges():
    ranged = json.loads(converted(TEXT, histogram="range"))
    assert ranged["weights"]["a"]["histogram"] == {
        "bins": {"range": [-1.0, 1.0], "count": 4},
        "counts": [1, 2, 3, 4],
        "unit": "elements",
    }
    edged = json.loads(converted(TEXT, histogram="edges"))["gradients"]["a"]["histogram"]["bins"]
    np.testing.assert_allclose(edged, [-0.1, 0.0, 0.1, 0.2, 0.3], atol=1e-15)
    assert (edged[0], edged[-1]) == (-0.1, 0.3)
    assert json.loads(converted(converted(TEXT, histogram="edges"), histogram="range"))["gradients"] == DOCUMENT["gradients"]


@pytest.mark.parametrize(
    ("bins", "count", "digits", "expected"),
    [
        ([0.0, 1.0, 3.0], 2, None, None),
        ([0.0, 1.0, "Infinity"], 2, None, None),
        ([1.0, 1.0], 1, None, None),
        ([2.0], 1, None, None),
        ([3.0, 2.0, 1.0], 2, None, None),
        ([0.5, 1.5, 2.5], 3, None, (0.0, 3.0)),
        ([-0.1234, -0.04113, 0.04113, 0.1234], 3, None, None),
        ([-0.1234, -0.04113, 0.04113, 0.1234], 3, 4, (-0.1234, 0.1234)),
        ([1000.0, 1000.0625, 1000.25], 2, 4, None),
    ],
)
def test_only_equally_wide_bins_are_a_range(bins, count, digits, expected):
    assert equal_range(bins, count, digits) == expected


@pytest.mark.parametrize("ends", [["NaN", 1.0], ["-Infinity", "Infinity"], [-1.7e308, 1.7e308]])
def test_a_range_without_edges_stays_a_range(ends):
    document = copy.deepcopy(DOCUMENT)
    document["gradients"]["a"]["histogram"]["bins"]["range"] = ends
    assert json.loads(converted(json.dumps(document).encode(), histogram="edges"))["gradients"] == document["gradients"]


def test_edges_that_would_fall_together_keep_their_digits():
    document = copy.deepcopy(DOCUMENT)
    document["weights"]["a"]["histogram"] = {"bins": [1000.0, 1000.1, 1000.3], "counts": [1, 2]}
    found = json.loads(converted(json.dumps(document).encode(), digits=3))
    assert found["weights"]["a"]["histogram"]["bins"] == [1000.0, 1000.1, 1000.3]


def test_a_file_without_grids_says_what_was_left_out():
    document = DOCUMENT | {"left_out": ["gradients.*.histogram"]}
    found = json.loads(converted(json.dumps(document).encode(), grids="none"))
    assert found["left_out"] == [
        "gradients.*.histogram",
        "weights.*.sampled_grid_32x32",
        "attention.*.sampled_qk_grid_32x32_per_head",
    ]
    assert found | {"left_out": []} == without_grids(document) | {"left_out": []}


def test_a_stack_of_both_kinds_can_be_made_one():
    document = json.loads(converted(TEXT, grids="q8"))
    first = {"encoding": "q8", "shape": [1, 2], "min": 0.0, "max": 1.0, "data": "AP8="}
    document["attention"]["layer.0"] = {"sampled_qk_grid_32x32_per_head": [first, [[0.5, 0.25]]]}
    mixed = json.dumps(document).encode()
    nested = json.loads(converted(mixed, grids="nested"))["attention"]["layer.0"]["sampled_qk_grid_32x32_per_head"]
    assert nested == [[[0.0, 1.0]], [[0.5, 0.25]]]
    packed = json.loads(converted(mixed, grids="q8"))["attention"]["layer.0"]["sampled_qk_grid_32x32_per_head"]
    assert unpack(PackedGrid(**packed)).shape == (2, 1, 2)
    kept = json.loads(converted(mixed))["attention"]["layer.0"]
    assert kept == document["attention"]["layer.0"]


def test_bare_words_and_byte_order_marks_are_put_right():
    text = b'\xef\xbb\xbf{"schema_version": "ck.analysis.v1", "step": 3, "loss": NaN, "note": "NaN, -Infinity"}'
    assert json.loads(converted(text)) == {"schema_version": "ck.analysis.v1", "step": 3, "loss": "NaN", "note": "NaN, -Infinity"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"schema_version": "ck.analysis.v1", "step": 3', "ends"),
        (b'{"schema_version": "ck.analysis.v2", "step": 3}', "ck.analysis.v2"),
        (b'{"schema_version": "ck.analysis.v1", "step": 3, "loss": 1, "loss": 2}', "twice"),
        (
            b'{"schema_version": "ck.analysis.v1", "step": 3, "weights": {"a": {"sampled_grid_32x32": [[1, 2], [3]]}}}',
            "cannot be written",
        ),
        (b'{"schema_version": "ck.analysis.v1", "step": 3, "note": "\\ud800"}', "surrogate"),
        (b"", "nothing"),
    ],
)
def test_what_cannot_be_converted_whole_is_refused(text, message):
    with pytest.raises(BrokenFile, match=message):
        converted(text, grids="q8")


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.name)
@pytest.mark.parametrize(
    "encoding",
    [
        {"grids": "q8", "histogram": "range", "suffix": ".json.zst"},
        {"grids": "nested", "histogram": "edges", "suffix": ".json.gz"},
        {"grids": "none", "digits": 4},
    ],
)
def test_every_valid_checkpoint_stays_valid(path, encoding, tmp_path):
    data = convert(read_bytes(path, path.name), path.name, Encoding(**encoding))
    target = tmp_path / f"x{encoding.get('suffix', '.json')}"
    target.write_bytes(data)
    checked = check_checkpoint(read_bytes(target, target.name), path.name)
    before = {finding.code for finding in check_checkpoint(read_bytes(path, path.name), path.name).findings}
    assert checked.document is not None
    assert {finding.code for finding in checked.findings} <= before


def test_packed_files_hold_the_same_text():
    packed = converted(TEXT, suffix=".json.zst")
    assert zstandard.ZstdDecompressor().decompress(packed) == converted(TEXT)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")).map("x_{}".format), JSON, max_size=4))
def test_unknown_fields_survive_whatever_they_hold(extra):
    document = {"schema_version": "ck.analysis.v1", "step": 1, **extra}
    found = json.loads(converted(json.dumps(document).encode(), grids="q8", histogram="range", digits=2))
    assert found == document
    assert json.dumps(found) == json.dumps(document)


def test_rounding_leaves_words_alone():
    assert rounded(["NaN", 1.23456], 2) == ["NaN", 1.2]
