"""Natural text for the tests: the documentation of Python's own modules, cut into paragraphs."""

import ast
import json
from functools import cache
from pathlib import Path

MODULES = (
    "argparse",
    "asyncio/base_events",
    "collections/__init__",
    "configparser",
    "csv",
    "datetime",
    "decimal",
    "difflib",
    "email/message",
    "fractions",
    "heapq",
    "inspect",
    "ipaddress",
    "logging/__init__",
    "mailbox",
    "pathlib",
    "pickle",
    "random",
    "shutil",
    "socketserver",
    "statistics",
    "string",
    "subprocess",
    "tarfile",
    "textwrap",
    "threading",
    "typing",
    "unittest/case",
    "urllib/request",
    "zipfile",
)


@cache
def docstrings():
    """Return docstrings of at least thirty words."""
    library = Path(ast.__file__).parent
    found = []
    for path in (library / f"{name}.py" for name in MODULES):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.exists() else ()
        found += [
            ast.get_docstring(each) or "" for each in nodes if isinstance(each, ast.Module | ast.ClassDef | ast.FunctionDef)
        ]
    return tuple(text for text in found if len(text.split()) >= 30)


def write(path, rows):
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
