"""Texts in GB18030, the encoding of Chinese text before UTF-8, which GBK and GB2312 are parts of: they are read as UTF-8."""

import codecs
import re

GB18030 = "gb18030"
_CONTROL = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")
_HIGH = re.compile(rb"[\x80-\xff]")
_CHARACTER = re.compile(rb"[\xa1-\xf7][\xa1-\xfe]")


def in_utf8(data: bytes, head: bytes) -> bytes:
    """Return a file's bytes as UTF-8 if its first bytes are Chinese text in GB18030, else unchanged."""
    return data.decode(GB18030, errors="replace").encode() if is_gb18030(head) else data


def is_gb18030(head: bytes, *, min_characters: int = 8, max_rest: float = 0.1) -> bool:
    r"""Tell whether the first bytes of a file are text in GB18030.

    A common Chinese character is two bytes above 160 there. In texts of other 8-bit encodings such bytes stand alone among ASCII
    letters, in UTF-8 they do not part into pairs, and in packed or binary data every second one would be left over.

    Args:
        head: The first bytes of the file.
        min_characters: Minimum number of characters that are not ASCII; fewer may be a name or a sign.
        max_rest: Maximum share of the bytes above 127 that do not belong to such a pair.

    >>> is_gb18030("当前损失值\uff1a10.113 | 当前准确率".encode("gbk")), is_gb18030("当前损失值 10.113 | 当前准确率".encode())
    (True, False)
    >>> is_gb18030("époque 3 - perte d'entraînement: 0,31, précision: très élevée".encode("latin-1"))
    False
    """
    high = len(_HIGH.findall(head))
    if high < 2 * min_characters or _CONTROL.search(head) or _is_utf8(head, max_broken=max_rest * high):
        return False
    return len(_HIGH.findall(_CHARACTER.sub(b"", head))) <= max_rest * high


def _is_utf8(head: bytes, *, max_broken: float) -> bool:
    """Tell whether bytes are UTF-8 except for a few; the last character may be cut off."""
    text = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(head)
    return text.count("\ufffd") <= max_broken
