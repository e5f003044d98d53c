"""Heads of known kind, drawn by hand, and the similarity of all pairs by a loop."""

import json
import math

import numpy as np
import pytest

from ckaudit.contract.io.codec import encode
from ckaudit.contract.io.grids import encode_grids
from ckaudit.metrics.heads import KINDS, head_kind, head_kind_share, head_similarity, sampled_evenness, sampled_upper_mass
from ckaudit.run.read import read_run
from tests.metrics.samples import NAN, cells, run_of

PATH = "attention.*.sampled_qk_grid_32x32_per_head"
N = 12


def causal(weights):
    """Return rows of attention that sum to 1, from positive weights, later keys hidden."""
    lower = np.tril(weights)
    return lower / lower.sum(axis=1, keepdims=True)


def placed(offset):
    near = np.where(np.subtract.outer(np.arange(N), np.arange(N)) == -offset, 20.0, 0.1)
    return causal(near)


FIRST = causal(np.where(np.arange(N) == 0, 40.0, 0.1) * np.ones((N, N)))
HEADS = {
    "positional": placed(-1),
    "first_token": FIRST,
    "diagonal": placed(0),
    "uniform": causal(np.ones((N, N))),
    "content": causal(np.random.default_rng(0).gamma(0.2, 1.0, (N, N)) + 1e-6),
}


def test_each_kind_is_recognised_from_its_map():
    maps = np.stack([HEADS[kind] for kind in KINDS])
    found = head_kind(run_of(grids={PATH: {(10, "layer.0"): maps}}))
    assert [KINDS[int(value)] for value in found.values[0]] == list(KINDS)
    assert found.labels == tuple(f"layer.0/head.{head}" for head in range(5))


def test_what_the_checkpoint_says_counts_and_shares_add_up():
    recorded = {10: {"layer.0/head.0": 4.0, "layer.0/head.1": 3.0}}
    run = run_of({"attention.*.kind_per_head": recorded}, grids={PATH: {(10, "layer.0"): np.stack([FIRST, FIRST, FIRST])}})
    assert list(cells(head_kind(run)).values()) == [4.0, 3.0, 1.0]
    shares = head_kind_share(run)
    assert shares.labels == KINDS
    assert shares.values[0] == pytest.approx([0.0, 1 / 3, 0.0, 1 / 3, 1 / 3])


def test_similarity_against_a_loop_over_pairs():
    maps = np.random.default_rng(1).dirichlet(np.ones(6), (4, 6))
    expected = []
    for head in range(4):
        pairs = [
            float((maps[head] * maps[other]).sum() / math.sqrt((maps[head] ** 2).sum() * (maps[other] ** 2).sum()))
            for other in range(4)
            if other != head
        ]
        expected.append(max(pairs))
    found = head_similarity(run_of(grids={PATH: {(5, "a"): maps, (9, "b"): maps[:1]}}))
    assert found.values[0, :4] == pytest.approx(expected)
    assert not found.recorded[1].any(), "a single head has no other"
    recorded = {"attention.*.nearest_similarity_per_head": {5: {"a/head.0": 0.5}}}
    assert head_similarity(run_of(recorded, grids={PATH: {(5, "a"): maps}})).values[0, 0] == 0.5


def test_a_map_that_is_not_finite_has_no_kind():
    broken = FIRST.copy()
    broken[3, 0] = NAN
    assert not head_kind(run_of(grids={PATH: {(1, "a"): broken[None]}}))


def test_a_grid_that_is_no_rectangle_is_passed_over(tmp_path):
    whole = FIRST[None].tolist()
    layers = {"a": {"sampled_qk_grid_32x32": [[[1.0, 2.0], [1.0]]]}, "b": {"sampled_qk_grid_32x32": whole}}
    layers["c"] = {"sampled_qk_grid_32x32": {"encoding": "q8", "shape": [2, 9, 9], "min": 0.0, "max": 1.0, "data": "AAAA"}}
    document = {"schema_version": "ck.analysis.v1", "step": 7, "attention": layers}
    (tmp_path / "analysis_checkpoint_step_00000007.json").write_text(json.dumps(document))
    assert list(cells(head_kind(read_run(tmp_path, reads=head_kind.reads)))) == [(7, "b/head.0")]


@pytest.mark.parametrize("encoding", ["nested", "q8"])
@pytest.mark.parametrize("field", ["sampled_qk_grid_32x32_per_head", "sampled_qk_grid_32x32"])
def test_grids_and_kinds_are_read_from_files_where_asked_for(tmp_path, encoding, field):
    maps = np.stack([HEADS["diagonal"], FIRST])
    grids = json.loads(encode(encode_grids(maps, encoding)))
    layers = {"layer.0": {field: grids}, "layer.1": {"kind_per_head": ["uniform", "content"]}}
    document = {"schema_version": "ck.analysis.v1", "step": 7, "attention": layers}
    (tmp_path / "analysis_checkpoint_step_00000007.json").write_text(json.dumps(document))
    run = read_run(tmp_path, reads=head_kind.reads)
    kinds = {label: KINDS[int(value)] for (_, label), value in cells(head_kind(run)).items()}
    assert kinds == {
        "layer.0/head.0": "diagonal",
        "layer.0/head.1": "first_token",
        "layer.1/head.0": "uniform",
        "layer.1/head.1": "content",
    }
    assert run.until(6).grid("attention", field).steps == ()
    assert not read_run(tmp_path).grids


def test_scores_before_the_softmax_are_not_taken_for_attention():
    scores = np.random.default_rng(2).normal(0, 3, (2, N, N))
    grids = {PATH: {(10, "a"): scores, (10, "b"): np.full((1, N, N), 0.5)}}
    for metric in (head_kind, head_similarity, sampled_evenness, sampled_upper_mass):
        assert not metric(run_of(grids=grids)), metric.name


def test_evenness_of_a_map_against_a_loop():
    maps = np.stack([HEADS["uniform"], HEADS["content"]])
    expected = []
    for each in maps:
        rows = [-sum(p * math.log(p) for p in row if p > 0) / math.log(query + 1) for query, row in enumerate(each) if query]
        expected.append(sum(rows) / len(rows))
    found = sampled_evenness(run_of(grids={PATH: {(10, "a"): maps}}))
    assert found.values[0] == pytest.approx(expected)
    assert expected[0] == pytest.approx(1.0)


def test_a_map_that_is_not_its_heads_own_is_not_called_even():
    recorded = {"attention.*.entropy_per_head": {10: {"a/head.0": 2.0}}, "attention.*.max_attn_per_head": {10: {"a/head.0": 0.9}}}
    run = run_of(recorded, grids={PATH: {(10, "a"): np.full((1, 32, 32), 1 / 32)}})
    assert not sampled_evenness(run)
    assert not head_kind(run)


def test_mass_on_later_keys_against_a_loop():
    maps = np.random.default_rng(3).dirichlet(np.ones(6), (2, 6))
    maps[1] = np.tril(maps[1])
    expected = [sum(each[q, k] / each[q].sum() for q in range(6) for k in range(q + 1, 6)) / 6 for each in maps]
    assert sampled_upper_mass(run_of(grids={PATH: {(1, "a"): maps}})).values[0] == pytest.approx(expected)
    assert expected[1] == 0


def test_a_map_of_one_key_has_neither_evenness_nor_kind_nor_mass_on_later_keys():
    run = run_of(grids={PATH: {(10, "layer.0"): np.ones((2, 1, 1)), (20, "layer.0"): np.ones((2, 1, 1))}})
    assert not np.isfinite(sampled_evenness(run).values).any()
    assert not np.isfinite(head_kind(run).values).any()
    assert not np.isfinite(sampled_upper_mass(run).values).any()


def test_which_keys_are_later_is_known_of_square_maps_alone():
    run = run_of(grids={PATH: {(10, "layer.0"): np.full((1, 4, 8), 1 / 8), (20, "layer.0"): np.full((1, 4, 8), 1 / 8)}})
    assert not np.isfinite(sampled_upper_mass(run).values).any()
    assert np.allclose(sampled_evenness(run).values, 1.0)
