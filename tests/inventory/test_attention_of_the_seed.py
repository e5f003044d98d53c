"""Attention, activations and the record itself, from the seed's fields alone: the same verdict from any number of checkpoints."""

import json
from pathlib import Path

import numpy as np
import pytest

from ckaudit.audit import triage
from ckaudit.contract.schema.report import Report
from tests.inventory.forms import attention_of, heads_map, seed_checkpoints
from tests.inventory.ill import SEED, heads_are

GRAVE = ("sev0", "sev1", "sev2")
EVEN = {"blocks": 2, "heads": 3}


def steps_of(count: int) -> list[int]:
    return np.linspace(10, 1000, count).astype(int).tolist()


def graves(report: Report) -> dict[str, str]:
    """Return the gravest severity of each code that is more than a note."""
    found: dict[str, str] = {}
    for each in report.findings:
        if each.severity in GRAVE:
            found[each.code] = min(found.get(each.code, "sev2"), each.severity)
    return found


@pytest.mark.parametrize("count", [3, 5, 28])
@pytest.mark.parametrize(
    ("ill", "expected"),
    [
        ("collapse", {"ATTN001": "sev1"}),
        ("uniform", {"ATTN003": "sev2"}),
        ("copies", {"ATTN004": "sev2"}),
        ("units_die", {"ACT001": "sev2"}),
        ("activations_explode", {"ACT002": "sev2"}),
    ],
)
def test_an_illness_is_found_in_any_number_of_checkpoints(tmp_path, ill, expected, count):
    assert graves(triage(seed_checkpoints(tmp_path, steps_of(count), SEED[ill], **EVEN))) == expected


def test_a_collapse_is_found_in_a_hundred_checkpoints(tmp_path):
    assert graves(triage(seed_checkpoints(tmp_path, steps_of(100), SEED["collapse"], **EVEN))) == {"ATTN001": "sev1"}


@pytest.mark.parametrize("count", [3, 5, 28])
@pytest.mark.parametrize("looks", ["causal", "both"])
def test_a_healthy_run_is_left_alone_in_any_number_of_checkpoints(tmp_path, looks, count):
    assert graves(triage(seed_checkpoints(tmp_path, steps_of(count), looks=looks, **EVEN))) == {}


def test_half_of_the_heads_may_be_sharp(tmp_path):
    bend = heads_are(lambda head: head % 2, lambda done: 12 * done)

    def one_of_two(document, done, chance):
        own = document["attention"]
        before = {name: layer["sampled_qk_grid_32x32_per_head"] for name, layer in own.items()}
        bend(document, done, chance)
        for name, layer in document["attention"].items():
            after = layer["sampled_qk_grid_32x32_per_head"]
            document["attention"][name] = attention_of([np.array(after[0]), np.array(before[name][1])])

    assert graves(triage(seed_checkpoints(tmp_path, steps_of(10), one_of_two, blocks=2, heads=2))) == {}


def test_an_encoder_is_noted_at_most(tmp_path):
    report = triage(seed_checkpoints(tmp_path, steps_of(10), looks="both", **EVEN))
    assert [each.severity for each in report.findings if each.code == "MASK001"] == ["note"]


def test_a_sampled_map_shows_a_leak_where_run_json_asks_for_a_mask(tmp_path):
    seed_checkpoints(tmp_path, steps_of(10), looks="both", **EVEN)
    facts = {"schema_version": "ck.run.v1", "attention": {"layer.0": "causal", "layer.1": "bidirectional"}}
    (tmp_path / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    found = [(each.severity, each.where) for each in triage(tmp_path).findings if each.code == "MASK001"]
    assert ("sev0", "layer.0/head.0") in found


def rewrite(folder: Path, change) -> Path:
    """Change every checkpoint of a folder in place."""
    for path in folder.iterdir():
        document = json.loads(path.read_text(encoding="utf-8"))
        change(document)
        path.write_text(json.dumps(document), encoding="utf-8")
    return folder


def test_scores_before_the_softmax_are_noted_and_say_nothing_of_heads(tmp_path):
    def scores(document):
        for layer in document["attention"].values():
            layer["sampled_qk_grid_32x32_per_head"] = np.random.default_rng(0).normal(0, 3, (3, 32, 32)).tolist()

    report = triage(rewrite(seed_checkpoints(tmp_path, steps_of(10), **EVEN), scores), questions=[3])
    assert graves(report) == {}
    assert "VAL028" in {each.code for each in report.findings}
    assert {each.id: each.word for each in report.interview[0].answers}["D3.2"] == "not_recorded"


def test_maps_that_stand_for_nothing_are_passed_over(tmp_path):
    def even(document):
        for layer in document["attention"].values():
            layer |= {"entropy_per_head": [2.1, 1.9, 2.0], "max_attn_per_head": [0.4, 0.5, 0.6]}
            layer["sampled_qk_grid_32x32_per_head"] = [heads_map(0.0, 0, "both").tolist()] * 3

    report = triage(rewrite(seed_checkpoints(tmp_path, steps_of(10), **EVEN), even), questions=[2, 3])
    assert [each.code for each in report.findings] == []
    assert [each.id for phase in report.interview for each in phase.answers if each.word == "bad"] == []


def test_levels_in_place_of_percentiles_are_named(tmp_path):
    def levels(document):
        for each in document["weights"].values():
            each["percentiles"] = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]

    report = triage(rewrite(seed_checkpoints(tmp_path, steps_of(5), **EVEN), levels))
    assert graves(report) == {"VAL006": "sev2"}
    assert report.diagnoses[0].cause == "writer_wrote_levels"
