import pytest

from ckaudit.recorder.hooks.forward_stats import DeferredStats


@pytest.fixture
def seen():
    return []


@pytest.fixture
def put_off(seen):
    def looking(what, look):
        seen.append(what)
        look()

    return DeferredStats(looking, max_held=10)


def test_what_is_put_off_is_looked_at_once_and_in_order(put_off, seen):
    for name in ("first", "second"):
        assert put_off.has_room(4)
        put_off.add(name, 4, lambda name=name: seen.append(f"{name}!"))
    assert seen == []
    put_off.look()
    put_off.look()
    assert seen == ["first", "first!", "second", "second!"]


def test_no_more_is_kept_than_there_is_room_for(put_off, seen):
    put_off.add("first", 8, lambda: None)
    assert put_off.has_room(2)
    assert seen == []
    assert put_off.has_room(3)
    assert seen == ["first"]


def test_what_alone_is_too_large_is_not_kept_and_comes_after_those_before_it(put_off, seen):
    put_off.add("first", 1, lambda: None)
    assert not put_off.has_room(11)
    assert seen == ["first"]
