"""The document of the API holds every public name as Python has it, its examples run, and its links lead somewhere."""

import ast
import doctest
import inspect
import os
import re
import runpy
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import ckaudit.api
from ckaudit import errors
from tests.loops import for_each

DOCS = Path(__file__).parents[1] / "docs"
CALLBACKS = ("huggingface.RecorderCallback", "lightning.RecorderCallback")
TOP = sorted({*ckaudit.__all__} - {"__version__"})


@cache
def text():
    return runpy.run_path(str(DOCS / "make.py"))["DOCUMENTS"]["api.md"]()


@cache
def pages():
    """Return what stands under each heading of a name."""
    parts = re.split(r"^####? (\S+)$", text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def fences(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text(), re.DOTALL | re.MULTILINE)


def public(name):
    """Return a public object, by the name of its heading."""
    if name in CALLBACKS:
        return import_module(f"ckaudit.recorder.{name.partition('.')[0]}").RecorderCallback
    return vars(ckaudit.api).get(name) or getattr(ckaudit, name)  # `ckaudit.diff` is a package that can be called


def own_members(kind):
    """Return the public methods and properties that ckaudit gives a class, but for what only a trainer calls."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("ckaudit")]
    found = {name for base in ours for name, each in vars(base).items() if inspect.isfunction(each) or isinstance(each, property)}
    return {name for name in found if not re.match(r"_|on_|setup$|state_dict$|load_state_dict$", name)}


def test_every_public_name_has_a_page_and_a_line_in_the_list():
    listed = re.findall(r"^- \[`([\w.]+)`\]\(#\S+\) \S", text(), re.MULTILINE)
    assert {
        *TOP,
        *CALLBACKS,
        *(name for name, kind in vars(errors).items() if inspect.isclass(kind) and name.endswith("Error")),
    } <= {*listed}
    assert set(listed) <= set(pages())
    assert len(listed) == len(set(listed))


@for_each("name", [*TOP, *CALLBACKS])
def test_a_signature_has_the_arguments_that_python_sees_and_a_class_its_members(name):
    found = public(name)
    members = own_members(found) if inspect.isclass(found) else set()
    assert {page.removeprefix(f"{name}.") for page in pages() if page.startswith(f"{name}.")} == members
    made_by_hand = not inspect.isclass(found) or name not in ("Audit", "Metrics", "Difference")
    for page, called in [(name, found)] * made_by_hand + [(f"{name}.{each}", getattr(found, each)) for each in members]:
        signature = re.search(r"```py\n(.*?)```", pages()[page], re.DOTALL)[1]
        for argument in inspect.signature(called).parameters if callable(called) else ():
            assert argument == "self" or re.search(rf"[( *]{argument}\b", signature), (page, argument)


@for_each("name", [*TOP, *CALLBACKS])
def test_every_argument_that_the_docstring_explains_is_on_the_page(name):
    doc = inspect.getdoc(public(name)) or ""
    explained = re.findall(r"^    \*{0,2}(\w+): ", doc.partition("Args:\n")[2].partition("\n\n")[0], re.MULTILINE)
    listed = re.findall(r"^- `\*{0,2}(\w+)`: ", pages()[name].partition("**Arguments**")[2].partition("\n\n**")[0], re.MULTILINE)
    assert listed[: len(explained)] == explained
    assert inspect.cleandoc(doc).partition("\n")[0].split()[0] in pages()[name]


def test_the_examples_run(monkeypatch):
    monkeypatch.chdir(DOCS.parent)
    examples = fences("pycon")
    assert len(examples) >= 7
    for number, example in enumerate(examples):
        test = doctest.DocTestParser().get_doctest(example, {}, f"example {number}", "api.md", 0)
        assert doctest.DocTestRunner().run(test) == (0, len(test.examples)), example


def test_the_sketches_are_python():
    sketches = fences("python")
    assert len(sketches) >= 4
    for sketch in sketches:
        ast.parse(sketch)


def test_every_link_leads_somewhere():
    slugs, seen = set(), {}
    for heading in re.findall(r"^#{1,6} (.+)$", text(), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        slugs.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    links = re.findall(r"\]\(([^)]+)\)", text())
    assert len(links) > 60
    for link in links:
        if link.startswith("#"):
            assert link[1:] in slugs, link
        else:
            assert (DOCS / "generated" / link).resolve().is_file(), link


def test_it_is_markdown_without_html():
    tokens = MarkdownIt().parse(text())
    kinds = {inner.type for token in tokens for inner in [token, *(token.children or ())]}
    assert not {"html_block", "html_inline"} & kinds


@pytest.mark.parametrize("seed", ["1", "2"])
def test_it_is_the_same_every_time_and_needs_neither_torch_nor_a_trainer(seed):
    program = (
        "import sys, runpy; sys.modules.update(dict.fromkeys(('torch', 'transformers', 'lightning')));"
        "sys.stdout.write(runpy.run_path('docs/make.py')['DOCUMENTS']['api.md']())"
    )
    surroundings = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(DOCS.parent)}
    done = subprocess.run([sys.executable, "-c", program], cwd=DOCS.parent, env=surroundings, capture_output=True, check=True)
    assert done.stdout.decode() == text()
