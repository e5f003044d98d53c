from ckaudit.contract.cadence import DEFAULT_CADENCE, is_due, next_due, ordinal
from ckaudit.contract.schema.manifest import Cadence


def test_the_default_counts_are_those_of_the_inventory():
    counts = {last: sum(is_due(step) for step in range(1, last + 1)) for last in (100, 1_000, 10_000, 100_000)}
    assert counts == {100: 10, 1_000: 28, 10_000: 73, 100_000: 163}


def test_a_boundary_belongs_to_the_stretch_it_ends():
    assert [step for step in range(90, 260) if is_due(step)] == [90, 100, 150, 200, 250]
    assert [step for step in range(950, 1_500) if is_due(step)] == [950, 1_000, 1_200, 1_400]
    assert [step for step in range(9_700, 12_500) if is_due(step)] == [9_800, 10_000, 11_000, 12_000]


def test_step_zero_is_due_whatever_the_cadence():
    assert is_due(0, [Cadence(until=None, every=0)])


def test_a_distance_of_zero_asks_for_nothing():
    assert not any(is_due(step, [Cadence(until=None, every=0)]) for step in range(1, 50))


def test_nothing_is_due_after_the_last_stretch():
    cadence = [Cadence(until=20, every=5)]
    assert [step for step in range(60) if is_due(step, cadence)] == [0, 5, 10, 15, 20]


def test_ordinal_counts_the_due_steps_one_by_one():
    for cadence in ([Cadence(until=13, every=5), Cadence(until=40, every=7), Cadence(until=None, every=0)], None):
        chosen = {} if cadence is None else {"cadence": cadence}
        seen = 0
        for step in range(1, 1_300):
            seen += is_due(step, **chosen)
            assert ordinal(step, **chosen) == seen


def test_the_next_due_step_is_the_first_of_those_that_follow():
    stretches = [Cadence(until=13, every=5), Cadence(until=20, every=0), Cadence(until=40, every=7), Cadence(until=41, every=30)]
    for cadence in (stretches, [*stretches, Cadence(until=None, every=11)], [Cadence(until=None, every=0)], DEFAULT_CADENCE):
        for step in range(130):
            following = (later for later in range(step + 1, 400) if is_due(later, cadence))
            assert next_due(step, cadence) == next(following, None)
