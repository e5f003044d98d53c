"""Personal data by pattern: published numbers are found, and what only looks alike is not."""

import random

import pytest

from ckaudit.data.pii import find_pii, iban, luhn, mask_pii
from tests.data.corpus import docstrings
from tests.loops import for_each

# Test numbers that payment networks publish; IBANs of the SWIFT registry; numbers of public institutions.
FOUND = {
    "email": ["ann.lee@ckaudit.dev", "a+b@mail.uni-x.ac.uk", "(bob@x.org).", "mailto:carol_d@sub.domain.io"],
    "iban": ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "NO9386011117947", "MT84MALT011000012345MTLCAST001S"],
    "credit_card": ["4012-8888-8888-1881", "3782 822463 10005", "5555 5555 5555 4444", "card number 6011000990139424"],
    "phone": ["+49 30 901820", "+1 650-253-0000", "+33 1 44 55 66 77", "(+41 44 668 18 00)"],
    "ip": ["142.250.185.78", "http://93.184.216.34/path", "2a00:1450:4001:82a::200e"],
}

NOT_FOUND = [
    "ann@example.com",
    "git@github.com:x/y",
    "icon@2x.png",
    "a@b",
    "user@localhost",
    "decorator @dataclass.field",
    "x@y..com",
    "DE88 3704 0044 0532 0130 00",
    "AB12 CDEF 3456 7890 1234",
    "ISBN 978-3-16-148410-0",
    "4012-8888-8888-1882",
    "1111 1111 1111 1117",
    "order 4012888888881881",
    "0.4012888888881881",
    "id 6011000990139424 in the table",
    "+1 234",
    "a+49 30 901820",
    "Decimal('+35236450.6')",
    "555-1234",
    "+999 123456789",
    "127.0.0.1",
    "192.168.1.20",
    "10.20.30.40",
    "224.0.0.251",
    "192.0.2.44",
    "section 8.2.4.44",
    "version 142.250.185.78",
    "upgrade V8 from 4.2.77.18 to",
    "2.12 3.51.98.32 2.03",
    "1.2.3.4.5",
    "300.250.185.78",
    "142.250.185.0/24",
    "2024-11-21 12:30:11",
    "std::cout",
    "2001:db8::1",
    "fe80::1",
    "3000:1:2",
]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in FOUND.items() for text in texts])
def test_what_is_personal_is_found_and_masked(kind, text):
    sentence = f"Please note {text} and go on."
    assert [each for each, _, _ in find_pii(sentence)] == [kind]
    assert f"[{kind}]" in mask_pii(sentence)
    assert list(find_pii(mask_pii(sentence))) == []


@for_each("text", NOT_FOUND)
def test_what_only_looks_alike_is_not(text):
    assert list(find_pii(f"Please note {text} and go on.")) == []
    assert mask_pii(text) == text


def test_check_digits_find_every_single_error():
    for number in ("4012888888881881", "378282246310005", "79927398713"):
        assert luhn(number)
        for place, digit in enumerate(number):
            others = [number[:place] + other + number[place + 1 :] for other in "0123456789" if other != digit]
            assert not any(map(luhn, others))
    assert not any(iban("GB82WEST1234569876543" + digit) for digit in "013456789")


def test_nine_in_ten_random_numbers_fail():
    random.seed(5)
    passed = sum(luhn("".join(random.choices("0123456789", k=16))) for _ in range(5000))
    assert 420 < passed < 580


def test_documentation_of_a_language_holds_next_to_nothing():
    hits = [(kind, text[start:end]) for text in docstrings() for kind, start, end in find_pii(text)]
    assert {kind for kind, _ in hits} <= {"email", "ip"}
    assert len(hits) < 10


@for_each("filler", ["a@", "a.b", "1 ", "A1", "+1 ", "2000:", "x", "1.", "x@x.", "4012 "])
@for_each("end", ["", "@", "\n"])
def test_no_text_takes_longer_than_its_length(filler, end):
    list(find_pii(filler * (100_000 // len(filler)) + end))  # a pattern that backtracks would take minutes
