"""Personal data by pattern (M51): each candidate is validated; names are not searched.

The kinds are e-mail addresses, IBANs (country, length and check digits: ISO 13616), payment cards (issuer, length and the check
digit of ISO/IEC 7812), international phone numbers (numbering plans from libphonenumber) and public IP addresses. Addresses and
networks that standards reserve (RFC 2606, RFC 5737, RFC 3849, RFC 1918) and mailboxes that nobody reads are not personal.
"""

import re
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from ckaudit.errors import UsageError
from ckaudit.optional import install_command

# A character that must not precede is tested after the first letter, so that the search can jump to that letter.
_EMAIL = re.compile(
    r"[A-Za-z0-9](?<![\w.+%@/-].)[\w.%+-]{0,63}@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}(?![\w@-])",
    re.ASCII,
)
_IBAN = re.compile(r"[A-Z](?<![A-Za-z0-9].)[A-Z]\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])")
_CARD = re.compile(r"[1-9](?<![\w.,+-].)\d{3}([ -]?)(?:\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?|\d{6}\1\d{4,5})(?![\w-]|[.,]\d)", re.ASCII)
_PHONE = re.compile(r"\+(?<![\w+].)[1-9]\d{0,14}(?:[ ()./-]{1,2}\d{1,8}){0,6}(?!\d|[.,]\d)")
_DECIMAL = re.compile(r"\+\d+\.\d+")
_IPV4 = re.compile(r"[1-9](?<![\w.-].)\d{0,2}(?:\.\d{1,3}){3}(?![\w-]|\.\w|/\d)", re.ASCII)
_IPV6 = re.compile(r"[23](?<![\w:.].)[0-9a-fA-F]{3}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:]|\.\d)")

_RESERVED = re.compile(r"(?:^|\.)(?:example(?:\.(?:com|net|org))?|test|invalid|localhost|local)$", re.IGNORECASE)
_FILES = frozenset("png jpg jpeg gif svg webp ico js ts css py html json xml txt md so dll exe zip".split())  # noqa: SIM905
_NOBODY = frozenset({"git", "noreply", "no-reply", "donotreply", "root"})
_VERSION = re.compile(r"(?:(?:version|release|upgrade|update|patch|bump|\bver|\bv)\b[^\n]{0,16}|\d*\.\d+\s)$", re.IGNORECASE)
_PAYMENT = re.compile(r"card|visa|amex|credit|debit|payment|cvv|expir", re.IGNORECASE)
_GLOBAL_V6 = ip_network("2000::/3")

# Letters and digits of an IBAN by country (SWIFT, IBAN registry, release 98).
_LENGTHS = {
    15: "NO",
    16: "BE",
    18: "DK FI FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
_COUNTRIES = {country: length for length, names in _LENGTHS.items() for country in names.split()}

Span = tuple[str, int, int]
Check = Callable[[re.Match[str]], bool | None]  # whether the candidate is valid; None: it is valid, but not personal


def find_pii(text: str) -> Iterator[Span]:
    """Yield the personal data in `text`: kind, start and end.

    >>> [kind for kind, _, _ in find_pii("ann@mail.example, bob@ckaudit.dev, IBAN DE89 3704 0044 0532 0130 00")]
    ['email', 'iban']
    """
    yield from (span for span, is_somebodys in addresses(text) if is_somebodys)


def addresses(text: str) -> Iterator[tuple[Span, bool]]:
    """Yield everything in `text` in the form of personal data, each with whether it is personal.

    >>> [is_somebodys for _, is_somebodys in addresses("ann@example.com, no-reply@ckaudit.dev, bob@ckaudit.dev, 192.0.2.44")]
    [False, False, True, False]
    """
    for kind, needle, pattern, check in _PATTERNS:
        if needle and needle not in text:
            continue
        for match in pattern.finditer(text):
            if (is_somebodys := check(match)) is not False:
                yield (kind, match.start(), match.end()), is_somebodys is True


def mask_pii(text: str) -> str:
    """Return `text` with all personal data replaced by its kind."""
    end, parts = 0, []
    for kind, start, stop in sorted(find_pii(text), key=lambda span: span[1:]):
        if start >= end:
            parts += [text[end:start], f"[{kind}]"]
            end = stop
    return "".join([*parts, text[end:]])


def luhn(digits: str) -> bool:
    """Tell whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B).

    >>> luhn("79927398713"), luhn("79927398710")
    (True, False)
    """
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


def iban(text: str) -> bool:
    """Tell whether a text without spaces is an IBAN: the length of its country, and a remainder of 1 modulo 97 (ISO 13616).

    >>> iban("GB82WEST12345698765432"), iban("GB82WEST12345698765431")
    (True, False)
    """
    if _COUNTRIES.get(text[:2]) != len(text):
        return False
    return int("".join(str(int(letter, 36)) for letter in text[4:] + text[:4])) % 97 == 1


def _is_email(match: re.Match[str]) -> bool | None:
    local, _, domain = match[0].lower().partition("@")
    if domain.rpartition(".")[2] in _FILES or ".." in local or local.endswith("."):
        return False
    return None if local in _NOBODY or _RESERVED.search(domain) else True


def _is_iban(match: re.Match[str]) -> bool:
    return iban(match[0].replace(" ", ""))


def _is_card(match: re.Match[str]) -> bool:
    digits = re.sub(r"\D", "", match[0])
    if not _is_issued(digits) or not luhn(digits):
        return False
    # One in ten numbers passes the check: without groups of digits the text must mention a card.
    return bool(match[1]) or bool(_PAYMENT.search(match.string[max(0, match.start() - 50) : match.start()]))


def _is_issued(digits: str) -> bool:
    head, length = int(digits[:4]), len(digits)
    return (
        (digits[0] == "4" and length in (16, 19))
        or ((5100 <= head <= 5599 or 2221 <= head <= 2720) and length == 16)
        or (digits[:2] in ("34", "37") and length == 15)
        or ((head == 6011 or 6440 <= head <= 6599) and length in (16, 19))
        or (3528 <= head <= 3589 and length == 16)
        or ((digits[:2] in ("36", "38", "39") or 3000 <= head <= 3059) and length == 14)
    )


def _is_phone(match: re.Match[str]) -> bool:
    if _DECIMAL.fullmatch(match[0]):
        return False
    try:
        import phonenumbers
    except ImportError:
        raise UsageError("checking phone numbers needs phonenumbers", hint=install_command("data")) from None
    try:
        return bool(phonenumbers.is_valid_number(phonenumbers.parse(match[0], None)))
    except phonenumbers.NumberParseException:
        return False


def _is_ipv4(match: re.Match[str]) -> bool | None:
    parts = match[0].split(".")
    # Sections and versions have small numbers; an address hardly does.
    small = all(int(part) < 10 for part in parts[:3]) or all(int(part) < 32 for part in parts)
    if small or any(len(part) > 1 and part[0] == "0" for part in parts):
        return False
    if _VERSION.search(match.string[max(0, match.start() - 28) : match.start()]):
        return False
    return _is_somebodys(ip_address(match[0])) if all(int(part) < 256 for part in parts) else False


def _is_ipv6(match: re.Match[str]) -> bool | None:
    try:
        address = ip_address(match[0])
    except ValueError:
        return False
    return _is_somebodys(address) if address in _GLOBAL_V6 else False


def _is_somebodys(address: IPv4Address | IPv6Address) -> bool | None:
    return True if address.is_global and not address.is_multicast else None


_PATTERNS: tuple[tuple[str, str, re.Pattern[str], Check], ...] = (
    ("email", "@", _EMAIL, _is_email),
    ("iban", "", _IBAN, _is_iban),
    ("credit_card", "", _CARD, _is_card),
    ("phone", "+", _PHONE, _is_phone),
    ("ip", ".", _IPV4, _is_ipv4),
    ("ip", ":", _IPV6, _is_ipv6),
)
KINDS = tuple(dict.fromkeys(kind for kind, *_ in _PATTERNS))
