"""Floors import only downwards, and towers on one floor do not know each other."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "ckaudit"
FLOORS = {
    "errors": 0,
    "optional": 0,
    "plugins": 0,
    "contract": 1,
    "run": 2,
    "recorder": 2,
    "importers": 2,
    "material": 2,
    "metrics": 3,
    "data": 3,
    "probes": 3,
    "rules": 4,
    "causes": 5,
    "policy": 5,
    "questions": 6,
    "audit": 7,
    "validate": 7,
    "diff": 8,
    "resume": 8,
    "panels": 9,
    "watch": 9,
    "explain": 9,
    "lab": 9,
    "reports": 10,
    "cli": 11,
    "__main__": 12,
    "__init__": 12,
}
SAMPLES = {"phonenumbers", "py3langid", "rensa", "tokenizers"}
TRAINERS = {"transformers", "lightning", "pytorch_lightning", "accelerate"}
LAZY = {"torch", "google", "pyarrow", "jsonschema", "rich", "typer", "zstandard", *TRAINERS, *SAMPLES}
AT_HOME = {"torch": {"recorder", "lab"}, "typer": {"cli"}, "rich": {"reports"}} | {name: {"recorder"} for name in TRAINERS}


def _imports(path: Path) -> list[tuple[str, bool]]:
    """Return every imported module and whether it stands at the top of the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = set(map(id, tree.body))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, id(node) in top))
    return found


def _floor(parts: tuple[str, ...]) -> str:
    return parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_module_imports_only_from_floors_below(path: Path) -> None:
    own = _floor(path.relative_to(ROOT).parts)
    for module, _ in _imports(path):
        name, _, rest = module.partition(".")
        if name != "ckaudit" or not rest:
            continue
        other = rest.partition(".")[0]
        assert other == own or FLOORS[other] < FLOORS[own], f"{own} (floor {FLOORS[own]}) imports {module}"


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_libraries_are_imported_inside_functions(path: Path) -> None:
    own = _floor(path.relative_to(ROOT).parts)
    eager = {module.partition(".")[0] for module, at_top in _imports(path) if at_top}
    assert not {name for name in eager & LAZY if own not in AT_HOME.get(name, ())}
