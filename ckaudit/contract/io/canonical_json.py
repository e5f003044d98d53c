"""JSON in one form only: keys sorted, no blanks, numbers in their shortest digits, as RFC 8785 asks.

Two documents that mean the same give the same bytes, whoever wrote them. One thing is kept that the RFC gives up: a whole
number beyond 2**53 keeps all of its digits, because rounding it would make two identifiers equal that are not.
"""

import json
from decimal import Decimal
from typing import Any, NoReturn


def canonical(text: str | bytes) -> bytes:
    r"""Return a JSON document in its canonical form.

    >>> canonical('{"b": 1.50, "a": [1e2, "\u00e9"]}').decode()
    '{"a":[100,"é"],"b":1.5}'

    Raises:
        ValueError: Where it is not JSON, a key stands twice, a number is not finite, or a text cannot be written as UTF-8.
        RecursionError: Where it is nested too deep.
    """
    parsed = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    return _written(parsed).encode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _written(value: Any) -> str:
    match value:
        case dict():
            # RFC 8785, 3.2.3: keys in the order of their UTF-16 code units.
            members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
            return "{" + ",".join(f"{_quoted(key)}:{_written(each)}" for key, each in members) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case str():
            return _quoted(value)
        case float():
            return shortest(value)
        case _:
            return json.dumps(value)  # null, a truth value or a whole number


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def shortest(value: float) -> str:
    """Return a number as ECMAScript writes it: the fewest digits that read back as the same float64.

    >>> shortest(1e21), shortest(-0.0), shortest(123000.0), shortest(1.5e-7)
    ('1e+21', '0', '123000', '1.5e-7')

    Raises:
        ValueError: Where it is not finite.
    """
    if value in (float("inf"), float("-inf")) or value != value:  # noqa: PLR0124  only NaN differs from itself
        raise ValueError("a number is not finite")
    if value == 0:
        return "0"
    sign, parts, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, parts)).lstrip("0")
    point = exponent + len(digits)  # digits before the decimal point
    digits = digits.rstrip("0")
    return ("-" if sign else "") + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """Put the decimal point into `digits`, or an exponent behind them (ECMA-262, Number::toString)."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{mantissa}e{point - 1:+d}"
