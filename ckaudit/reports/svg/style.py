"""The look of SVG charts: their style sheet, and the same as attributes, for pages that forbid styles."""

import re
from functools import cache
from importlib.resources import files

from ckaudit.reports.markup import Markup

USED = re.compile(r"var\((--[\w-]+)\)")

RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")

DECLARED = re.compile(r"([\w-]+): ([^;{}]+);")

CLASSED = re.compile(r'<[^<>]* class="([^"]*)"')


def style_sheet() -> str:
    """Return the styles of all SVG charts, in light and dark colours."""
    return _own_file("colours.css") + _own_file("picture.css")


def with_attributes(drawn: str) -> Markup:
    """Return a picture whose elements have the light style as attributes; a style sheet, if used, overrides them.

    >>> with_attributes('<path d="M0 0" class="curve c1"/>')
    '<path d="M0 0" class="curve c1" fill="none" stroke-width="1.7" stroke-linejoin="round" stroke="#d55e00"/>'
    """
    return Markup(CLASSED.sub(lambda match: match[0] + _attributes(match[1]), drawn))


def _own_file(name: str) -> str:
    return files("ckaudit.reports.svg").joinpath(name).read_text(encoding="utf-8")


@cache
def _attributes(classes: str) -> str:
    present = {*classes.split()}
    looks = {name: value for needed, declared in _light_rules() if needed <= present for name, value in declared}
    return "".join(f' {name}="{value}"' for name, value in looks.items())


@cache
def _light_rules() -> list[tuple[set[str], list[tuple[str, str]]]]:
    """Return the style for each set of classes, in CSS order: rules for more classes come later."""
    light = dict(reversed(DECLARED.findall(_own_file("colours.css"))))  # the first definition of each is the light one
    rules = []
    for selectors, body in RULE.findall(USED.sub(lambda match: light[match[1]], _own_file("picture.css"))):
        declared = DECLARED.findall(body)
        rules += [(selector.count("."), selector.split()[-1].split(".")[1:], declared) for selector in selectors.split(",")]
    return [({*needed}, declared) for _, needed, declared in sorted(rules, key=lambda rule: rule[0])]
