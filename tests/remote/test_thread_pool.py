"""Calls by several threads: every result comes, an error ends them, and no thread is left."""

import threading
import time

import pytest

from ckaudit.remote.fetch import AHEAD, map_unordered


def test_every_result_comes_once() -> None:
    assert dict(map_unordered(lambda number: number**2, range(1000), threads=16)) == {number: number**2 for number in range(1000)}
    assert list(map_unordered(str, [], threads=16)) == []


def test_an_error_is_raised_and_every_thread_ends() -> None:
    def call(number: int) -> int:
        if number == 7:
            raise KeyError(number)
        return number

    before = set(threading.enumerate())
    with pytest.raises(KeyError):
        list(map_unordered(call, range(1000), threads=4))
    assert set(threading.enumerate()) == before


def test_no_more_is_begun_than_is_taken() -> None:
    begun = []
    found = map_unordered(begun.append, range(1000), threads=4)
    next(found)
    time.sleep(0.1)
    assert len(begun) <= 4 * AHEAD + 1
    found.close()
    assert len(begun) <= 4 * AHEAD + 1
