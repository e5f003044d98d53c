"""How the code is laid out, as far as neither the linter nor the type checker asks."""

import ast
import builtins
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from ckaudit.contract.schema.tensor_names import block_of

ROOT = Path(__file__).parents[1]


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in (ROOT / "ckaudit").rglob("*.py")}
    assert not {str(path): lines for path, lines in lengths.items() if lines > 400}


def test_the_formatter_alone_decides_the_layout() -> None:
    switches = tuple(f"# fmt: {word}" for word in ("skip", "off", "on"))
    folders = [folder for folder in ROOT.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    written = [path for folder in folders for path in folder.rglob("*.py") if path != Path(__file__)]
    assert len(written) > 1000
    assert not [path for path in written if any(switch in path.read_text() for switch in switches)]


def test_every_module_can_be_imported() -> None:
    for path in sorted((ROOT / "ckaudit").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        assert import_module(name.removesuffix(".__init__")).__doc__ or not path.stat().st_size, name


def _statements(block: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a node, and theirs; `ast.walk` also takes every expression apart, in ten times the time."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for each in getattr(block, field, ()):
            yield each
            yield from _statements(each)


def test_every_error_that_a_docstring_names_is_one() -> None:
    trees = [ast.parse(path.read_text()) for path in sorted((ROOT / "ckaudit").rglob("*.py"))]
    nodes = [node for tree in trees for node in _statements(tree)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    known = {*vars(builtins), *(node.name for node in nodes if isinstance(node, ast.ClassDef))}
    known |= {alias.asname or alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    sections = [re.search(r"^Raises:\n((?:    .*\n?)+)", ast.get_docstring(one) or "", re.MULTILINE) for one in functions]
    named = [re.findall(r"^    ([A-Za-z]+):", section[1], re.MULTILINE) for section in sections if section]
    assert len(named) > 100
    assert not {name for names in named for name in names} - known


def test_labels_are_looked_up_by_places_and_not_one_after_another() -> None:
    """`Series.labels` is a tuple: a search in it for each tensor takes a time that is quadratic in tensors."""
    searched = []
    for path in sorted((ROOT / "ckaudit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            asked = node.comparators if isinstance(node, ast.Compare) and isinstance(node.ops[-1], ast.In | ast.NotIn) else []
            asked = [node.value] if isinstance(node, ast.Attribute) and node.attr == "index" else asked
            searched += [
                f"{path.name}:{node.lineno}" for each in asked if isinstance(each, ast.Attribute) and each.attr == "labels"
            ]
    assert not searched


def test_results_by_name_are_kept_for_all_tensors_of_a_large_mixture_of_experts() -> None:
    names = [
        f"blocks.{layer}.mlp.experts.{number}.{part}.weight" for layer in range(61) for number in range(256) for part in "abc"
    ]
    for _ in range(2):
        kept = block_of.cache_info().misses
        assert {block_of(name) for name in names} == {f"blocks.{layer}" for layer in range(61)}
    assert block_of.cache_info().misses == kept
