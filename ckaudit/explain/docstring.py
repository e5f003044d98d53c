"""What stands in a docstring, taken apart: title, formulas, details, arguments, sections, and the words on a threshold."""

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ckaudit.explain.page import Section, Threshold

FORMULA = re.compile(r"\$\$(.*?)\$\$", re.DOTALL)
ARGUMENT = re.compile(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", re.DOTALL | re.MULTILINE)
SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z`])")


class Documentation(NamedTuple):
    """A metric's docstring.

    Attributes:
        formulas: What stands between double dollars.
        details: Shape, and when a cell is not recorded.
        arguments: What each argument means.
    """

    formulas: tuple[str, ...]
    details: str
    arguments: dict[str, str]


def documentation(function: Callable[..., Any]) -> Documentation:
    """Take a metric's docstring apart."""
    text = inspect.cleandoc(function.__doc__ or "").partition("\n")[2]
    body, _, arguments = text.partition("Args:\n")
    formulas = tuple(" ".join(found.split()) for found in FORMULA.findall(body))
    details = " ".join(FORMULA.sub("", body).split())
    return Documentation(formulas, details, {name: " ".join(said.split()) for name, said in ARGUMENT.findall(arguments)})


def sections(doc: str) -> tuple[Section, ...]:
    r"""Return the parts of a rule's docstring that stand under headings.

    >>> sections("Title.\n\n## Why it matters\nIt does.")
    (Section(title='Why it matters', text='It does.', items=()),)
    """
    parts = re.split(r"^## (.+)$", doc, flags=re.MULTILINE)[1:]
    return tuple(
        Section(title=title.strip(), text=" ".join(text.split())) for title, text in zip(parts[::2], parts[1::2], strict=True)
    )


def thresholds(function: Callable[..., Any], meaning: Callable[[str], str]) -> tuple[Threshold, ...]:
    """Return the keyword-only parameters of a function with their defaults; `meaning` says what each does."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(
        Threshold(name=parameter.name, default=_written(parameter.default), meaning=meaning(parameter.name))
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    )


def sentences_about(name: str, text: str) -> str:
    """Return the sentences that name a threshold between backticks.

    >>> sentences_about("k", "It is flagged above `k` deviations (F15). It ends later.")
    'It is flagged above `k` deviations (F15).'
    """
    parts = [part.text for part in sections(text)] or [" ".join(text.split())]
    return " ".join(each for part in parts for each in SENTENCE.split(part) if f"`{name}`" in each)


def _written(default: Any) -> str:
    """Return a default as a user would write it."""
    return f"{default:g}" if isinstance(default, float) else str(default)
