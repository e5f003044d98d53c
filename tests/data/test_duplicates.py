"""Near duplicates against brute force: every pair of documents compared by the definition."""

import random
import re
from functools import cache
from itertools import combinations

import pytest
from msgspec.structs import replace

from ckaudit.data.document import Document
from ckaudit.data.duplicates import Candidates, Duplicates, hashes, jaccard, shingles, words
from tests.data.corpus import docstrings


def documents(texts, name="a"):
    return [Document(f"{name}:{number}", text) for number, text in enumerate(texts, 1)]


def found(train, validation=()):
    duplicates = Duplicates()
    for each in train:
        duplicates.observe(each)
    for each in validation:
        duplicates.see_held_out(each)
    duplicates.compare([*train, *validation])
    return {each.name: each for each in duplicates.measures(has_validation=bool(validation))}, duplicates.clusters


@cache
def slow_shingles(text):
    tokens = re.findall(r"\w+", text.lower())
    return {tuple(tokens[start : start + 5]) for start in range(max(1, len(tokens) - 4))}


def slow_jaccard(one, other):
    one, other = slow_shingles(one), slow_shingles(other)
    return len(one & other) / len(one | other)


def edited(text, share, chance):
    return " ".join("changed" if chance.random() < share else word for word in text.split())


@pytest.fixture(scope="module")
def texts():
    """Docstrings, some of them once more with a few words changed: pairs on both sides of 0.8."""
    chance = random.Random(7)
    base = [*docstrings()[:250]]
    return base + [
        edited(text, share, chance) for share in (0.0, 0.01, 0.02, 0.03, 0.05, 0.1) for text in chance.sample(base, 25)
    ]


@pytest.fixture(scope="module")
def truth(texts):
    return {pair for pair in combinations(range(len(texts)), 2) if slow_jaccard(texts[pair[0]], texts[pair[1]]) >= 0.8}


def groups_of(pairs, count):
    group = list(range(count))
    for one, other in pairs:
        old, new = group[other], group[one]
        group = [new if each == old else each for each in group]
    return [group.count(each) for each in sorted(set(group))]


def test_the_rate_and_the_groups_are_those_of_brute_force(texts, truth):
    assert 50 < len(truth) < 500
    measures, clusters = found(documents(texts))
    in_a_pair = {each for pair in truth for each in pair}
    assert measures["near_dup_rate"].value == 100 * len(in_a_pair) / len(texts)
    sizes = sorted(groups_of(truth, len(texts)), reverse=True)
    assert f"; {len(texts) - len(sizes)} could be removed" in measures["near_dup_rate"].detail
    assert measures["doc_repeat_hotspots"].value == sizes[0]
    assert [each.documents for each in clusters] == sizes[: len(clusters)]


def test_the_overlap_is_that_of_brute_force(texts):
    train, validation = texts[:300], texts[300:]
    hit = [any(slow_jaccard(one, other) >= 0.8 for other in train) for one in validation]
    assert 0 < sum(hit) < len(hit)
    measures, _ = found(documents(train), documents(validation, "v"))
    assert measures["train_val_overlap"].value == 100 * sum(hit) / len(hit)
    assert measures["train_val_overlap"].points == len(validation)


def test_the_index_is_that_of_the_definition(texts):
    for one, other in list(combinations(texts[::9], 2))[:300]:
        fast = jaccard(hashes(shingles(words(one))), hashes(shingles(words(other))))
        assert fast == pytest.approx(slow_jaccard(one, other), abs=1e-12)


def test_pairs_at_the_threshold_are_proposed():
    """300 pairs that share about 0.8 of their shingles: theory says that one in twenty thousand is missed."""
    chance, candidates, expected = random.Random(3), Candidates(), set()
    for number in range(300):
        shared = {f"{number} {chance.random()}" for _ in range(80)}
        for side in (0, 1):
            candidates.add(shared | {f"{number} {side} {each}" for each in range(10)})
        expected.add((2 * number, 2 * number + 1))
    pairs = set(map(tuple, candidates.pairs().tolist()))
    assert len(expected - pairs) <= 1
    assert len(pairs - expected) < 10


def test_case_and_punctuation_do_not_count_and_order_does():
    one = "The quick brown fox jumps over the lazy dog, twice."
    measures, clusters = found(
        documents([one, one.upper().replace(",", ";"), "twice dog lazy the over jumps fox brown quick the"])
    )
    assert measures["near_dup_rate"].value == 200 / 3
    assert (clusters[0].places, clusters[0].documents) == (["a:1", "a:2"], 2)


def test_text_without_blanks_is_compared_by_its_characters():
    one = "委员会决定在月底之前公布第二次调查的结果并且邀请所有成员参加会议讨论下一步的工作计划和预算安排"
    measures, _ = found(documents([one, one[:-1] + "了", "完全不同的一句话在这里没有任何关系可以说明问题所在的地方"]))
    assert measures["near_dup_rate"].value == 200 / 3


def test_a_thousand_copies_that_differ_in_a_number_are_one_group():
    page = docstrings()[0]
    measures, clusters = found(documents([f"{page} page {number}" for number in range(1000)]))
    assert measures["near_dup_rate"].value == 100
    assert clusters[0].documents == 1000


def test_a_group_is_shown_without_personal_data():
    text = "Write to ann@ckaudit.dev or to +49 30 901820 " + docstrings()[0]
    _, clusters = found(documents([text, text]))
    assert "ann@" not in clusters[0].excerpt
    assert "[email]" in clusters[0].excerpt
    assert "[phone]" in clusters[0].excerpt


def test_what_there_is_too_little_of_is_said():
    measures, _ = found(documents(["one document"]))
    assert measures["near_dup_rate"].reason == "too_few_points"
    measures, _ = found(documents(["one", "two", "..."]))
    assert measures["near_dup_rate"].value == 0
    assert "1 without words" in measures["near_dup_rate"].detail
    assert measures["train_val_overlap"].reason == "not_recorded"
    measures, _ = found([replace(each, text=None) for each in documents(["a", "b"])], documents(["a"], "v"))
    assert measures["train_val_overlap"].reason == "not_recorded"
