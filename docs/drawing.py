"""Write the package graph and the floors of docs/architecture.md from the imports in the code: `python docs/drawing.py`."""  # noqa: INP001

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from tests.test_floors import FLOORS, imports_of  # noqa: E402  the test is what guards them

PAGE = ROOT / "docs" / "architecture.md"
BLOCK = re.compile(r"(<!-- (drawing|floors) -->\n).*?(<!-- end -->)", re.DOTALL)


def imports() -> dict[str, set[str]]:
    """Return the imports of each package or top-level module."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "ckaudit").rglob("*.py"):
        own = path.relative_to(ROOT / "ckaudit").parts[0].removesuffix(".py")
        others = {name.split(".")[1] for name, _ in imports_of(path) if name.startswith("ckaudit.")}
        found.setdefault(own, set()).update(others - {own})
    return found


def shortest(arrows: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Return the arrows that are not implied by a path through other packages.

    >>> shortest({"c": {"a", "b"}, "b": {"a"}})
    {'c': ['b'], 'b': ['a']}
    """
    return {
        name: sorted(other for other in others if not any(other in _below(third, arrows) for third in others - {other}))
        for name, others in arrows.items()
    }


def drawing() -> Iterator[str]:
    """Yield a Mermaid graph of the packages, with the higher floors above."""
    arrows = shortest(imports())
    yield "```mermaid"
    yield "graph TD"
    for name in sorted(FLOORS, key=lambda floor: (-FLOORS[floor], floor)):
        if not name.startswith("__"):
            yield from (f"    {name} --> {other}" for other in arrows.get(name, ()))
    yield "```"


def floors() -> Iterator[str]:
    """Yield the table of floors, with the first sentence of each package."""
    yield "| floor | package | what is there |"
    yield "|---|---|---|"
    for name in sorted(FLOORS, key=lambda floor: (-FLOORS[floor], floor)):
        if not name.startswith("__"):
            yield f"| {FLOORS[name]} | `{name}` | {_sentence(name)} |"


def renewed(text: str) -> str:
    """Return the page with its blocks regenerated from the code."""
    made = {"drawing": drawing, "floors": floors}
    return BLOCK.sub(lambda found: found[1] + "\n".join(made[found[2]]()) + "\n" + found[3], text)


def _below(name: str, arrows: Mapping[str, set[str]]) -> set[str]:
    found, waiting = set[str](), [*arrows.get(name, ())]
    while waiting:
        if (other := waiting.pop()) not in found:
            found.add(other)
            waiting += arrows.get(other, ())
    return found


def _sentence(name: str) -> str:
    path = ROOT / "ckaudit" / name / "__init__.py"
    tree = ast.parse((path if path.is_file() else ROOT / "ckaudit" / f"{name}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
