import pytest

from tests.loops import for_each


def test_every_value_is_tried_and_those_that_fail_are_named() -> None:
    seen = []

    @for_each("number", [1, 2, 3])
    @for_each("letter, word", [("a", "x"), ("b", "y")])
    def test(number: int, letter: str, word: str, fixture: str) -> None:
        seen.append((number, letter, word, fixture))
        assert (number, letter) != (2, "b")

    with pytest.raises(AssertionError) as raised:
        test(fixture="shared")
    assert seen == [(number, *rest, "shared") for number in (1, 2, 3) for rest in (("a", "x"), ("b", "y"))]
    assert raised.value.__notes__ == ["letter, word = ('b', 'y')", "number = 2"]


def test_several_failures_come_together() -> None:
    @for_each("number", [1, 2, 3])
    def test(number: int) -> None:
        assert number == 2

    with pytest.raises(ExceptionGroup, match="2 of 3 values fail") as raised:
        test()
    assert [error.__notes__ for error in raised.value.exceptions] == [["number = 1"], ["number = 3"]]
