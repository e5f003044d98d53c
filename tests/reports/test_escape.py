import unicodedata

import pytest

from ckaudit.reports.escape import visible
from tests.loops import for_each

BIDI = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0x200B, 0x2010), 0x2028, 0x2029]


@for_each("code", [*range(0x20), 0x7F, *range(0x80, 0xA0)])
def test_every_control_is_written_by_its_number(code):
    assert unicodedata.category(chr(code)) == "Cc"
    assert visible(f"a{chr(code)}b") == f"a\\x{code:02x}b"


@pytest.mark.parametrize("code", [*BIDI, 0xD800, 0xDBFF, 0xDC80, 0xDFFF])
def test_direction_marks_and_surrogates_are_written_by_their_number(code):
    assert visible(chr(code)) == f"\\u{code:04x}"


@pytest.mark.parametrize("text", ["model.layers.0.weight", "größe", "層", "🙂", "C:\\runs\\a b"])
def test_ordinary_names_stay_as_they_are(text):
    assert visible(text) == text


def test_an_ascii_screen_gets_ascii():
    assert visible("größe 🙂", ascii_only=True) == "gr\\xf6\\xdfe \\U0001f642"


def test_nothing_that_could_move_the_cursor_or_turn_the_line_is_left():
    shown = visible("".join(map(chr, range(0x3000))))
    assert {unicodedata.category(letter) for letter in shown}.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    assert not any(
        unicodedata.bidirectional(letter) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"} for letter in shown
    )
