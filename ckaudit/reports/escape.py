"""Names out of files, made harmless: whatever could steer a terminal or reorder a line is shown as its number."""

import re

# C0, DEL and C1 controls; marks without width that turn or hide text; line separators; halves of a surrogate pair.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ud800-\udfff]")


def visible(text: str, *, ascii_only: bool = False) -> str:
    r"""Return `text` on one line, each unsafe character written as `\xNN` or `\uNNNN`.

    Args:
        text: Any string, such as a tensor's name or a file's.
        ascii_only: Write every character beyond ASCII by its number too.

    >>> visible("w\x1b[31m\u202e")
    'w\\x1b[31m\\u202e'
    """
    shown = UNSAFE.sub(_number, text)
    return shown.encode("ascii", "backslashreplace").decode("ascii") if ascii_only else shown


def _number(match: re.Match[str]) -> str:
    """Return the number of one unsafe character: two hexadecimal digits below 256, else four."""
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
