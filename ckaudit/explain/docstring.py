"""Parsing of docstrings: title, formulas, details, arguments, sections, thresholds, and the meaning of references."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ckaudit.explain.page import Section, Threshold

FORMULA = re.compile(r"\$\$(.*?)\$\$", re.DOTALL)
ARGUMENT = re.compile(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", re.DOTALL | re.MULTILINE)
SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z`])")
"""The gap between two sentences."""
MEANINGS = {
    r"\bM\d\d\b": "M01 to M67: rows of the list of metrics that this catalogue answers",
    r"\bF\d{1,2}\b": "F1 to F16: rows of the catalogue's sheet of formulas",
    r"\bD\d\.\d\b": "D4.2: question 2 in phase 4 of a run, in the playbook of diagnoses",
    r"\bTRI-\d": "TRI-4: row 4 of the playbook's table for a first look at gradients and attention",
    r"\bTRG-\d": "TRG-1: the playbook's first trigger of an extra checkpoint",
    r"\bMP-\d": "MP-2: step 2 of the playbook's protocol for memorization",
    r"\bMPC-\d": "MPC-3: point 3 of the playbook's curve of memorization",
    r"\bMAP-\d": "MAP-2: row 2 of the playbook's map from questions to tools",
    r"\bFX-\d": "FX-1: example 1 of the dashboard, a series with numbers",
    r"\bDR-\d": "DR-2: worked example 2 on the dashboard, with numbers",
    r"\bPAN-\d": "PAN-1: panel 1 of the dashboard",
    r"\bSEV\d-\d": "SEV1-3: condition 3 of those that call for sev1",
    r"\bSR-\d": "SR-1: step 1 of the procedure for a benchmark that fell in silence",
    r"\bMAN-\d": "MAN-5: item 5 of what describes a run",
    r"\bPRB-\d": "PRB-1: probe 1 of those that are repeated during a run",
    r"\btorchmortem\b|\btrainproof\b|\brunmedic\b": "torchmortem, trainproof, runmedic: open-source checkers of training runs",
}


class Documentation(NamedTuple):
    """The parts of a metric's docstring.

    Attributes:
        formulas: Formulas between double dollar signs.
        details: Shape, and when a cell is not recorded.
        arguments: Meaning of each argument.
    """

    formulas: tuple[str, ...]
    details: str
    arguments: dict[str, str]


def documentation(function: Callable[..., Any]) -> Documentation:
    """Return the parts of a metric's docstring."""
    text = inspect.cleandoc(function.__doc__ or "").partition("\n")[2]
    body, _, arguments = text.partition("Args:\n")
    formulas = tuple(" ".join(tex.split()) for tex in FORMULA.findall(body))
    details = " ".join(FORMULA.sub("", body).split())
    return Documentation(formulas, details, {name: " ".join(meaning.split()) for name, meaning in ARGUMENT.findall(arguments)})


def sections(doc: str) -> tuple[Section, ...]:
    r"""Return the headed parts of a docstring: a paragraph each, a list, or a list after a paragraph.

    >>> sections("Title.\n\n## Why it matters\nIt does.")
    (Section(title='Why it matters', text='It does.', items=()),)
    >>> sections("Title.\n\n## What it checks\nOne of:\n\n- a first,\n  and long;\n- a second.")
    (Section(title='What it checks', text='One of:', items=('a first, and long;', 'a second.')),)
    """
    parts = re.split(r"^## (.+)$", doc, flags=re.MULTILINE)[1:]
    return tuple(_section(title.strip(), body) for title, body in zip(parts[::2], parts[1::2], strict=True))


def _section(title: str, body: str) -> Section:
    """Return a section; its list begins at the first line that begins with a dash."""
    text, *items = (" ".join(part.split()) for part in re.split(r"^- ", body, flags=re.MULTILINE))
    return Section(title=title, text=text, items=tuple(items))


def thresholds(function: Callable[..., Any], meaning: Callable[[str], str]) -> tuple[Threshold, ...]:
    """Return the keyword-only parameters of a function with their defaults; `meaning` explains each."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(
        Threshold(
            name=parameter.name,
            default=f"{parameter.default:g}" if isinstance(parameter.default, float) else str(parameter.default),
            meaning=meaning(parameter.name),
        )
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    )


def sentences_about(name: str, text: str) -> str:
    """Return the sentences that name a threshold between backticks.

    >>> sentences_about("k", "It is flagged above `k` deviations (F15). It ends later.")
    'It is flagged above `k` deviations (F15).'
    """
    parts = [part for section in sections(text) for part in section.paragraphs] or [" ".join(text.split())]
    return " ".join(sentence for part in parts for sentence in SENTENCE.split(part) if f"`{name}`" in sentence)


# Meaning of short references in sources, such as "playbook D4.2" or SEV1-3.
def cited(texts: Iterable[str]) -> str:
    """Return the meaning of the references in `texts`, one example per kind; empty if there are none.

    >>> cited(["playbook D2.6"])
    'D4.2: question 2 in phase 4 of a run, in the playbook of diagnoses'
    """
    whole = " ".join(texts)
    return "; ".join(meaning for pattern, meaning in MEANINGS.items() if re.search(pattern, whole))
