"""Hits of many places folded into one: which of them speaks, and how all are told."""

from ckaudit.audit.judge import describe, merge_hits
from ckaudit.rules.rule import Hit

HEADS = [f"layer.0/head.{index}" for index in range(4)]
KNOWN = [("heads", frozenset(HEADS))]
AHEAD = "{where} puts {value:.2g} ahead"


def hit(where, value, *, first=10, last=100, badness=None, message=AHEAD, limit=None):
    return Hit(
        severity="sev2",
        message=message,
        where=where,
        first=first,
        last=last,
        value=value,
        limit=limit,
        badness=value if badness is None else badness,
    )


def sentence_of(*hits):
    (folded,) = merge_hits(hits)
    return describe(folded, KNOWN)


def test_of_those_that_begin_together_the_worst_speaks():
    (folded,) = merge_hits([hit(where, value) for where, value in zip(HEADS, (0.59, 0.7, 0.86, 0.1), strict=True)])
    assert (folded.where, folded.value, folded.worst) == (HEADS[2], 0.86, None)
    assert folded.also == (HEADS[0], HEADS[1], HEADS[3])
    assert describe(folded, KNOWN) == ("layer.0/head.2 puts 0.86 ahead (the worst of all 4 heads)", "all 4 heads")


def test_what_is_bad_the_other_way_round_is_ranked_by_its_badness():
    sentence, _ = sentence_of(hit(HEADS[0], 0.09, badness=-0.09), hit(HEADS[1], 0.01, badness=-0.01))
    assert sentence == "layer.0/head.1 puts 0.01 ahead (and 1 more)"


def test_where_all_are_equally_bad_the_group_is_the_subject():
    hits = [hit(where, 0.0, message="{where} gets no gradient: its norm is {value:.2g}") for where in HEADS]
    assert sentence_of(*hits) == ("the model (all 4 heads) gets no gradient: its norm is 0", "all 4 heads")


def test_numbers_that_are_written_alike_are_alike():
    hits = [hit(where, 0.5 + index * 1e-6) for index, where in enumerate(HEADS)]
    assert sentence_of(*hits)[0] == "the model (all 4 heads) puts 0.5 ahead"


def test_the_first_in_time_speaks_and_the_worst_that_came_later_is_named():
    sentence, group = sentence_of(hit(HEADS[0], 0.2), hit(HEADS[1], 0.3), hit(HEADS[2], 0.9, first=40))
    assert sentence == "layer.0/head.1 puts 0.3 ahead (and 2 more by step 40; layer.0/head.2 has come to 0.9)"
    assert group is None
    whole = sentence_of(hit(HEADS[0], 0.2), *(hit(where, 0.9, first=40) for where in HEADS[1:]))
    assert whole[0] == "layer.0/head.0 puts 0.2 ahead (as in all 4 heads by step 40; layer.0/head.1 has come to 0.9)"


def test_a_rule_that_ranks_no_places_calls_none_the_worst():
    hits = [
        Hit(severity="sev2", message="{value:.0f} of {where} are lost", where=where, first=1, last=2, value=float(index))
        for index, where in enumerate(HEADS)
    ]
    assert sentence_of(*hits) == ("0 of layer.0/head.0 are lost (as in all 4 heads)", "all 4 heads")


def test_a_sentence_without_a_place_is_followed_by_its_places():
    one = Hit(
        severity="sev2",
        message="gradients vanish now and then",
        where=HEADS[0],
        also=tuple(HEADS[1:]),
        first=3,
        last=9,
        joined_by=9,
    )
    assert describe(one, KNOWN)[0] == "gradients vanish now and then (all 4 heads by step 9)"


def test_one_place_alone_is_only_itself():
    assert sentence_of(hit(HEADS[0], 0.5)) == ("layer.0/head.0 puts 0.5 ahead", None)


def test_an_interval_without_end_holds_all_that_begin_later():
    (folded,) = merge_hits([hit("a", 1.0, last=None), hit("b", 1.0, first=50, last=60), hit("c", 1.0, first=90)])
    assert folded.also == ("b", "c")
