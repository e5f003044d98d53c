"""Escaping: names from files are made harmless on a terminal and in Markdown."""

import re

# C0, DEL and C1 controls; marks without width that turn or hide text; line separators; halves of a surrogate pair.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ud800-\udfff]")
SPECIAL = re.compile(r"[\\`*_{}\[\]<>|#~!&$]")
# A comment splits the text, so that no name mentions a person and no address becomes a link.
LINKING = re.compile(r"@|://|www\.", re.IGNORECASE)
# Catalogue text is trusted: only what Markdown would read as a column, a tag or an accent is escaped.
OWN_WORDS = str.maketrans({"|": "\\|", "<": "&lt;", "*": "\\*"})


def visible(text: str, *, ascii_only: bool = False) -> str:
    r"""Return `text` on one line, with each unsafe character written as `\xNN` or `\uNNNN`.

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


def escaped(raw: str) -> str:
    """Return `raw` as Markdown that shows it literally: no markup, no HTML, no mention, no link."""
    entities = SPECIAL.sub(lambda match: f"&#{ord(match[0])};", visible(raw))
    return LINKING.sub(lambda match: match[0][0] + "<!-- -->" + match[0][1:], entities)


def code(raw: str) -> str:
    """Return `raw` as a code span that also works inside a table."""
    return f"<code>{escaped(raw)}</code>"


def prose(words: str) -> str:
    """Return a catalogue sentence as Markdown; code between backticks and formulas between dollars are kept."""
    return words.translate(OWN_WORDS)


def backticks(name: str) -> str:
    """Return a catalogue name as code."""
    return f"`{name}`"
