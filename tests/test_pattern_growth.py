"""No pattern over text that other programs wrote takes more than linear time, whatever stands in the text."""

import ast
import re
from collections import defaultdict
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

from ckaudit.importers.text.line_patterns import Cell, learn_pattern
from tests.pattern_attacks import PUMPS, attacks, exponent

ROOT = Path(__file__).parents[1] / "ckaudit"
PACKAGES = ("importers", "material", "contract", "data", "probes", "resume")
METHODS = ("match", "search", "fullmatch", "finditer", "findall", "sub", "split")
STEEP = 1.5
SHORT = {  # what these see has a bound of its own
    "CHECKPOINT_NAME": "the name of a file, 255 bytes",
    "ROLE": "the name of a file",
    "ANY_NUMBER": "the name of a file",
    "_VERSION": "the 28 characters before an address",
}
HANDED_ON = {"_KEYS": ("fullmatch",)}  # by a variable that has the name of another
_LOOP = re.compile(r"\bfor (\w+)(?:, (\w+))? in (\w+)")
_CALL = re.compile(rf"\b(\w+)\.({'|'.join(METHODS)})\b")


@cache
def patterns():
    """Return every pattern of the packages that read foreign text, by its place, with the methods that it is used by."""
    found = {}
    for package in PACKAGES:
        home = import_module(f"ckaudit.{package}")
        names = [module.name for module in walk_packages(home.__path__, f"{home.__name__}.")]
        for name in [home.__name__, *names]:
            module = import_module(name)
            for attribute, value in vars(module).items():
                for pattern in _inside(value):
                    uses = _uses(attribute, module.__file__)
                    found.setdefault((pattern.pattern, pattern.flags), (f"{name}.{attribute}", pattern, uses))
            for literal, method in _written_in_calls(Path(module.__file__)):
                pattern = re.compile(literal)
                found.setdefault((literal, pattern.flags), (f"{name}: {literal!r}", pattern, (method,)))
    long = [each for each in found.values() if each[0].rpartition(".")[2] not in SHORT]
    return {f"{place} {number}": (pattern, uses) for number, (place, pattern, uses) in enumerate(long)}


def _inside(value):
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _inside(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _inside(each)


@cache
def _calls_and_loops(path):
    """Return what a file calls of each name, and the variables of its loops over each name; of all files without a path."""
    calls, variables = defaultdict(set), defaultdict(set)
    for source in [path] if path else sorted(ROOT.rglob("*.py")):
        text = Path(source).read_text()
        for name, method in _CALL.findall(text):
            calls[name].add(method)
        for *names, over in _LOOP.findall(text):
            variables[over].update(filter(None, names))
    return calls, variables


def _uses(attribute, path):
    """Return the methods by which a pattern is used, by its own name or by that of the variable of a loop."""
    if attribute in HANDED_ON:
        return HANDED_ON[attribute]
    calls, variables = _calls_and_loops(path if attribute.startswith("_") else None)
    methods = {method for name in (attribute, *variables[attribute]) for method in calls[name]}
    return tuple(sorted(methods)) or ("match", "search")


def _written_in_calls(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "re":
            literal = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            if node.func.attr in METHODS and literal is not None:
                yield literal, node.func.attr


def using(pattern, method):
    """Return what runs a pattern over a text as the code does."""
    encode = (lambda text: text.encode("utf-8", "replace")) if isinstance(pattern.pattern, bytes) else (lambda text: text)
    if method == "finditer":
        return lambda text: sum(1 for _ in pattern.finditer(encode(text)))
    if method == "sub":
        return lambda text: pattern.sub(pattern.pattern[:0], encode(text))
    return lambda text: getattr(pattern, method)(encode(text))


def steep(pattern, methods):
    """Yield the methods and attacks in which a search takes more than linear time."""
    for attack in attacks(pattern):
        for method in methods:
            use = using(pattern, method)
            if all(exponent(use, *attack) > STEEP for _ in range(2)):  # on a loaded machine a single time says little
                yield method, attack


def test_time_grows_with_the_length_of_the_text_and_no_faster():
    assert patterns()
    assert not {place: slow for place, each in patterns().items() if (slow := [*steep(*each)])}


@pytest.mark.parametrize("line", ["step 1 loss 2.5 " + " " * 40, "a  :  1  b  : 2 | c:3", "iteration 1/ 2 | lm loss: 1.5 | x"])
def test_the_pattern_that_is_learnt_from_a_line_grows_no_faster(line):
    cells = [Cell("key", *match.span()) for match in re.finditer(r"[\d.]+", line)]
    learned = learn_pattern(line, 0, cells, lambda _: True)
    for pump in (*PUMPS, line):
        for start in ("", line, line[: cells[-1].start]):
            attack = (start, pump, "!")
            if exponent(lambda text: learned.match(text, 0), *attack) > STEEP:
                assert exponent(lambda text: learned.match(text, 0), *attack) <= STEEP, attack
