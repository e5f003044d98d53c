"""Each change of a valid checkpoint is a violation, or none, and readers take each byte, as it was when that was last read."""

from tests.case_verdicts import CONTRACT
from tests.contract.byte_edges import readers
from tests.contract.violation_edges import by_fixture
from tests.loops import check_each


def test_a_change_is_a_violation_from_where_on_it_was() -> None:
    found = by_fixture()
    check_each(found, lambda name: _check(found[name], name), name="fixture")


def test_readers_say_of_each_byte_and_line_what_they_said() -> None:
    found = readers()
    check_each(found, lambda name: _check(found[name], name), name="file")


def _check(found: str, name: str) -> None:
    assert found == (CONTRACT / f"{name}.txt").read_text(encoding="utf-8")
