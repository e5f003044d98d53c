"""Numbers in Python's printed form of a tensor, an array or a scalar, as logged by programs that omit `.item()`.

Examples are `tensor(3.13, device='cuda:0', grad_fn=<DivBackward0>)`, `np.float32(0.5)`, `array(0.5)`, `[0.5]`.
"""

import re

from ckaudit.importers.names import shorten_name
from ckaudit.importers.tables.numbers import number

MAX_LENGTH = 400
"""Maximum number of characters of a printed tensor: one of PyTorch with a device and a gradient function has 60."""

_NUMBER = r"([-+]?(?:nan|inf(?:inity)?|(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:e[-+]?\d{1,4})?))"
_CALL = r"(?:[a-z]{1,12}\.){0,2}(?:eager)?(?:tensor|array|devicearray|float(?:16|32|64|128)?|longdouble)"
_KEYWORD = r"\s?,\s{0,8}[a-z_]{1,20}=(?:\(\)|<[^<>]{0,80}>|'[^']{0,40}'|[\w.:]{1,40})"
_EXPRESSION = re.compile(
    rf"{_CALL}\(\s?\[{{0,2}}\s?{_NUMBER}\s?\]{{0,2}}(?:{_KEYWORD}){{0,6}}\s?\)|\[\s?{_NUMBER}\s?\]", re.IGNORECASE
)


def number_in_tensor(text: str) -> float | None:
    """Return the number in a text that is exactly one printed tensor, or None where it is not.

    >>> number_in_tensor("tensor(3.1304, device='cuda:0', grad_fn=<DivBackward0>)"), number_in_tensor("np.float32(0.5)")
    (3.1304, 0.5)
    >>> [number_in_tensor(text) for text in ("[2.]", "array([0.5, 0.6])", "tensor(0.5) + 1", "f(0.5)")]
    [2.0, None, None, None]
    """
    match = _EXPRESSION.fullmatch(text.strip()) if len(text) <= MAX_LENGTH else None
    return number(match[1] or match[2]) if match else None


def with_plain_numbers(text: str) -> str:
    """Return a text with each printed tensor replaced by its number.

    >>> with_plain_numbers("[tensor(0.5, device='cuda:0'), np.float64(0.25), [1.]]")
    '[0.5, 0.25, 1.]'
    """
    if "(" not in text and text.count("[") < 2:
        return text
    return _EXPRESSION.sub(lambda match: match[1] or match[2], text)


def note_on_printed_tensors(count: int, name: str, first: str) -> str:
    """Return a note on cells of a column that are printed tensors.

    >>> note_on_printed_tensors(9, "loss", "tensor(0.5)")
    "9 cells of loss are what Python prints of a tensor or an array, first 'tensor(0.5)': the number inside was taken"
    """
    return (
        f"{count:,} cells of {name} are what Python prints of a tensor or an array, first {shorten_name(first)!r}: the number "
        "inside was taken"
    )
