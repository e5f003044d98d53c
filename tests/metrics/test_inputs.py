import numpy as np
import pytest

from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.metrics.inputs import input_scale
from tests.metrics.samples import cells, run_of


def recorded(kind="mlp", shape=(64, 32)):
    rng = np.random.default_rng(0)
    weight, batch = rng.normal(0, 0.1, (64, 32)), rng.normal(0, 7.0, (32, 5000))
    rms = float(np.sqrt(np.mean((weight @ batch) ** 2)))
    facts = {"a.weight": TensorFacts(kind=kind, module="a", shape=list(shape)), "b.weight": TensorFacts(module="b", shape=[2, 2])}
    sections = {
        "activations.*.rms": {10: {"a": rms, "b": 3.0}},
        "weights.*.frobenius_norm": {10: {"a.weight": float(np.linalg.norm(weight)), "b.weight": 1.0}},
    }
    return run_of(sections, tensors=facts)


def test_the_scale_of_independent_inputs_is_found_from_the_first_layer():
    assert cells(input_scale(recorded())) == {(10, "a"): pytest.approx(7.0, rel=0.05)}


@pytest.mark.parametrize(("bias", "scale"), [(0.5, 7.0), (30.0, None)])
def test_the_bias_of_the_first_layer_is_none_of_its_inputs(bias, scale):
    rng = np.random.default_rng(0)
    weight, batch = rng.normal(0, 0.1, (64, 32)), rng.normal(0, 7.0, (32, 5000))
    rms = float(np.sqrt(np.mean((weight @ batch - bias) ** 2)))
    facts = {"a.weight": TensorFacts(kind="mlp", module="a", shape=[64, 32]), "a.bias": TensorFacts(module="a", shape=[64])}
    sections = {
        "activations.*.rms": {10: {"a": rms}},
        "weights.*.frobenius_norm": {10: {"a.weight": float(np.linalg.norm(weight)), "a.bias": 8 * bias}},
        "weights.*.mean": {10: {"a.weight": 0.0, "a.bias": -bias}},
        "weights.*.std": {10: {"a.weight": 0.1, "a.bias": 0.0}},
    }
    found = cells(input_scale(run_of(sections, tensors=facts)))
    assert found == ({} if scale is None else {(10, "a"): pytest.approx(scale, rel=0.05)})


def test_an_embedding_and_a_vector_tell_nothing():
    assert not input_scale(recorded(kind="embedding"))
    assert not input_scale(recorded(shape=(64,)))


def test_batches_that_were_seen_say_it_whatever_the_first_layer_adds():
    run = recorded()
    seen = {"data.input_mean": {10: {"data.input_mean": 3.0}}, "data.input_std": {10: {"data.input_std": 4.0}}}
    of_layer = {path: {10: dict(zip(each.labels, each.values[0], strict=True))} for path, each in run.sections.items()}
    assert cells(input_scale(run_of(of_layer | seen, tensors=run.manifest.tensors))) == {(10, "the batches"): 5.0}


@pytest.mark.parametrize(("batches", "counts"), [(9.0, "the batches"), (7.0 * 255, "a"), (7.0 / 255, "a")])
def test_a_model_that_scales_its_inputs_itself_is_told_by_its_first_layer(batches, counts):
    run = recorded()
    of_layer = {
        "activations.*.rms": {10: {"a": run.series("activations", "rms").values[0, 0], "b": 3.0}},
        "weights.*.frobenius_norm": {10: {"a.weight": run.series("weights", "frobenius_norm").values[0, 0], "b.weight": 1.0}},
    }
    seen = {"data.input_mean": {10: {"data.input_mean": 0.0}}, "data.input_std": {10: {"data.input_std": batches}}}
    ((place, value),) = cells(input_scale(run_of(of_layer | seen, tensors=run.manifest.tensors))).items()
    assert place == (10, counts)
    assert value == pytest.approx(9.0 if counts == "the batches" else 7.0, rel=0.05)


def test_a_model_that_begins_with_a_normalization_takes_inputs_of_any_scale():
    seen = {"data.input_mean": {10: {"data.input_mean": 140.0}}, "data.input_std": {10: {"data.input_std": 80.0}}}
    facts = {"a.weight": TensorFacts(kind="norm", module="a", shape=[64]), "b.weight": TensorFacts(module="b", shape=[2, 64])}
    assert not input_scale(run_of(seen, tensors=facts))
