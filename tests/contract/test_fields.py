"""Every field of the contract is read by something, and everything that says it reads a field names one that exists."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from ckaudit.contract.checks import checks
from ckaudit.contract.checks.names import fields
from ckaudit.contract.schema.published import DOCUMENTS, schema
from ckaudit.metrics import metrics
from ckaudit.validate import validate

SCHEMAS = Path(__file__).parents[2] / "schemas"


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("schemas_make", SCHEMAS / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_field_is_read_by_nothing(make):
    read = {path for path, readers in make.readers().items() if any(readers.values())}
    assert not set(fields()) - read


def test_a_check_reads_only_fields_that_exist():
    assert {path for check in checks() for path in check.reads} <= set(fields())


def test_a_metric_reads_only_fields_that_exist_and_scalars(make):
    paths = {make.field_of(path) for metric in metrics().values() for path in metric.paths}
    assert paths <= set(fields())


def test_the_fields_are_those_of_the_published_schema():
    """Walk the schema itself: an independent list of the same paths."""
    published = schema("ck.analysis.v1")

    def walk(part, prefix):
        part = published["$defs"][part["$ref"].rsplit("/", 1)[-1]] if "$ref" in part else part
        for choice in part.get("anyOf", ()):
            yield from walk(choice, prefix)
        for name, inner in part.get("properties", {}).items():
            path = f"{prefix}.{name}" if prefix else name
            below = [] if name in ("histogram", "bins") or "grid" in name else list(walk(inner, path))
            yield from below or [path]
        if isinstance(part.get("additionalProperties"), dict):
            yield from walk(part["additionalProperties"], f"{prefix}.*")
        if part.get("type") == "array" and prefix:
            yield from walk(part.get("items", {}), f"{prefix}[]")

    assert set(walk(published, "")) == set(fields())


def test_every_field_has_a_meaning():
    assert [path for path, meaning in fields().items() if not meaning] == []


def test_the_least_run_of_the_readme_follows_the_contract(tmp_path):
    text = (SCHEMAS / "README.md").read_text(encoding="utf-8")
    scalars, checkpoint, manifest = re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)[:3]
    (tmp_path / "scalars.jsonl").write_text(f"{scalars}\n")
    (tmp_path / "analysis_checkpoint_step_00000001.json").write_text(checkpoint)
    (tmp_path / "run.json").write_text(manifest)
    report = validate([tmp_path])
    assert report.files == 3
    assert not report.findings


def test_the_readme_holds_the_table_of_today(make):
    text = (SCHEMAS / "README.md").read_text(encoding="utf-8")
    assert text == make.with_table(text), "run python schemas/make.py"


@pytest.mark.parametrize("version", DOCUMENTS)
def test_the_committed_schema_is_the_one_of_the_types(version):
    assert json.loads((SCHEMAS / f"{version}.schema.json").read_text(encoding="utf-8")) == schema(version)


@pytest.mark.parametrize("version", DOCUMENTS)
def test_a_schema_describes_every_property_and_is_one(version):
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(schema(version))
    objects = [schema(version), *schema(version).get("$defs", {}).values()]
    bare = [name for each in objects for name, part in each.get("properties", {}).items() if not described(part)]
    assert bare == []


def described(part):
    return "description" in part or any(described(choice) for choice in part.get("anyOf", ()))
