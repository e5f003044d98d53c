"""Pages as JSON: everything, for other programs; formulas in TeX and as text."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ckaudit.explain.page import Group, Page
from ckaudit.reports.formula import readable
from ckaudit.reports.json import dumps
from ckaudit.reports.view import View


def pages(found: Sequence[Page], view: View) -> str:  # noqa: ARG001  a program gets everything
    """Return `{"pages": [...]}`."""
    return dumps({"pages": [_page(page) for page in found]})


def groups(found: Sequence[Group], view: View) -> str:  # noqa: ARG001  a program gets everything
    """Return `{"groups": [...]}`."""
    return dumps({"groups": found})


def _page(page: Page) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.to_builtins(page)
    whole["formulas"] = [{"row": formula.row, "tex": formula.tex, "text": readable(formula.tex)} for formula in page.formulas]
    return whole
