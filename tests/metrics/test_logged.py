"""Rows of the catalogue that only a trainer or a data pipeline can know: kept as logged, a column for each label."""

import pytest

from ckaudit.contract.schema.scalars import NAMES
from ckaudit.metrics import metrics
from tests.metrics.samples import NAN, cells, close, run_of

LOGGED = [
    "source_mix_share",
    "language_share",
    "filter_reject_rate",
    "bytes_per_token",
    "seq_len_p50_p95",
    "pad_fraction",
    "near_dup_rate",
    "train_val_overlap",
    "doc_repeat_hotspots",
    "gpu_util",
    "data_toxicity_rate",
    "rtp_toxicity_prob",
    "rtp_prompt_stats",
    "pii_hit_rate",
    "microbench_score",
]


@pytest.mark.parametrize("name", LOGGED)
def test_labels_gaps_and_nan_stay(name):
    rows = {10: {"web": 0.5, "code": NAN}, 30: {"code": 0.25}}
    found = metrics()[name](run_of(scalars={name: rows}))
    assert close(cells(found), {(10, "web"): 0.5, (10, "code"): NAN, (30, "code"): 0.25})
    assert found.labels == ("web", "code")


def test_every_name_of_the_catalogue_is_a_metric():
    assert NAMES | {"rtp_prompt_stats", "eval_artifact_hash"} <= set(metrics())
