"""Scores of continuations, against counts by hand; and the curve of a model that learns a real corpus by heart."""

import json
import math
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from ckaudit.audit.memorization_curve import curve_of
from ckaudit.cli.run import run
from ckaudit.material.files import sample_files
from ckaudit.material.records import Reading
from ckaudit.metrics.memorization import memorization_gap, probe_group_perplexity, probe_overlap
from ckaudit.metrics.probes import probe_accuracy
from ckaudit.probes.passages import Passage, hash_of
from ckaudit.probes.score import COLUMNS, score_passages
from ckaudit.run.read import read_run
from tests.metrics.samples import cells

MATERIAL = Path(__file__).parents[2] / "fixtures" / "runs" / "experts_two_ranks" / "material"


def passage(name, truth, *, group="train", prompt=None):
    prompt = prompt if prompt is not None else f"prompt of {name}"
    return Passage(id=name, group=group, prompt=prompt, truth=truth, source="a:1", hash=hash_of(prompt, truth))


PASSAGES = [passage("a", "one two three four"), passage("b", [1, 2, 3, 1], prompt=[7, 8]), passage("c", "x y", group="held_out")]


def scored(tmp_path, rows, passages=PASSAGES):
    (tmp_path / "g.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return score_passages(Reading(sample_files([tmp_path / "g.jsonl"]), COLUMNS), passages, "g.jsonl")


def values(found):
    return {each.name: each.value for each in found.measures}


def test_three_scores_of_each_probe(tmp_path):
    found = scored(
        tmp_path,
        [
            {"id": "a", "continuation": "one three two four and more", "loss": 0.7},
            {"prompt": [7, 8], "continuation": [1, 1, 3], "logprobs": [-1.0, -2.0, -3.0, -2.0]},
            {"id": "c", "continuation": "", "perplexity": 30.0},
        ],
    )
    assert values(found) == {
        "probe_accuracy/train": pytest.approx((2 / 4 + 2 / 4) / 2),
        "probe_overlap/train": pytest.approx((4 / 4 + 3 / 4) / 2),  # of 1, 2, 3, 1 the ones and the three were said
        "probe_accuracy/held_out": 0.0,
        "probe_overlap/held_out": 0.0,
        "probe_perplexity/a": pytest.approx(math.exp(0.7)),
        "probe_perplexity/b": pytest.approx(math.exp(2.0)),
        "probe_perplexity/c": 30.0,
    }
    assert f"perplexity of the truth {math.exp((0.7 + 2.0) / 2):.4g}" in found.measures[0].detail
    assert not found.findings


@pytest.mark.parametrize(
    "row",
    [
        {"id": "z", "continuation": "x"},
        {"prompt": "no such", "continuation": "x"},
        {"id": "a"},
        {"id": "a", "continuation": [1]},
        {"id": "b", "continuation": "x"},
        {"id": "a", "continuation": "x", "loss": "2"},
        {"id": "a", "continuation": "x", "loss": -1},
        {"id": "a", "continuation": "x", "perplexity": 0.5},
        {"id": "a", "continuation": "x", "logprobs": [0.5]},
        {"id": "a", "continuation": "x", "logprobs": []},
        {"id": "a", "continuation": "x", "logprobs": ["y"]},
    ],
)
def test_what_cannot_be_scored_is_told_and_left_out(row, tmp_path):
    found = scored(tmp_path, [row, {"id": "c", "continuation": "x y"}])
    assert [each.code for each in found.findings] == ["DAT004"]
    assert values(found) == {"probe_accuracy/held_out": 1.0, "probe_overlap/held_out": 1.0}
    assert found.notes == ["not continued: 2 probes, the first is a; the mean of its group is that of the others"]
    assert {each.name for each in found.missing} == {"probe_accuracy/train", "probe_perplexity"}


def test_a_probe_counts_once(tmp_path):
    found = scored(tmp_path, [{"id": "a", "continuation": "one"}, {"id": "a", "continuation": "one two"}])
    assert "a was continued before" in found.findings[0].message
    assert values(found)["probe_accuracy/train"] == 0.25


class Parrot:
    """Continues with the word that most often followed the last three of what it has read."""

    def __init__(self, texts):
        self.followers = defaultdict(Counter)
        for text in texts:
            words = text.split()
            for place in range(1, len(words)):
                for length in (1, 2, 3):
                    self.followers[tuple(words[max(0, place - length) : place])][words[place]] += 1

    def say(self, prompt, count):
        words = prompt.split()
        for _ in range(count):
            known = (self.followers[tuple(words[-length:])] for length in (3, 2, 1) if tuple(words[-length:]) in self.followers)
            best = next(known, Counter({"?": 1}))
            words.append(min(best, key=lambda word: (-best[word], word)))
        return " ".join(words[-count:])


def test_the_curve_of_a_model_that_learns_a_real_corpus_by_heart(tmp_path, capfd):
    folder, probes = tmp_path / "run", tmp_path / "probes.jsonl"
    folder.mkdir()
    (folder / "scalars.jsonl").write_text('{"step": 2000, "train_loss_raw": 1.0}\n')
    reserved = [
        "probe",
        "init",
        str(MATERIAL / "documents.jsonl"),
        "--held-out",
        str(MATERIAL / "held_out.jsonl"),
        "--out",
        str(probes),
    ]
    assert run(reserved) == 0
    assert "16 passages of the training data, 16 held out" in capfd.readouterr().out
    corpus = [json.loads(line)["text"] for line in (MATERIAL / "documents.jsonl").read_text().splitlines()]
    asked = [json.loads(line) for line in probes.read_text().splitlines()]
    by_hand = {}
    for step, read in ((0, 0), (100, 100), (500, 500), (2000, len(corpus))):
        model = Parrot(corpus[:read])
        continuations = {each["id"]: model.say(each["prompt"], len(each["truth"].split())) for each in asked}
        lines = [json.dumps({"id": name, "continuation": text}) for name, text in continuations.items()]
        (tmp_path / "g.jsonl").write_text("\n".join(lines))
        command = [
            "probe",
            "score",
            str(tmp_path / "g.jsonl"),
            "--probes",
            str(probes),
            "--into",
            str(folder),
            "--step",
            str(step),
        ]
        assert run([*command, "-q"]) == 0
        for group in ("train", "held_out"):
            shares = [
                sum(one == other for one, other in zip(continuations[each["id"]].split(), each["truth"].split(), strict=True))
                / len(each["truth"].split())
                for each in asked
                if each["group"] == group
            ]
            by_hand[step, group] = sum(shares) / len(shares)
    drawn = capfd.readouterr().out
    found = read_run(folder)
    assert cells(probe_accuracy(found)) == pytest.approx(by_hand)
    points = curve_of(found)
    assert [(each.step, each.expected) for each in points] == [
        (0, "about 0 %"),
        (100, "5-15 %"),
        (500, "30-50 %"),
        (2000, "70-90 %"),
    ]
    assert points[0].train == 0.0
    assert points[0].stage == "untrained"
    assert points[-1].train > points[1].train > 0.05
    assert cells(memorization_gap(found))[2000, "memorization_gap"] == pytest.approx(points[-1].train - points[-1].held_out)
    assert points[-1].train > points[-1].held_out
    assert f"{100 * points[-1].train:.1f} %  {points[-1].stage}; playbook 70-90 %; gap " in drawn


def test_logged_scores_are_read_by_their_group(tmp_path):
    line = {
        "step": 5,
        "probe_overlap/train": 0.5,
        "probe_overlap/held_out": 0.25,
        "probe_perplexity/train_00": 2.0,
        "probe_perplexity/train_01": 8.0,
        "probe_perplexity/held_out_00": 50.0,
    }
    (tmp_path / "scalars.jsonl").write_text(json.dumps(line) + "\n")
    found = read_run(tmp_path)
    assert cells(probe_overlap(found)) == {(5, "train"): 0.5, (5, "held_out"): 0.25}
    assert cells(probe_group_perplexity(found)) == pytest.approx({(5, "train"): 4.0, (5, "held_out"): 50.0})


def test_init_and_score_on_the_command_line(tmp_path, capfd):
    corpus, probes = tmp_path / "c.txt", tmp_path / "p.jsonl"
    corpus.write_text("only one text of nine words stands in here")
    assert run(["probe", "init", str(corpus), "--out", str(probes)]) == 1  # fewer than asked for
    assert run(["probe", "init", str(corpus), "--out", str(probes)]) == 2  # it is there already
    assert "scores compare only on the same probes" in capfd.readouterr().err
    assert run(["probe", "init", str(corpus), "--out", str(tmp_path / "q.jsonl"), "--count", "1"]) == 0
    corpus.write_text("too short")
    assert run(["probe", "init", str(corpus), "--out", str(tmp_path / "r.jsonl")]) == 2
    assert run(["probe", "init", str(corpus), "--out", str(tmp_path / "no" / "r.jsonl")]) == 2
    assert run(["probe", "init", str(corpus), "--out", str(tmp_path / "r.jsonl"), "--count", "0"]) == 2
    (tmp_path / "g.jsonl").write_text('{"id": "train_00", "continuation": "words stands in here"}\n')
    assert run(["probe", "score", str(tmp_path / "g.jsonl"), "--probes", str(probes), "-f", "json"]) == 0
    out = capfd.readouterr().out
    assert json.loads(out[out.index('{\n  "schema') :])["command"] == "probe score"
    assert run(["probe", "score", str(tmp_path / "g.jsonl"), "--probes", str(tmp_path / "none")]) == 2
    (tmp_path / "g.jsonl").write_text('{"id": "other", "continuation": "x"}\n')
    assert run(["probe", "score", str(tmp_path / "g.jsonl"), "--probes", str(probes)]) == 2
