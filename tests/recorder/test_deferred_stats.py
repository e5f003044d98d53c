import pytest

from ckaudit.recorder.hooks.forward_stats import DeferredStats


@pytest.fixture
def seen():
    return []


@pytest.fixture
def deferred(seen):
    def run_guarded(what, measure):
        seen.append(what)
        measure()

    return DeferredStats(run_guarded, max_held=10)


def test_what_is_deferred_is_measured_once_and_in_order(deferred, seen):
    for name in ("first", "second"):
        assert deferred.has_room(4)
        deferred.add(name, 4, lambda name=name: seen.append(f"{name}!"))
    assert seen == []
    deferred.measure()
    deferred.measure()
    assert seen == ["first", "first!", "second", "second!"]


def test_no_more_is_kept_than_there_is_room_for(deferred, seen):
    deferred.add("first", 8, lambda: None)
    assert deferred.has_room(2)
    assert seen == []
    assert deferred.has_room(3)
    assert seen == ["first"]


def test_what_alone_is_too_large_is_not_kept_and_comes_after_those_before_it(deferred, seen):
    deferred.add("first", 1, lambda: None)
    assert not deferred.has_room(11)
    assert seen == ["first"]
