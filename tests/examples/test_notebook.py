"""The notebook of the examples runs from its own folder, cell by cell, and each result that it shows is drawn."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def test_each_cell_of_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    monkeypatch.chdir(NOTEBOOK.parent)
    names: dict[str, object] = {}
    drawn = []
    for cell in cells:
        *before, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(before, []), str(NOTEBOOK), "exec"), names)
        if not isinstance(last, ast.Expr):
            exec(compile(ast.Module([last], []), str(NOTEBOOK), "exec"), names)
            continue
        value = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
        if hasattr(value, "_repr_html_"):
            drawn.append(value._repr_html_())
    assert len(drawn) == 7
    assert sum("<svg" in html for html in drawn) == 6  # what validate says has no picture
    names["folder"].cleanup()  # type: ignore[attr-defined]


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
