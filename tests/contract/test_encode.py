import gzip
import json

import msgspec
import numpy as np
import pytest
import zstandard

from ckaudit.contract.io.codec import encode, significant
from ckaudit.contract.schema.checkpoint import BinRange, Checkpoint, Histogram, History, WeightStats


def checkpoint(**fields):
    return Checkpoint(schema_version="ck.analysis.v1", step=3, **fields)


def test_what_was_encoded_is_decoded_again():
    document = checkpoint(
        loss=1.5, weights={"w": WeightStats(shape=[2, 3], mean=0.25, histogram=Histogram(BinRange([0, 1], 2), [4, 2]))}
    )
    assert msgspec.json.decode(encode(document), type=Checkpoint) == document


def test_non_finite_floats_become_words_wherever_they_stand():
    history = History(steps=[1, 2], loss=[float("inf"), None], gradient_norms={"w": [float("nan"), 1.0]})
    document = checkpoint(
        loss=float("nan"), scalars={"x": float("-inf")}, weights={"w": WeightStats(mean=float("nan"))}, history=history
    )
    plain = json.loads(encode(document))
    assert plain["loss"] == "NaN"
    assert plain["scalars"] == {"x": "-Infinity"}
    assert plain["weights"]["w"] == {"mean": "NaN"}
    assert plain["history"] == {"steps": [1, 2], "loss": ["Infinity", None], "gradient_norms": {"w": ["NaN", 1.0]}}


def test_numpy_numbers_and_arrays_are_written_plainly():
    document = checkpoint(
        loss=np.float64(0.5), weights={"w": WeightStats(percentiles=np.arange(7) / 2, numel=np.int64(9), mean=np.float32("nan"))}
    )
    plain = json.loads(encode(document))
    assert plain["loss"] == 0.5
    assert plain["weights"]["w"] == {"numel": 9, "mean": "NaN", "percentiles": [0, 0.5, 1, 1.5, 2, 2.5, 3]}


def test_every_suffix_unpacks_to_the_same_json():
    document = checkpoint(loss=2.0)
    plain = encode(document)
    assert gzip.decompress(encode(document, ".json.gz")) == plain
    assert zstandard.ZstdDecompressor().decompress(encode(document, ".json.zst")) == plain


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.zst"])
def test_equal_documents_give_equal_bytes(suffix):
    assert encode(checkpoint(loss=2.0), suffix) == encode(checkpoint(loss=2.0), suffix)


def test_an_unknown_suffix_is_refused():
    with pytest.raises(ValueError, match="yaml"):
        encode(checkpoint(), ".yaml")


def test_a_value_without_a_place_in_json_is_refused():
    with pytest.raises(NotImplementedError, match="object"):
        encode(checkpoint(scalars={"x": object()}))


def test_significant_keeps_four_digits_and_names_the_rest():
    assert significant([0.00012344999, 9999.5, -0.0, float("nan")]) == [0.0001234, 10000.0, 0.0, "NaN"]
