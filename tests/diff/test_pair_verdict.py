"""What answers come to, and which findings are gained and lost."""

import pytest
from msgspec.structs import replace

from ckaudit.contract.schema.diff import Answer, Departure
from ckaudit.contract.schema.manifest import TensorFacts
from ckaudit.contract.schema.report import Finding
from ckaudit.diff.compare import WeighedPairAnswer, pair_word, verdict_sentence
from ckaudit.diff.questions import questions
from ckaudit.diff.run_pair import RunSide, gained_and_lost
from ckaudit.diff.shared_start import Parting
from tests.diff.made import both, run

PARTED = Parting(departures=(Departure(statistic="train_loss_raw", step=300, message="..."),))


def weighed(word, weighs="loss", counts=True):
    return WeighedPairAnswer(Answer(question="q", title="?", word=word, message="the numbers"), weighs, counts)


@pytest.mark.parametrize(
    ("answers", "parting", "word"),
    [
        ([weighed("within_noise")], Parting(), "within_noise"),
        ([weighed("same")], Parting(is_same=True), "same"),
        ([weighed("within_noise")], PARTED, "different"),
        ([weighed("within_noise")], replace(PARTED, is_rounding=True), "within_noise"),
        ([weighed("better"), weighed("worse", "health")], PARTED, "worse"),
        ([weighed("better"), weighed("within_noise")], PARTED, "better"),
        ([weighed("within_noise"), weighed("worse", "cost", False)], Parting(), "within_noise"),
        ([weighed("incomparable"), weighed("not_recorded"), weighed("worse", "health")], PARTED, "incomparable"),
        ([weighed("incomparable"), weighed("worse")], PARTED, "worse"),
        ([weighed("not_recorded")], Parting(), "not_recorded"),
    ],
)
def test_word_of_a_pair(answers, parting, word):
    assert pair_word(answers, parting) == word
    assert verdict_sentence(word, answers, parting.departures, [])


def test_what_does_not_count_is_told_in_the_verdict_all_the_same():
    answers = [weighed("within_noise"), weighed("worse", "health", False)]
    assert (
        verdict_sentence("within_noise", answers, [], [])
        == "Within noise: nothing that decides differs by more than chance; the numbers"
    )
    assert verdict_sentence("different", answers, [], []) == "Different: the numbers"
    cost = [weighed("within_noise"), weighed("worse", "cost", False)]
    assert verdict_sentence("within_noise", cost, [], []) == "Within noise: nothing differs by more than chance"


def finding(code, severity, where=None):
    return Finding(code=code, name=code.lower(), severity=severity, message=code, where=where)


def test_findings_gained_and_lost():
    left = [finding("A1", "sev2", "x"), finding("B1", "sev2"), finding("N1", "note")]
    right = [finding("A1", "sev2", "another place"), finding("B1", "sev1"), finding("C1", "sev2"), finding("N2", "note")]
    gained, lost = gained_and_lost(both(run(), run(), findings=(left, right)))
    assert [each.code for each in gained] == ["B1", "C1"]
    assert lost == []
    gained, lost = gained_and_lost(both(run(), run(), findings=(right, left)))
    assert (gained, [each.code for each in lost]) == ([], ["B1", "C1"])


@pytest.mark.parametrize(
    ("left", "right", "word", "counts"),
    [
        ([], ["sev2"], "worse", False),
        (["sev2"], [], "better", False),
        ([], ["sev1", "sev2"], "worse", True),
        (["sev0"], [], "better", True),
        (["sev1"], ["sev2"], "better", True),
        (["sev0"], ["sev1"], "worse", True),
        (["note"], [], "same", True),
    ],
)
def test_only_grave_illnesses_decide_the_word_of_a_pair(left, right, word, counts):
    found = [
        [finding(f"{side}{place}", severity) for place, severity in enumerate(each)] for side, each in (("L", left), ("R", right))
    ]
    answer, decides = questions()["health"](both(run(), run(), findings=found), [])
    assert (answer.word, decides) == (word, counts)
    assert (answer.left, answer.right) == ((len(left), len(right)) if word != "same" else (0, 0))


def test_what_a_replica_has_is_chance():
    replica = RunSide(run(), (finding("C1", "sev2"),))
    right = [finding("C1", "sev2"), finding("D1", "sev2")]
    gained, _ = gained_and_lost(both(run(), run(), findings=([], right), replicas=[replica]))
    assert [each.code for each in gained] == ["D1"]
    _, lost = gained_and_lost(both(run(), run(), findings=(right, []), replicas=[replica]))
    assert [each.code for each in lost] == ["C1"]


@pytest.mark.parametrize(("code", "types", "decides"), [("SYS002", ("float32",) * 2, False), ("MOVE001", ("float32",) * 2, True)])
def test_the_clock_decides_nothing_and_a_coarser_format_is_left_to_the_loss(code, types, decides):
    sides = [[], [finding(code, "sev1")]]
    plain = both(*(of_type(each) for each in types), findings=sides)
    assert questions()["health"](plain, [])[1] is decides
    coarser = both(of_type("float32"), of_type("bfloat16"), findings=sides)
    assert questions()["health"](coarser, [])[1] is False


def of_type(name):
    made = run()
    return replace(made, manifest=replace(made.manifest, tensors={"a.weight": TensorFacts(dtype=name)}))
