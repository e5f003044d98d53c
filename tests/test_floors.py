"""Floors import only downwards, and towers on one floor do not know each other."""

import ast
from functools import cache
from pathlib import Path

from tests.loops import for_each

ROOT = Path(__file__).parents[1] / "ckaudit"
FLOORS = {
    "errors": 0,
    "optional": 0,
    "plugins": 0,
    "wording": 0,
    "catalogue": 1,
    "remote": 1,
    "contract": 2,
    "run": 3,
    "recorder": 3,
    "importers": 3,
    "material": 3,
    "metrics": 4,
    "data": 4,
    "probes": 4,
    "rules": 5,
    "causes": 6,
    "policy": 6,
    "questions": 7,
    "audit": 8,
    "validate": 8,
    "diff": 9,
    "resume": 9,
    "panels": 10,
    "watch": 10,
    "fleet": 10,
    "explain": 10,
    "lab": 10,
    "effective_policy": 11,
    "reports": 11,
    "alarm": 12,
    "api": 12,
    "cli": 12,
    "__main__": 13,
    "pytest_plugin": 13,
    "__init__": 13,
}
SAMPLES = {"phonenumbers", "py3langid", "rensa", "tokenizers"}
TRAINERS = {"transformers", "lightning", "pytorch_lightning", "accelerate"}
PROTOCOL = {"mcp", "mcp_types", "anyio"}
STORAGE = {"fsspec", "s3fs", "aiohttp", "aiobotocore", "botocore"}
LAZY = {"torch", "google", "pyarrow", "jsonschema", "rich", "typer", "zstandard", *TRAINERS, *SAMPLES, *PROTOCOL, *STORAGE}
AT_HOME = {"torch": {"recorder", "lab"}, "typer": {"cli"}, "rich": {"reports"}} | {name: {"recorder", "lab"} for name in TRAINERS}


@cache
def imports_of(path: Path) -> list[tuple[str, bool]]:
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


@for_each("path", sorted(ROOT.rglob("*.py")))
def test_module_imports_only_from_floors_below(path: Path) -> None:
    own = _floor(path.relative_to(ROOT).parts)
    for module, _ in imports_of(path):
        name, _, rest = module.partition(".")
        if name != "ckaudit" or not rest:
            continue
        other = rest.partition(".")[0]
        assert other == own or FLOORS[other] < FLOORS[own], f"{own} (floor {FLOORS[own]}) imports {module}"


@for_each("path", sorted(ROOT.rglob("*.py")))
def test_heavy_libraries_are_imported_inside_functions(path: Path) -> None:
    own = _floor(path.relative_to(ROOT).parts)
    eager = {module.partition(".")[0] for module, at_top in imports_of(path) if at_top}
    assert not {name for name in eager & LAZY if own not in AT_HOME.get(name, ())}
