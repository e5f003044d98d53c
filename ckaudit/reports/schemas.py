"""The JSON Schemas of the documents that commands print besides reports, made from the types and their docstrings."""

import inspect
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ckaudit.audit.autopsy import Autopsy
from ckaudit.audit.coverage.table import Coverage
from ckaudit.audit.drop import Drop
from ckaudit.contract.schema.published import DIALECT
from ckaudit.explain.docstring import ARGUMENT
from ckaudit.lab.drill.outcomes import DrillReport
from ckaudit.reports import coverage
from ckaudit.reports.json import VERSIONS

DOCUMENTS: dict[str, type[msgspec.Struct]] = {
    coverage.VERSION: Coverage,
    VERSIONS["Drop"]: Drop,
    VERSIONS["Autopsy"]: Autopsy,
    VERSIONS["DrillReport"]: DrillReport,
}
MORE: dict[str, dict[str, type[msgspec.Struct]]] = {coverage.VERSION: {"counts": coverage.Counts}}


@cache
def output_schema(version: str) -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of one document; the docstring of each type describes its members.

    >>> output_schema("ck.autopsy.v1")["required"][:3]
    ['schema_version', 'tool', 'subject']
    """
    kind, more = DOCUMENTS[version], MORE.get(version, {})
    _, definitions = msgspec.json.schema_components([kind, *more.values()], ref_template="#/$defs/{name}")
    definitions = json.loads(msgspec.json.encode(definitions))  # an empty default is a tuple here and a list in a file
    for definition in definitions.values():
        _describe(definition)
    root = definitions.pop(kind.__name__)
    head: dict[str, Any] = {
        "schema_version": {"description": "Version of the contract that this document follows.", "enum": [version]},
        "tool": {"description": "Name and version of the program.", "type": "string"},
    }
    tail = {
        name: {"$ref": f"#/$defs/{member.__name__}", "description": inspect.cleandoc(member.__doc__ or "").partition("\n")[0]}
        for name, member in more.items()
    }
    properties = head | root["properties"] | tail
    return {
        "$schema": DIALECT,
        "$id": f"{version}.schema.json",
        **root,
        "title": version,
        "properties": properties,
        "required": list(properties),
        "$defs": definitions,
    }


def publish_outputs(folder: Path) -> None:
    """Write every schema into `folder`."""
    for version in DOCUMENTS:
        text = json.dumps(output_schema(version), indent=2, ensure_ascii=False) + "\n"
        (folder / f"{version}.schema.json").write_text(text, encoding="utf-8")


def _describe(definition: dict[str, Any]) -> None:
    """Give each member of a type its line of the docstring; all members of such a type are always written."""
    text, _, members = inspect.cleandoc(definition.get("description", "")).partition("Attributes:\n")
    definition["description"] = " ".join(text.split())
    for name, description in ARGUMENT.findall(members):
        definition["properties"][name]["description"] = " ".join(re.sub(r"\bNone\b", "null", description).split())
    if members:
        definition["required"] = list(definition["properties"])
