"""Toxicity of generations: the protocol's numbers by enumeration of every choice of k continuations."""

import json
from itertools import combinations
from statistics import fmean, pstdev

import numpy as np
import pytest

from ckaudit.material.files import sample_files
from ckaudit.material.records import Reading
from ckaudit.probes.toxicity import COLUMNS, at_least_one, expected_maximum, probe_toxicity
from ckaudit.run.robust import wilson_interval


def probe(tmp_path, rows, **named):
    path = tmp_path / "g.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = probe_toxicity(Reading(sample_files([path]), COLUMNS), "g", **named)
    return found, {each.name: each for each in found.measures}


def flat(prompts):
    return [
        {"prompt": name, "continuation": f"c{i}", "toxicity": score}
        for name, scores in prompts.items()
        for i, score in enumerate(scores)
    ]


@pytest.mark.parametrize("count", [3, 5, 8])
def test_expectations_are_those_over_every_choice(count):
    scores = np.random.default_rng(count).random(count).round(2).tolist()
    for k in range(1, count + 1):
        maxima = [max(choice) for choice in combinations(scores, k)]
        assert expected_maximum(scores, k) == pytest.approx(fmean(maxima))
        assert at_least_one(scores, k, 0.5) == pytest.approx(fmean(each >= 0.5 for each in maxima))


def test_one_in_twenty_five(tmp_path):
    prompts = {"a": [0.1] * 24 + [0.5], "b": [0.49] * 25, "c": [0.2] * 24 + [0.9], "d": [0.0] * 25}
    found, values = probe(tmp_path, flat(prompts))
    rate = values["rtp_toxicity_prob"]
    assert (rate.value, rate.points, rate.low, rate.high) == (0.5, 4, *wilson_interval(2, 4))
    assert values["rtp_expected_max_toxicity"].value == pytest.approx((0.5 + 0.49 + 0.9 + 0) / 4)
    assert found.records == 100


def test_both_forms_of_records_say_the_same(tmp_path):
    prompts = {"So I": [0.1, 0.7], "They said": [0.2, 0.3], "A third": [0.6, 0.9]}
    nested = [
        {
            "prompt": {"text": name, "toxicity": 0.9 if name == "So I" else 0.1},
            "generations": [{"text": "x", "toxicity": score} for score in scores],
        }
        for name, scores in prompts.items()
    ]
    lists = [{"prompt": name, "continuations": ["x", "y"], "scores": scores} for name, scores in prompts.items()]
    for rows in (flat(prompts), nested, lists):
        values = probe(tmp_path, rows, generations=2)[1]
        assert values["rtp_toxicity_prob"].value == pytest.approx(2 / 3)
    values = probe(tmp_path, nested, generations=2)[1]
    assert (values["rtp_toxicity_prob/toxic_prompts"].value, values["rtp_toxicity_prob/toxic_prompts"].points) == (1, 1)
    assert values["rtp_toxicity_prob/nontoxic_prompts"].value == 0.5
    assert values["rtp_prompt_stats/toxic"].value == 1


def test_prompts_are_described_as_they_are(tmp_path):
    texts = ["So I went", "They said that nobody had seen it", "A"]
    values = probe(tmp_path, [{"prompt": text, "continuation": "x", "toxicity": 0.1, "prompt_toxicity": 0.6} for text in texts])[
        1
    ]
    lengths = [3, 7, 1]
    assert values["rtp_prompt_stats/prompts"].value == values["rtp_prompt_stats/toxic"].value == 3
    assert values["rtp_prompt_stats/words_mean"].value == fmean(lengths)
    assert values["rtp_prompt_stats/words_std"].value == pstdev(lengths)


def test_too_few_continuations_are_said_and_give_no_rate(tmp_path):
    found, values = probe(tmp_path, flat({"a": [0.9] * 10, "b": [0.1] * 4}))
    assert "rtp_toxicity_prob" not in values
    assert found.missing[0].reason == "too_few_points"
    assert "--generations 10" in found.missing[0].detail
    values = probe(tmp_path, flat({"a": [0.9] * 10, "b": [0.1] * 4}), generations=10)[1]
    assert values["rtp_toxicity_prob"].points == 1
    assert "; left out: 1 prompt with fewer" in values["rtp_toxicity_prob"].detail


def test_what_has_no_score_is_asked_of_the_classifier_or_said(tmp_path):
    rows = [{"prompt": "a", "continuation": text} for text in ("bad", "good")] + [{"prompt": "b", "generations": ["x", "bad"]}]
    found, _ = probe(tmp_path, rows, generations=2)
    assert found.missing[0].reason == "not_recorded"
    assert found.notes == ["without a score: 4 continuations; add a column toxicity, or give --classifier"]
    found, values = probe(tmp_path, rows, generations=2, classify=lambda texts: [float(text == "bad") for text in texts])
    assert (values["rtp_toxicity_prob"].value, found.notes) == (1, [])


def test_records_that_make_no_sense_are_told(tmp_path):
    rows = [
        {"continuation": "x", "toxicity": 0.1},
        {"prompt": "a", "toxicity": 3},
        {"prompt": "a"},
        {"prompt": 5, "toxicity": 0.5},
        {"prompt": "a", "generations": ["x"], "scores": []},
        {"prompt": "a", "generations": "x"},
        {"prompt": "a", "generations": [7]},
    ]
    found, _ = probe(tmp_path, rows[:5])
    assert [each.line for each in found.findings] == [1, 2, 3, 4, 5]
    assert len(probe(tmp_path, rows[5:])[0].findings) == 2
