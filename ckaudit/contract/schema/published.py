"""The published JSON Schemas, made from the types: one source of truth.

`schemas/make.py` writes them; a test fails if the committed ones differ.
"""

import json
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.schema.diff import Comparison
from ckaudit.contract.schema.fleet import Fleet
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.metrics import Metrics
from ckaudit.contract.schema.panels import Panels
from ckaudit.contract.schema.raw_measurements import Measures
from ckaudit.contract.schema.report import Report
from ckaudit.contract.schema.scalars import FLAGS, ScalarLine, in_unit
from ckaudit.contract.schema.watch import WatchEvent

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    "ck.analysis.v1": Checkpoint,
    "ck.scalars.v1": ScalarLine,
    "ck.run.v1": Manifest,
    "ck.report.v1": Report,
    "ck.metrics.v1": Metrics,
    "ck.measures.v1": Measures,
    "ck.diff.v1": Comparison,
    "ck.panels.v1": Panels,
    "ck.watch.v1": WatchEvent,
    "ck.fleet.v1": Fleet,
}


_VALUE = {
    "description": "A value by its catalogue name; null is not recorded. "
    f"A boolean is a number, 1 or 0, only under {', '.join(sorted(FLAGS))}; elsewhere it is a word. "
    f"In percent, 0 to 100: {in_unit('percent')}. As fractions, 0 to 1: {in_unit('fraction')}.",
    "type": ["number", "string", "boolean", "null"],
}


@cache
def schema(version: str) -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of one contract version.

    >>> schema("ck.analysis.v1")["required"]
    ['schema_version', 'step']
    """
    generated = msgspec.json.schema(DOCUMENTS[version])
    definitions = {name: _without_indent(definition) for name, definition in generated["$defs"].items()}
    root = definitions.pop(DOCUMENTS[version].__name__)
    full = {"$schema": DIALECT, "$id": f"{version}.schema.json", **root, "title": version}
    if version == "ck.scalars.v1":
        full["additionalProperties"] = _VALUE
    return full | ({"$defs": definitions} if definitions else {})


def _without_indent(definition: dict[str, Any]) -> dict[str, Any]:
    """Remove the indent of a docstring, as Python 3.13 does itself."""
    return definition | ({"description": cleandoc(description)} if (description := definition.get("description")) else {})


def publish(folder: Path) -> None:
    """Write every schema into `folder`."""
    for version in DOCUMENTS:
        text = json.dumps(schema(version), indent=2, ensure_ascii=False) + "\n"
        (folder / f"{version}.schema.json").write_text(text, encoding="utf-8")
