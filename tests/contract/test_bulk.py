"""What is proved in bulk the ordinary checks have nothing against, and among many files nothing is lost."""

import json
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from ckaudit.contract.bulk import BulkChecker, FilePattern, learn_pattern, match_file
from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.files import BrokenFile, read_bytes
from tests.loops import for_each

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "fixtures"))

from checkpoints.honest import grid_heavy, key_heavy  # noqa: E402  the generator stands beside the fixtures

FIXTURES = ROOT / "fixtures" / "checkpoints"
VALID = sorted((FIXTURES / "valid").iterdir())
INVALID = sorted(path for path in (FIXTURES / "invalid").rglob("*") if path.is_file())
PATTERNS = [path for path in VALID if path.stem in ("every_field", "nested_grids", "fields_recorded_for_some_tensors")]
EVERY_FIELD = FIXTURES / "valid" / "every_field.json"
FACTORS = (0.0, 0.3, 0.9, 0.97, 0.985, 0.995, 1.005, 1.015, 1.03, 1.1, 3.0, 1e6, -1.0)


def encoded(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


@cache
def honest(seed: int, layers: int) -> bytes:
    return encoded(key_heavy(seed=seed, layers=layers))


@cache
def found_in(data: bytes, name: str) -> tuple[Any, ...]:
    return tuple(check_checkpoint(data, name).findings)


@pytest.fixture(autouse=True, scope="module")
def _learned_once():
    """Learn from each file once: what is learned of equal bytes is equal, and making types takes long."""
    patterns: dict[tuple[bytes, str], FilePattern | None] = {}

    def remembered(data, file, checked):
        key = (data, file)
        return patterns[key] if key in patterns else patterns.setdefault(key, learn_pattern(data, file, checked))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ckaudit.contract.bulk.learn_pattern", remembered)
        yield


def together(given: list[tuple[bytes, str]], **limits: int) -> list[Any]:
    """Everything found in files that are checked one after another in bulk, in a fixed order."""
    bulk = BulkChecker(**limits)
    found = [finding for data, name in given for finding in bulk.check(data, name).findings] + bulk.close()
    return sorted(found, key=repr)


def apart(files: list[tuple[bytes, str]]) -> list[Any]:
    """Everything the ordinary checks find in the same files."""
    return sorted((finding for data, name in files for finding in found_in(data, name)), key=repr)


def numbers(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(node, (int, float)) and not isinstance(node, bool):
        return [path]
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    return [below for key in keys for below in numbers(node[key], (*path, key))]


def by_field(document: dict[str, Any]) -> list[list[tuple[Any, ...]]]:
    """Return the places of all numbers, those of one field together."""
    fields: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for spot in numbers(document):
        fields.setdefault(tuple(key for key in spot if isinstance(key, str)), []).append(spot)
    return [fields[field] for field in sorted(fields)]


def changed(random: Random, base: bytes, fields: list[list[tuple[Any, ...]]]) -> dict[str, Any]:
    """Return a document with one number multiplied, replaced, made a word or left out."""
    made = json.loads(base)
    # A field is drawn before one of its numbers: grids would take nearly every turn.
    *above, last = random.choice(random.choice(fields))
    parent: Any = made
    for key in above:
        parent = parent[key]
    kind = random.randrange(8)
    if kind == 0:
        parent[last] = random.choice(["NaN", "Infinity", 0, 1, -1, 10**15, 1e300])
    elif kind == 1:
        del parent[last]
    else:
        parent[last] = type(parent[last])(parent[last] * random.choice(FACTORS))
    return made


def bases() -> dict[str, dict[str, Any]]:
    return {
        "keys": key_heavy(seed=1, layers=2),
        "grids": grid_heavy(seed=2, layers=1),
        "every field": json.loads(EVERY_FIELD.read_bytes()),
    }


@pytest.mark.parametrize("name", bases())
def test_changed_files_give_the_same_findings_together_and_apart(name, monkeypatch):
    document, random = bases()[name], Random(7)
    base, fields = encoded(document), by_field(document)
    files = [(base, "first.json")]
    files += [(encoded(changed(random, base, fields)) if turn % 3 else base, f"{turn}.json") for turn in range(120)]
    assert not found_in(base, "first.json")
    alone = apart([each for each in files if each[0] is not base])
    calls = []
    monkeypatch.setattr("ckaudit.contract.bulk.check_checkpoint", lambda *given: calls.append(given) or check_checkpoint(*given))
    assert together(files, patience=10**6, files=7) == alone
    assert len({finding.code for finding in alone}) > 8
    assert len(calls) < 0.6 * len(files)


@pytest.mark.parametrize("factor", [0.3, 0.9, 1.1, 3.0])
def test_a_sum_of_squared_deviations_that_is_off_is_found_together_as_apart(factor):
    document = key_heavy(seed=1, layers=1)
    for tensor in document["weights"].values():
        tensor["m2"] = tensor["numel"] * tensor["std"] ** 2
    base = encoded(document)
    files = [(base, "first.json")]
    for tensor in document["weights"].values():
        right = tensor["m2"]
        tensor["m2"] = factor * right
        files.append((encoded(document), f"{len(files)}.json"))
        tensor["m2"] = right
    found = apart(files)
    assert sorted(finding.file for finding in found) == sorted(name for _, name in files[1:])
    assert together(files, patience=10**6, files=7) == found


@pytest.mark.parametrize("name", bases())
def test_a_file_like_the_one_learned_from_is_taken_and_proved(name):
    base = encoded(bases()[name])
    checked = check_checkpoint(base, "x.json")
    pattern = learn_pattern(base, "x.json", checked)
    assert pattern is not None
    taken = match_file(pattern, base, "y.json", np.empty(pattern.layout.width))
    assert taken is not None
    assert taken.checked.tables.keys() == checked.tables.keys()
    for section, made in taken.checked.tables.items():
        assert made.names == checked.tables[section].names
        assert made.columns.keys() == checked.tables[section].columns.keys()
        assert made.complete == checked.tables[section].complete
        assert made.plain <= checked.tables[section].plain


def test_honest_files_of_a_run_are_never_checked_twice(monkeypatch):
    files = [(honest(seed, 2), f"{seed}.json") for seed in range(12)]
    calls = []
    monkeypatch.setattr("ckaudit.contract.bulk.check_checkpoint", lambda *given: calls.append(given) or check_checkpoint(*given))
    assert together(files) == []
    assert [name for _, name in calls] == ["0.json"]


@for_each("path", [*VALID, *INVALID])
def test_a_fixture_among_many_files_keeps_its_findings(path):
    try:
        data = read_bytes(path, path.name)
    except BrokenFile:
        return
    plain, other = honest(3, 1), EVERY_FIELD.read_bytes()
    files = [(plain, "a.json"), (plain, "b.json"), (data, path.name), (other, "c.json"), (data, path.name), (plain, "d.json")]
    assert together(files) == apart(files)


@for_each("path", INVALID)
def test_an_invalid_fixture_is_found_whatever_the_pattern(path):
    try:
        data = read_bytes(path, path.name)
    except BrokenFile:
        return
    for valid in PATTERNS:
        good = read_bytes(valid, valid.name)
        files = [(good, "good.json"), (data, path.name), (good, "good.json")]
        assert together(files) == apart(files)


EXTRA = (b'"zero_fraction":0.0', b'"zero_fraction":0.0,"skewness":0.5')


@pytest.mark.parametrize(
    ("old", "new"),
    [
        EXTRA,
        (EXTRA[0], b'"zero_fraction":NaN'),
        (EXTRA[0], b'"zero_fraction":"NaN","skewness":NaN'),
        (EXTRA[0], b'"zero_fraction":0.0,"skew":{"a":1,"a":2}'),
        (EXTRA[0], b'"zero_fraction":0.0,"skew":"a:b"'),
        (EXTRA[0], b'"zero_fraction":0.0,"zero_fraction":0.0'),
        (EXTRA[0], b'"zero_fraction":0.0,"skewness":1,"skewness":1'),
        (b'"step":500', b'"step":500,"colour":1'),
        (b'"step":500', b'"step":500,"colour":1,"colour":2'),
        (b'"step":500', b'"step":500,"step":500'),
        (b'"step":500', b'"step":500,"a\\"b":1'),
        (b'"step":500', b'"step":500,"":1,"a.*.b":2,"slot_0":3,"unknown_0":4'),
        (b'"model.norm.weight"', b'""'),
        (b'"model.norm.weight"', b'"a\\"b"'),
        (b'"model.norm.weight"', '"\u00e9\u4e2d:"'.encode()),
        (b'"dtype":"float32"', b'"dtype":"float16"'),
        (b'"dtype":"float32"', b'"dtype":"float32","hash":"x:00"'),
        (b'"dtype":"float32"', b'"dtype":"float32","hash":"no"'),
        (b'"dtype":"float32"', b'"dtype":"float32","placement":"shard"'),
    ],
)
def test_what_every_file_has_too_much_is_said_of_every_file(old, new):
    texts = [honest(seed, 1) for seed in range(5)]
    files = [(text.replace(old, new, 1 + index % 2), f"{index}.json") for index, text in enumerate(texts)]
    files += [(text, f"plain{index}.json") for index, text in enumerate(texts)]
    assert together(files) == apart(files)
    assert together(files, patience=0) == apart(files)


def test_a_part_of_a_tensor_in_a_file_without_a_rank_is_found_after_files_with_one():
    shard = json.loads((FIXTURES / "valid" / "shard_of_one_rank.json").read_bytes())
    files = [(encoded(shard), "a.json"), (encoded({key: shard[key] for key in shard if key != "rank"}), "b.json")]
    assert {finding.code for finding in together(files)} == {"VAL070"}
