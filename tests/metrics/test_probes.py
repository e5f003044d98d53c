"""Pinned batches and their twins against values made by hand."""

import math

from ckaudit.metrics.probes import (
    fixed_probe_loss,
    logit_entropy_probe,
    output_kl_to_prev,
    probe_perplexity,
    probe_shift_entropy,
    probe_shift_loss,
    topk_mass_probe,
)
from tests.metrics.samples import cells, run_of

NAN = math.nan


def test_what_was_logged_of_a_pinned_batch_is_a_series_by_batch():
    for metric in (fixed_probe_loss, logit_entropy_probe, topk_mass_probe, output_kl_to_prev):
        run = run_of(scalars={metric.name: {10: {"first": 2.0, "early": 3.0}, 20: {"first": 1.0}}})
        assert cells(metric(run)) == {(10, "first"): 2.0, (10, "early"): 3.0, (20, "first"): 1.0}
        assert not metric(run_of(scalars={"other": [1.0]}))


def test_a_perplexity_is_made_of_the_loss_where_none_was_recorded():
    run = run_of({"probes.*.perplexity": {10: {"a": 5.0}}, "probes.*.loss": {10: {"a": 1.0, "b": 2.0}}})
    assert cells(probe_perplexity(run)) == {(10, "a"): 5.0, (10, "b"): math.exp(2.0)}


def test_a_twin_is_compared_with_the_probe_it_is_named_after():
    rows = {
        10: {"a": 1.0, "a.shifted": 1.5, "b": 2.0, "c.shifted": 9.0},
        20: {"a": 0.5, "a.shifted": NAN, "b": 2.0, "b.shifted": 3.0},
        30: {"a": 0.25, "a.shifted": 0.25},
    }
    shift = {10: {"a.shifted": 8, "c.shifted": 8}, 20: {"a.shifted": 8}, 30: {"a.shifted": 8}}
    for metric, field in ((probe_shift_loss, "loss"), (probe_shift_entropy, "entropy")):
        found = cells(metric(run_of({f"probes.*.{field}": rows, "probes.*.shift": shift})))
        assert found.keys() == {(10, "a"), (20, "a"), (30, "a")}
        assert (found[10, "a"], found[30, "a"]) == (0.5, 0.0)
        assert math.isnan(found[20, "a"])


def test_without_a_twin_there_is_nothing_to_compare():
    assert not probe_shift_loss(run_of({"probes.*.loss": {10: {"a": 1.0}}}))
