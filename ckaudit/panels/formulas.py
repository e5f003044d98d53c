"""The formula of a metric, out of its docstring or of the catalogue's entry."""

import inspect
import re

from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import entries

FORMULA = re.compile(r"\$\$(.*?)\$\$", re.DOTALL)


def formula(*names: str) -> str:
    """Return the formulas of some metrics as one line of TeX, each once; empty where they are as recorded."""
    found = dict.fromkeys(each for name in names for each in _formulas(name))
    return r",\quad ".join(found)


def _formulas(name: str) -> list[str]:
    own = FORMULA.findall(inspect.cleandoc(metrics()[name].function.__doc__ or ""))
    entry = entries().get(name)
    return [" ".join(each.split()) for each in own] or list(entry.formulas.values() if entry else ())
