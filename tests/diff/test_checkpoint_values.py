"""The walk over the values of two checkpoints, against a slow one."""

import json
from typing import Any

from ckaudit.diff.checkpoint_diff import differences
from ckaudit.diff.checkpoint_values import values
from ckaudit.diff.exact_values import unequal_leaves
from tests.diff.pairs import PAIRS, document


def flat(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return every value of a document that is no object, by its path."""
    if not isinstance(value, dict):
        return {path: value}
    return {key: each for name, member in value.items() for key, each in flat(member, (*path, name)).items()}


def test_both_readers_find_what_differs_in_two_recorded_checkpoints() -> None:
    one, other = (document(PAIRS / name, 500) for name in ("base", "lr_doubled"))
    mine, theirs = flat(one), flat(other)
    places = {
        path[:2] for path in mine if path[0] in ("weights", "gradients") and json.dumps(mine[path]) != json.dumps(theirs[path])
    }
    leaves = unequal_leaves(one, other)
    assert {(each.statistic.partition(".")[0], each.where) for each in leaves.unequal if each.where} >= places
    tallies = differences(one, other).tallies
    for name in ("weights.std", "weights.frobenius_norm", "gradients.norm"):
        section, _, field = name.partition(".")
        paths = [path for path in mine if path[0] == section and path[2] == field]
        apart = [path for path in paths if mine[path] != theirs[path]]
        assert (tallies[name].apart, tallies[name].places) == (len(apart), len(paths)), name
        assert sum(each.statistic == name for each in leaves.unequal) == len(apart)


def test_places_stand_in_the_order_of_a_step_and_times_are_left_out() -> None:
    left = {
        "weights": {"a": {"std": 1}},
        "scalars": {"x": 1, "step_time": 2},
        "activations": {"b": {"rms": 1}},
        "time": 3,
        "loss": 2,
    }
    right = left | {"weights": {"c": {"std": 1}}}
    found = [each[:2] for each in values(left, right)]
    assert found == [("activations", "b"), ("loss", None), ("scalars.x", None), ("weights", "a"), ("weights", "c")]
    assert [each for each in values(left, right) if each[1] == "a"] == [("weights", "a", {"std": 1}, None)]


def test_a_place_that_is_null_in_both_is_the_same() -> None:
    found = differences({"weights": {"a": None}}, {"weights": {"a": None}})
    assert (found.gone, found.new) == ({}, {})
