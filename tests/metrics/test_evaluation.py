import math

from ckaudit.metrics.evaluation import eval_artifact_hash, val_ppl
from ckaudit.metrics.safety import memorization_rate
from tests.metrics.samples import NAN, cells, close, run_of


def test_perplexity_is_recomputed_and_else_as_logged():
    run = run_of(scalars={"val_loss": [2.0, None, NAN], "val_ppl": [1.0, 5.0, 3.0]})
    expected = {(1, "val_ppl"): math.exp(2.0), (2, "val_ppl"): 5.0, (3, "val_ppl"): NAN}
    assert close(cells(val_ppl(run)), expected)


def test_perplexity_of_several_sets():
    found = cells(val_ppl(run_of(scalars={"val_loss": {5: {"books": 1.0, "code": 3.0}}})))
    assert close(found, {(5, "books"): math.e, (5, "code"): math.exp(3.0)})


def test_an_artifact_is_compared_with_the_manifest_or_with_its_first_use():
    texts = {"eval_artifact_hash/a": {1: "x", 5: "x", 9: "y"}, "eval_artifact_hash/b": {5: "z", 9: "z"}, "other": {1: "x"}}
    found = cells(eval_artifact_hash(run_of(texts=texts)))
    assert found == {(5, "a"): 1.0, (9, "a"): 0.0, (9, "b"): 1.0}
    planned = cells(eval_artifact_hash(run_of(texts=texts, eval_artifact_hashes={"b": "other"})))
    assert planned == found | {(5, "b"): 0.0, (9, "b"): 0.0}


def test_one_artifact_needs_no_label():
    assert cells(eval_artifact_hash(run_of(texts={"eval_artifact_hash": {3: "q", 6: "q"}}))) == {(6, "eval_artifact_hash"): 1.0}
    assert not eval_artifact_hash(run_of(texts={"eval_artifact_hash": {3: "q"}}))
    assert cells(eval_artifact_hash(run_of(texts={"eval_artifact_hash/a": {3: "q"}}, eval_artifact_hashes={"a": "r"}))) == {
        (3, "a"): 0.0
    }


def test_memorised_are_probes_of_training_continued_word_for_word():
    match = {10: {"a": 1.0, "b": 0.99, "out": 1.0}, 20: {"a": 1.0, "b": 1.0, "out": 0.0}, 30: {"a": NAN}}
    held = {10: {"out": 1.0, "a": 0.0}}
    probes = {"probes.*.exact_match": match, "probes.*.held_out": held}
    expected = {(10, "probes"): 50.0, (20, "probes"): 100.0}
    assert cells(memorization_rate(run_of(probes))) == expected
    run = run_of(probes, {"memorization_rate": {20: {"memorization_rate": 3.0}}})
    assert cells(memorization_rate(run)) == {**expected, (20, "memorization_rate"): 3.0}
