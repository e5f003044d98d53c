import numpy as np
import pytest

from ckaudit.metrics.activations import (
    activation_max_abs,
    activation_mean,
    activation_mean_abs,
    activation_outlier_rate,
    activation_rms,
    activation_saturation,
    activation_sparsity,
    activation_std,
    dead_unit_fraction,
    dead_units,
    residual_rms,
)
from ckaudit.metrics.nonfinite import nonfinite_activations, nonfinite_gradients, nonfinite_weights
from tests.metrics.samples import NAN, cells, close, random_run, rows_of, run_of

PLAIN = {
    activation_mean: "activations.*.mean",
    activation_std: "activations.*.std",
    activation_mean_abs: "activations.*.mean_abs",
    activation_sparsity: "activations.*.sparsity",
    nonfinite_gradients: "gradients.*.nonfinite_count",
}


@pytest.mark.parametrize("metric", PLAIN, ids=lambda metric: metric.name)
def test_plain_metrics_are_what_was_recorded(metric):
    run = random_run()
    assert close(cells(metric(run)), rows_of(run, PLAIN[metric]))


@pytest.mark.parametrize(("metric", "section"), [(nonfinite_weights, "weights"), (nonfinite_activations, "activations")])
def test_a_mean_says_whether_all_elements_are_finite_where_nobody_counted(metric, section):
    counted, means = f"{section}.*.nonfinite_count", f"{section}.*.mean"
    elements = {"a": [0.5, -1.5, 2.0], "b": [0.5, NAN, 2.0], "c": [0.5, np.inf, -np.inf]}
    with np.errstate(invalid="ignore"):
        run = run_of({counted: {1: {"d": 3.0}}, means: {1: {name: float(np.mean(values)) for name, values in elements.items()}}})
    assert close(cells(metric(run)), {(1, "a"): 0.0, (1, "b"): NAN, (1, "c"): NAN, (1, "d"): 3.0})


@pytest.mark.parametrize(("metric", "section"), [(nonfinite_weights, "weights"), (nonfinite_activations, "activations")])
def test_any_statistic_that_is_nan_says_so_where_nobody_counted(metric, section):
    run = run_of(
        {
            f"{section}.*.mean": {1: {"a": 0.5, "b": 0.5}},
            f"{section}.*.max": {1: {"a": 2.0, "b": NAN, "c": NAN}},
            f"{section}.*.std": {1: {"a": 1.0, "d": NAN, "e": np.inf}},
        }
    )
    assert close(cells(metric(run)), {(1, "a"): 0.0, (1, "b"): NAN, (1, "c"): NAN, (1, "d"): NAN, (1, "e"): 0.0})


def test_an_infinite_extreme_says_so_of_weights_and_not_of_masked_scores():
    tables = {f"{section}.*.min": {1: {"a": -np.inf}} for section in ("weights", "activations")}
    assert close(cells(nonfinite_weights(run_of(tables))), {(1, "a"): NAN})
    assert cells(nonfinite_activations(run_of(tables))) == {(1, "a"): 0.0}


def test_rms_made_of_moments_is_the_rms_of_the_output():
    output = np.random.default_rng(0).normal(1.0, 3.0, 500)
    run = run_of({"activations.*.mean": {1: {"m": float(output.mean())}}, "activations.*.std": {1: {"m": float(output.std())}}})
    assert cells(activation_rms(run)) == {(1, "m"): pytest.approx(float(np.sqrt((output**2).mean())))}


def test_recorded_rms_counts_even_where_it_is_nan():
    run = run_of(
        {
            "activations.*.rms": {1: {"a": NAN}, 2: {"a": 7.0}},
            "activations.*.mean": {1: {"a": 3.0, "b": 3.0}},
            "activations.*.std": {1: {"a": 4.0, "b": 4.0}},
        }
    )
    assert close(cells(activation_rms(run)), {(1, "a"): NAN, (1, "b"): 5.0, (2, "a"): 7.0})


@pytest.mark.parametrize(
    ("name", "is_residual"),
    [
        ("blocks.3", True),
        ("transformer.h.11", True),
        ("model.layers.0", True),
        ("block_1_out", True),
        ("resid_post", True),
        ("layer.2.output", True),
        ("h.0.mlp", False),
        ("blocks.3.attn", False),
        ("wte", False),
        ("mlp.act", False),
        ("encoder.stages.1.layers.0", True),
        ("encoder.stages.1.layers.0.focal_layers.1", False),
    ],
)
def test_names_tell_which_outputs_are_the_residual_stream(name, is_residual):
    assert bool(residual_rms(run_of({"activations.*.rms": {1: {name: 1.0}}}))) is is_residual


def test_max_abs_of_an_output_is_its_larger_end():
    run = run_of({"activations.*.min": {1: {"a": -9.0, "b": 0.0}}, "activations.*.max": {1: {"a": 2.0, "b": 4.0}}})
    assert close(cells(activation_max_abs(run)), {(1, "a"): 9.0, (1, "b"): 4.0})


def test_dead_fraction_counts_units_and_has_none_of_no_units():
    run = run_of(
        {
            "activations.*.dead_units": {1: {"a": 3.0, "b": 0.0, "c": 0.0, "d": 1.0}},
            "activations.*.units": {1: {"a": 12.0, "b": 8.0, "c": 0.0}},
        }
    )
    assert close(cells(dead_unit_fraction(run)), {(1, "a"): 0.25, (1, "b"): 0.0})


def test_outliers_are_shares_in_percent_and_dead_units_counts():
    run = run_of(
        {"activations.*.outlier_rate": {10: {"a": 0.25, "b": NAN}}, "activations.*.dead_units": {10: {"a": 3.0}}},
        {"activation_outlier_rate": {10: {"a": 9.0, "c": 2.0}}},
    )
    assert close(cells(activation_outlier_rate(run)), {(10, "a"): 25.0, (10, "b"): NAN, (10, "c"): 2.0})
    assert cells(dead_units(run)) == {(10, "a"): 3.0}


def saturation_of(**modules):
    """Return what the metric makes of modules with these outputs."""
    moments = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}
    fields = {name: {1: {each: float(of(np.array(a))) for each, a in modules.items()}} for name, of in moments.items()}
    return cells(activation_saturation(run_of({f"activations.*.{name}": rows for name, rows in fields.items()})))


def test_saturation_is_one_at_the_ends_and_a_third_of_it_where_all_is_alike():
    ends = [0.0] * 30 + [1.0] * 10
    even = np.linspace(-1.0, 1.0, 2001)
    found = saturation_of(act=ends, tanh=even)
    assert found[1, "act"] == pytest.approx(1.0)
    assert found[1, "tanh"] == pytest.approx(1 / 3, rel=2e-3)  # the variance of the uniform law on [-1, 1]


def test_equal_outputs_have_no_ends():
    assert saturation_of(act=[0.5, 0.5, 0.5]) == {}
