"""Comparisons of recorded trainings that differ in one thing each."""

from functools import cache
from pathlib import Path

import msgspec
import pytest

from ckaudit.audit.load_run import open_run
from ckaudit.contract.schema.diff import Comparison
from ckaudit.diff.compare import compare, compare_canary
from ckaudit.errors import UnreadableError, UsageError
from tests.diff.pairs import PAIRS, copied, manifest, relog

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
PYTHIA = Path(__file__).parents[2] / "fixtures" / "real" / "pythia"


@cache
def pair(name, **options):
    return compare([PAIRS / "base", PAIRS / name], **options).pairs[0]


@pytest.mark.parametrize("name", ["identical", "resumed"])
def test_the_same_to_the_last_bit(name):
    found = pair(name)
    assert found.word == "same"
    assert (found.parting, found.propagation) == (None, [])
    assert found.noise.source == "identical"


@pytest.mark.parametrize("name", ["replica", "replica_2"])
def test_another_seed_is_within_noise(name):
    found = pair(name)
    assert found.word == "within_noise"
    assert found.noise.source == "residuals"
    assert pair(name, noise=(PAIRS / "replica", PAIRS / "replica_2")).word == "within_noise"


@pytest.mark.parametrize(
    ("name", "step", "statistic", "where"),
    [
        ("lr_doubled", 500, "learning_rate", None),
        ("frozen", 300, "gradient_norm", "blocks.1.mlp.up.weight"),
        ("optimizer_lost", 402, "train_loss_raw", None),
    ],
)
def test_a_late_change_parts_where_it_was_made(name, step, statistic, where):
    found = pair(name)
    assert (found.parting.step, found.parting.statistic, found.parting.where) == (step, statistic, where)
    assert found.propagation[0] == found.parting
    assert len(found.propagation) <= 20
    assert [each.step for each in found.propagation] == sorted(each.step for each in found.propagation)
    assert found.word in ("worse", "different")
    assert found.drifts


def test_a_run_that_diverged_does_not_hide_behind_its_own_noise():
    found = compare([RUNS / "healthy", RUNS / "lr_too_high"]).pairs[0]
    answers = {each.question: each for each in found.answers}
    for name in ("final_loss", "smoothed_loss", "validation_loss", "validation_slices"):
        assert answers[name].word == "worse", name
        assert answers[name].band < answers[name].right - answers[name].left
    assert "higher since step 81;" in answers["smoothed_loss"].message
    assert "train_loss_raw" in {each.statistic for each in found.propagation}


def test_another_tokenizer_is_not_comparable():
    found = pair("tokenizer")
    assert found.word == "incomparable"
    assert found.parting is None or found.parting.statistic != "train_loss_raw"


@pytest.mark.parametrize("member", ["vocabulary", "sequence_length"])
def test_held_out_losses_of_other_rows_or_another_vocabulary_are_not_comparable(member, tmp_path):
    other = copied("replica", tmp_path)
    manifest(other, lambda whole: whole.update({member: whole[member] // 2}))
    found = compare([PAIRS / "base", other]).pairs[0]
    words = {each.question: each.word for each in found.answers}
    assert {words[name] for name in ("final_loss", "loss_at_equal_tokens", "validation_loss")} == {"incomparable"}
    assert found.word == "incomparable"
    assert next(each for each in found.unlike if each.name == member).invalidates


def test_two_models_of_other_rows_are_not_comparable():
    found = compare([RUNS / "healthy", PAIRS / "base"]).pairs[0]
    assert found.word == "incomparable"
    assert not {"val_loss", "train_loss_raw"} & {each.statistic for each in found.propagation}


def test_the_document_is_that_of_the_contract_and_the_gravest_pair_speaks():
    found = compare([PAIRS / each for each in ("base", "identical", "tokenizer", "frozen")])
    assert [each.word for each in found.pairs] == ["same", "incomparable", "different"]
    assert found.word == "different"
    assert found.subjects == [str(PAIRS / each) for each in ("base", "identical", "tokenizer", "frozen")]
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison) == found
    assert found.files > 20


def test_before_the_change_both_are_the_same():
    assert pair("lr_doubled", step=450).word == "same"


def test_by_loss_and_by_tokens():
    for axis in ("tokens", "loss"):
        found = compare([PAIRS / "base", PAIRS / "replica"], axis=axis)
        assert found.axis == axis
        assert found.word == "within_noise"


@pytest.mark.parametrize("name", ["lr_doubled", "frozen", "identical"])
def test_by_tokens_runs_with_equal_updates_part_where_they_part_by_step(name):
    plain, found = pair(name), pair(name, axis="tokens")
    assert (found.word, found.parting, found.propagation) == (plain.word, plain.parting, plain.propagation)


def test_foreign_logs_of_two_seeds_of_a_public_training():
    found = compare([PYTHIA / "160m-6.first5000.csv", PYTHIA / "160m-8.first5000.csv"]).pairs[0]
    words = {each.question: each.word for each in found.answers}
    assert (words["final_loss"], words["smoothed_loss"], words["validation_loss"]) == (
        "within_noise",
        "within_noise",
        "not_recorded",
    )
    assert found.parting is None
    assert [each.name for each in found.gained] == ["loss_spike"]
    assert (words["health"], found.word) == ("worse", "within_noise")
    assert "more than chance; 1 finding gained: loss_spike" in found.verdict


def test_a_canary_is_held_against_every_good_run_and_each_is_read_once(monkeypatch):
    read = []

    def once(path, **options):
        read.append(path)
        return open_run(path, **options)

    monkeypatch.setattr("ckaudit.audit.engine.open_run", once)
    canary, good = PAIRS / "lr_doubled", [PAIRS / name for name in ("base", "replica", "replica_2")]
    found = compare_canary(canary, good)
    assert sorted(read) == sorted([canary, *good])
    alone = [compare([each, canary], noise=[other for other in good if other != each]) for each in good]
    assert [each.pairs for each in found] == [each.pairs for each in alone]
    assert sum(each.files for each in found) == sum(open_run(path, reads=()).files for path in (canary, *good))


@pytest.mark.parametrize(("settings", "word"), [({}, "within_noise"), ({"patience": 3}, "different")])
def test_a_schedule_that_follows_the_loss_is_no_change_under_the_same_settings(settings, word, tmp_path):
    runs = [copied(name, tmp_path) for name in ("base", "replica")]
    for place, (folder, onset) in enumerate(zip(runs, (300, 400), strict=True)):
        relog(
            folder,
            lambda lines, onset=onset: [line.update(learning_rate=1e-3 if line["step"] < onset else 1e-4) for line in lines],
        )
        manifest(folder, lambda whole: whole.pop("planned_learning_rate", None))
        manifest(folder, lambda whole, more=settings if place else {}: whole["config"].update(more))
    found = compare(runs).pairs[0]
    assert found.word == word
    assert any("follows the loss" in note for note in found.notes) == (word == "within_noise")


def test_usage():
    with pytest.raises(UsageError):
        compare([PAIRS / "base"])
    with pytest.raises(UnreadableError):
        compare([PAIRS / "base", PAIRS / "nowhere"])


@pytest.mark.parametrize(("planned", "limits"), [(600, None), (2_000, "of 2,000 planned steps are done")])
def test_a_run_that_stopped_short_of_its_plan_says_so(tmp_path, planned, limits):
    other = manifest(copied("replica", tmp_path), lambda facts: facts.update(planned_steps=planned))
    found = compare([PAIRS / "base", other]).pairs[0]
    sentence = found.right_limits or ""
    assert (limits in sentence) if limits else "planned steps" not in sentence
