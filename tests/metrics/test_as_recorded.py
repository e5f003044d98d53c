"""Metrics that are what a checkpoint or a line says, and a test that none of the catalogue goes without an oracle."""

import re
from pathlib import Path

import pytest

from ckaudit.metrics import metrics
from tests.metrics.samples import NAN, cells, close, run_of

PLAIN = {
    "batch_duplicate_share": "data.duplicate_share",
    "target_shift_match": "data.target_shift_match",
    "target_equals_input": "data.target_equals_input",
    "gradient_check_error": "parity.gradient_error",
    "batch_repeat_distance": "batch_repeat_distance",
    "batch_reused": "batch_reused",
    "curvature_trace_est": "curvature_trace_est",
    "curvature_trace_error": "curvature_trace_error",
}


@pytest.mark.parametrize(("name", "path"), PLAIN.items())
def test_values_gaps_and_nan_stay(name, path):
    rows = {10: {"x": 0.5}, 20: {"x": NAN}, 40: {"x": 0.25}}
    run = run_of({path: rows}) if "." in path else run_of(scalars={path: rows})
    assert close(cells(metrics()[name](run)), {(10, "x"): 0.5, (20, "x"): NAN, (40, "x"): 0.25})


@pytest.mark.parametrize(("name", "field"), [("residual_rms_p50", "p50"), ("residual_rms_p99", "p99")])
def test_percentiles_of_the_residual_stream_are_those_of_blocks_and_vital_signs_fill(name, field):
    sections = {f"activations.*.{field}": {10: {"blocks.0": 1.5, "blocks.0.mlp": 9.0, "blocks.1": 2.5}}}
    run = run_of(sections, {name: {10: {"blocks.0": 7.0}, 25: {"blocks.0": 1.75}}})
    expected = {(10, "blocks.0"): 1.5, (10, "blocks.1"): 2.5, (25, "blocks.0"): 1.75}
    assert close(cells(metrics()[name](run)), expected)


def test_every_metric_is_named_in_a_test_of_its_own():
    folder = Path(__file__).parent
    text = "\n".join(path.read_text(encoding="utf-8") for path in folder.glob("test_*.py") if path.name != "test_every_metric.py")
    assert [name for name in metrics() if not re.search(rf"\b{name}\b", text)] == []


PANELS = {
    "PAN-1 loss": ["train_loss_raw", "train_loss_ema", "val_loss", "unigram_entropy"],
    "PAN-2 learning rate": ["learning_rate", "lr_phase"],
    "PAN-3 gradient norm": ["grad_global_norm", "clip_coefficient"],
    "PAN-4 activations": ["activation_mean_abs", "activation_std", "residual_rms"],
    "PAN-5 spectral norms": ["spectral_norm", "spectral_growth"],
    "PAN-6 dead neurons and heads": ["dead_units", "dead_unit_fraction", "dead_heads", "dead_head_fraction"],
    "PAN-7 loss by class": ["slice_val_loss", "tau", "tau_trend"],
}


@pytest.mark.parametrize("panel", PANELS)
def test_what_a_panel_draws_is_a_metric_with_a_unit(panel):
    assert all(metrics()[name].unit for name in PANELS[panel])
