"""HTML that is safe by construction: only what is made here is markup, everything else is text."""

import re
from html import escape

from ckaudit.reports.escape import visible

VOID = frozenset({"input", "meta", "br", "hr", "link"})
ATTRIBUTE_NAME = re.compile(r"[a-z][a-zA-Z0-9-]*")


class Markup(str):
    """Text that is already HTML; any other string is data."""

    __slots__ = ()


def text(words: str) -> Markup:
    r"""Return data as HTML: nothing in it is markup, and characters that would turn or hide text are shown as numbers.

    >>> text("<b>\u202e&")
    '&lt;b&gt;\\u202e&amp;'
    """
    return words if isinstance(words, Markup) else Markup(escape(visible(words)))


def tag(name: str, /, *children: str, **attributes: str | int | bool) -> Markup:
    """Return an element; `class_` and `for_` are written without the underscore, `data_step` as `data-step`.

    Args:
        name: Name of the element.
        children: Markup, or text to be escaped.
        attributes: True is written without a value, False is left out, anything else is quoted.

    >>> tag("a", "1 < 2", href="#x", hidden=True)
    '<a href="#x" hidden>1 &lt; 2</a>'
    """
    words = "".join(_attribute(key, value) for key, value in attributes.items() if value is not False)
    if name in VOID:
        return Markup(f"<{name}{words}>")
    return Markup(f"<{name}{words}>{''.join(map(text, children))}</{name}>")


def join(parts: list[Markup], between: str = "\n") -> Markup:
    """Return pieces of markup joined together."""
    return Markup(between.join(parts))


def _attribute(key: str, value: str | int | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if not ATTRIBUTE_NAME.fullmatch(name):
        raise ValueError(f"no attribute is called {name!r}")
    return f" {name}" if value is True else f' {name}="{escape(visible(str(value)))}"'
