"""The prose of the catalogue is whole: every row of the lists once, every field filled, every name a metric's."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import CATEGORIES, HERE, RANKS, CatalogueEntry, categories, entries, entry_of
from tests.loops import for_each

ROOT = Path(__file__).parents[2]
ROWS = [f"M{number:02d}" for number in range(1, 68)] + [f"F{number}" for number in range(1, 17)]

# Copied by hand from the tables of importance: family, its names, by scale, by stage (None: the table has no such row).
TABLES = [
    ("AMP and NaN", ["nan_inf_events", "loss_scale", "overflow_rate", "skipped_updates"], "must must must", "must must must"),
    ("attention", ["max_attn_logit", "attn_entropy"], "must must must", "must must should"),
    ("deduplication", ["near_dup_rate", "train_val_overlap"], "must must must", "should must must"),
    ("throughput", ["tokens_per_sec", "step_time"], "must must must", None),
    ("utilisation", ["mfu", "straggler_ratio"], "nice should must", None),
    ("logs", ["restart_rate", "error_event_rate"], "should must must", None),
    ("probes of safety", ["rtp_toxicity_prob", "memorization_rate"], "should must must", "nice should must"),
    ("drift", ["source_mix_share", "token_kl_drift"], None, "should must must"),
    ("validation", ["val_loss", "slice_val_loss"], None, "should must must"),
    ("harness", ["eval_artifact_hash", "fixed_probe_loss"], None, "nice should must"),
]


def test_every_row_of_the_lists_stands_exactly_once():
    assert Counter(row for entry in entries().values() for row in entry.rows) == Counter(ROWS)


def test_every_file_is_a_category_and_no_name_stands_in_two():
    assert {path.stem for path in HERE.glob("*.toml")} == {*CATEGORIES, "actions"}
    assert len(entries()) == sum(len(category.entries) for category in categories())
    assert all(category.title.endswith("?") for category in categories())


@for_each("name", entries())
def test_every_field_says_something(name):
    entry = entries()[name]
    for field in CatalogueEntry.__struct_fields__:
        value = getattr(entry, field)
        if isinstance(value, str) and field not in ("only_with", "columns", "absent", "otherwise"):
            assert value.strip() == value != "", field
    for field in ("intuition", "why", "good", "bad", "computed"):
        assert getattr(entry, field).endswith("."), field
    for items in (entry.failures, entry.mitigations):
        assert len(items) >= 2
        assert all(item.endswith(".") for item in items)


@for_each("name", entries())
def test_good_and_bad_can_be_drawn_side_by_side(name):
    entry = entries()[name]
    assert len(entry.good_shape) == len(entry.bad_shape) >= 6
    assert entry.good_shape != entry.bad_shape


def test_every_entry_has_a_metric():
    assert set(entries()) <= set(metrics())


@for_each("name", entries())
def test_the_definition_is_in_the_docstring(name):
    assert set(entries()[name].formulas) <= set(entries()[name].rows)
    assert "$$" in metrics()[name].function.__doc__


def test_every_metric_belongs_to_one_entry():
    covered = Counter(name for entry in entries().values() for name in entry.covers)
    assert set(covered) <= set(metrics()) - set(entries())
    assert max(covered.values()) == 1
    assert {entry_of(name) for name in metrics()} <= set(entries())
    assert entry_of("residual_rms_p99") == "residual_rms"
    assert entry_of("no_such_metric") is None


def test_no_name_means_two_things():
    spoken = Counter(word for entry in entries().values() for word in entry.also_called)
    assert max(spoken.values()) == 1
    assert not set(spoken) & (set(entries()) | set(metrics()))


@pytest.mark.parametrize(("names", "scale", "stage"), [row[1:] for row in TABLES], ids=[row[0] for row in TABLES])
def test_importance_is_that_of_the_tables(names, scale, stage):
    for name in names:
        entry = entries()[name]
        if scale:
            assert f"{entry.scale.nano} {entry.scale.medium} {entry.scale.large}" == scale
        if stage:
            assert f"{entry.stage.early} {entry.stage.steady} {entry.stage.late}" == stage


@for_each("name", entries())
def test_a_larger_run_never_needs_less(name):
    scale = entries()[name].scale
    assert RANKS.index(scale.nano) >= RANKS.index(scale.medium) >= RANKS.index(scale.large)


def test_a_field_nobody_knows_is_refused():
    whole = msgspec.to_builtins(entries()["val_loss"])
    assert msgspec.convert(whole, CatalogueEntry) == entries()["val_loss"]
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert(whole | {"threshold": 3}, CatalogueEntry)
    with pytest.raises(msgspec.ValidationError, match="missing required field"):
        msgspec.convert({key: value for key, value in whole.items() if key != "why"}, CatalogueEntry)


def test_no_file_is_read_before_somebody_asks():
    code = "import sys; from ckaudit.metrics import metrics; print(len(metrics()), 'tomllib' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == f"{len(metrics())} False\n"
